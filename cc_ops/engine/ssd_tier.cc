#include "cc_ops/engine/ssd_tier.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/stable_hash.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

constexpr int64_t kDropBatch = 4096;

// The key of an entry of `table_id`; false when the entry is another table's.
bool ReadSsdKey(const leveldb::Slice& entry, uint32_t table_id, int64_t* key) {
  uint32_t id = 0;
  return ParseSsdKey({entry.data(), entry.size()}, &id, key) && id == table_id;
}

SsdTier::File CopiedFile(int instance, const std::string& name, const std::string& data) {
  return {instance, name, static_cast<int64_t>(data.size()), false, StableHash64(data)};
}

}  // namespace

absl::Status SsdTier::SaveFile(const File& file, const std::string& from, const std::string& to) {
  return file.immutable ? LinkOrCopyFile(from, to, file.bytes) : CopyFile(from, to, file.bytes);
}

absl::Status SsdTier::RestoreFile(const File& file, const std::string& from,
                                  const std::string& to) {
  TF_HPS_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(from));
  if (bytes != file.bytes) {
    return absl::DataLossError(
        absl::StrCat(from, " is damaged: it has ", bytes, " bytes, expected ", file.bytes));
  }
  if (!file.immutable) {
    TF_HPS_ASSIGN_OR_RETURN(const std::string data, ReadFile(from));
    if (StableHash64(data) != file.checksum) {
      return absl::DataLossError(absl::StrCat(from, " is damaged: its checksum does not fit"));
    }
  }
  return SaveFile(file, from, to);
}

void SsdTier::Batch::Put(uint32_t table_id, int64_t key, absl::string_view row) {
  writes_.Put({table_id, key}, row);
}

void SsdTier::Batch::Remove(uint32_t table_id, int64_t key) { writes_.Remove({table_id, key}); }

absl::StatusOr<std::unique_ptr<SsdTier>> SsdTier::Open(const std::string& directory,
                                                       const SsdOptions& options) {
  auto tier = std::unique_ptr<SsdTier>(new SsdTier);
  tier->directory_ = directory;
  const SsdInstance::Options instance_options = {options.write_buffer_bytes,
                                                 options.max_open_files / options.instances};
  for (int i = 0; i < options.instances; ++i) {
    TF_HPS_ASSIGN_OR_RETURN(tier->instances_.emplace_back(),
                            SsdInstance::Open(InstanceDirectory(directory, i), instance_options));
  }
  return tier;
}

std::string SsdTier::InstanceDirectory(const std::string& directory, int instance) {
  return JoinPath(directory, absl::StrCat("ssd-", instance));
}

std::string SsdTier::FilePath(const std::string& directory, const File& file) {
  return JoinPath(InstanceDirectory(directory, file.instance), file.name);
}

absl::Status SsdTier::Get(int instance, uint32_t table_id, absl::Span<const int64_t> keys,
                          absl::FunctionRef<absl::Status(int64_t i, absl::string_view row)> found) {
  std::vector<SsdKey> entries;
  entries.reserve(keys.size());
  for (const int64_t key : keys) entries.push_back({table_id, key});
  if (std::is_sorted(entries.begin(), entries.end())) {
    return instances_[instance]->Get(entries, found);
  }
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return keys[x] < keys[y]; });
  for (size_t i = 0; i < order.size(); ++i) entries[i].key = keys[order[i]];
  return instances_[instance]->Get(
      entries, [&](int64_t i, absl::string_view row) { return found(order[i], row); });
}

absl::Status SsdTier::Write(int instance, Batch* batch) {
  return instances_[instance]->Write(&batch->writes_);
}

absl::Status SsdTier::DropTable(uint32_t table_id) {
  for (int i = 0; i < instances(); ++i) {
    int64_t key = INT64_MIN;
    Batch batch;
    do {
      batch.Clear();
      {
        TF_HPS_ASSIGN_OR_RETURN(const auto cursor, instances_[i]->NewCursor());
        SsdInstance::Cursor& it = *cursor;
        for (it->Seek(EncodeSsdKey(table_id, key));
             batch.entries() < kDropBatch && it->Valid() && ReadSsdKey(it->key(), table_id, &key);
             it->Next()) {
          batch.Remove(table_id, key);
        }
        TF_HPS_RETURN_IF_ERROR(it.status());
      }
      // Without the cursor, which would keep the instance from recovering.
      TF_HPS_RETURN_IF_ERROR(Write(i, &batch));
    } while (batch.entries() == kDropBatch);
  }
  return absl::OkStatus();
}

absl::Status SsdTier::Writer::Put(uint32_t table_id, int64_t key, absl::string_view row) {
  const uint32_t instance = PartitionOf(HashKey(key), static_cast<uint32_t>(batches_.size()));
  Batch& batch = batches_[instance];
  batch.Put(table_id, key, row);
  if (batch.bytes() < kBatchBytes) return absl::OkStatus();
  TF_HPS_RETURN_IF_ERROR(tier_->Write(static_cast<int>(instance), &batch));
  batch.Clear();
  return absl::OkStatus();
}

absl::Status SsdTier::Writer::Finish() {
  for (size_t i = 0; i < batches_.size(); ++i) {
    if (batches_[i].empty()) continue;
    TF_HPS_RETURN_IF_ERROR(tier_->Write(static_cast<int>(i), &batches_[i]));
    batches_[i].Clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SsdTier::Scan>> SsdTier::NewScan(uint32_t table_id) {
  auto scan = std::unique_ptr<Scan>(new Scan(table_id));
  for (const auto& instance : instances_) {
    TF_HPS_ASSIGN_OR_RETURN(scan->cursors_.emplace_back(), instance->NewCursor());
    (*scan->cursors_.back())->Seek(EncodeSsdKey(table_id, INT64_MIN));
  }
  scan->FindSmallest();
  return scan;
}

void SsdTier::Scan::FindSmallest() {
  current_ = -1;
  for (size_t i = 0; i < cursors_.size(); ++i) {
    SsdInstance::Cursor& cursor = *cursors_[i];
    if (!cursor->status().ok()) {
      current_ = -1;
      return;
    }
    int64_t key;
    if (!cursor->Valid() || !ReadSsdKey(cursor->key(), table_id_, &key)) continue;
    if (current_ < 0 || key < key_) {
      current_ = static_cast<int>(i);
      key_ = key;
    }
  }
}

absl::string_view SsdTier::Scan::row() const {
  const leveldb::Slice value = (*cursors_[current_])->value();
  return absl::string_view(value.data(), value.size());
}

void SsdTier::Scan::Next() {
  (*cursors_[current_])->Next();
  FindSmallest();
}

absl::Status SsdTier::Scan::status() const {
  for (const auto& cursor : cursors_) TF_HPS_RETURN_IF_ERROR(cursor->status());
  return absl::OkStatus();
}

absl::Status SsdTier::VisitFiles(absl::FunctionRef<absl::Status(const File& file)> visit) {
  // Twice: the first files of all instances are written at the same time.
  for (int half = 0; half < 2; ++half) {
    for (const auto& instance : instances_) TF_HPS_RETURN_IF_ERROR(instance->StartFlush());
  }
  for (int i = 0; i < instances(); ++i) {
    SsdEnv* const env = instances_[i]->env();
    env->HoldDeletions();
    const auto release = absl::MakeCleanup([env] { env->ReleaseDeletions(); });
    TF_HPS_RETURN_IF_ERROR(VisitInstanceFiles(i, visit));
  }
  return absl::OkStatus();
}

absl::Status SsdTier::VisitInstanceFiles(int instance,
                                         absl::FunctionRef<absl::Status(const File& file)> visit) {
  const std::string& directory = instances_[instance]->directory();
  TF_HPS_ASSIGN_OR_RETURN(std::string current, ReadFile(JoinPath(directory, "CURRENT")));
  const std::string manifest(absl::StripSuffix(current, "\n"));
  // First LevelDB's manifest, as far as it is now, then the tables: all that it names up to there
  // exist.
  TF_HPS_ASSIGN_OR_RETURN(const std::string edits, ReadFile(JoinPath(directory, manifest)));
  TF_HPS_RETURN_IF_ERROR(visit(CopiedFile(instance, manifest, edits)));
  TF_HPS_RETURN_IF_ERROR(visit(CopiedFile(instance, "CURRENT", current)));
  TF_HPS_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(directory));
  const std::set<std::string> unfinished = instances_[instance]->env()->FilesBeingWritten();
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (!absl::EndsWith(name, ".ldb") || unfinished.count(path) > 0) continue;
    TF_HPS_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
    TF_HPS_RETURN_IF_ERROR(visit(File{instance, name, bytes, true}));
  }
  return absl::OkStatus();
}

int64_t SsdTier::reopenings() const {
  int64_t count = 0;
  for (const auto& instance : instances_) count += instance->reopenings();
  return count;
}

int64_t SsdTier::buffered_bytes() const {
  int64_t bytes = 0;
  for (const auto& instance : instances_) bytes += instance->buffered_bytes();
  return bytes;
}

int64_t SsdTier::bytes_read() const {
  int64_t bytes = 0;
  for (const auto& instance : instances_) bytes += instance->env()->bytes_read();
  return bytes;
}

int64_t SsdTier::bytes_written() const {
  int64_t bytes = 0;
  for (const auto& instance : instances_) bytes += instance->env()->bytes_written();
  return bytes;
}

}  // namespace tf_hps
