#include "cc_ops/engine/ssd_tier.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

constexpr int kBloomBitsPerKey = 10;
constexpr size_t kBlockBytes = 4096;
constexpr size_t kMaxFileBytes = 32 << 20;
constexpr int64_t kDropBatch = 4096;

absl::Status FromLevelDb(const leveldb::Status& status, absl::string_view action,
                         absl::string_view directory) {
  if (status.ok()) return absl::OkStatus();
  const std::string message =
      absl::StrCat("cannot ", action, " ", directory, ": ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (absl::StrContains(message, "No space left")) return absl::ResourceExhaustedError(message);
  if (absl::StrContains(message, "Too many open files")) {
    return absl::ResourceExhaustedError(message);
  }
  if (absl::StrContains(message, "Permission denied")) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

constexpr size_t kSsdKeyBytes = 12;

void WriteSsdKey(uint32_t table_id, int64_t key, char* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(table_id >> (24 - 8 * i));
  const uint64_t ordered = static_cast<uint64_t>(key) ^ (uint64_t{1} << 63);
  for (int i = 0; i < 8; ++i) out[4 + i] = static_cast<char>(ordered >> (56 - 8 * i));
}

// The key of an entry of `table_id`; false when the entry is another table's.
bool ReadSsdKey(const leveldb::Slice& entry, uint32_t table_id, int64_t* key) {
  if (entry.size() != kSsdKeyBytes) return false;
  char prefix[kSsdKeyBytes];
  WriteSsdKey(table_id, 0, prefix);
  if (std::memcmp(entry.data(), prefix, 4) != 0) return false;
  uint64_t ordered = 0;
  for (int i = 0; i < 8; ++i) ordered = ordered << 8 | static_cast<uint8_t>(entry[4 + i]);
  *key = static_cast<int64_t>(ordered ^ (uint64_t{1} << 63));
  return true;
}

leveldb::ReadOptions Checked() {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  return options;
}

leveldb::ReadOptions ForScan(const leveldb::Snapshot* snapshot) {
  leveldb::ReadOptions options = Checked();
  options.fill_cache = false;
  options.snapshot = snapshot;
  return options;
}

}  // namespace

std::string EncodeSsdKey(uint32_t table_id, int64_t key) {
  std::string encoded(kSsdKeyBytes, '\0');
  WriteSsdKey(table_id, key, encoded.data());
  return encoded;
}

void SsdTier::Batch::Put(uint32_t table_id, int64_t key, absl::string_view row) {
  char entry[kSsdKeyBytes];
  WriteSsdKey(table_id, key, entry);
  batch_.Put(leveldb::Slice(entry, kSsdKeyBytes), leveldb::Slice(row.data(), row.size()));
  ++entries_;
}

void SsdTier::Batch::Remove(uint32_t table_id, int64_t key) {
  char entry[kSsdKeyBytes];
  WriteSsdKey(table_id, key, entry);
  batch_.Delete(leveldb::Slice(entry, kSsdKeyBytes));
  ++entries_;
}

void SsdTier::Batch::Clear() {
  batch_.Clear();
  entries_ = 0;
}

absl::StatusOr<std::unique_ptr<SsdTier>> SsdTier::Open(const std::string& directory,
                                                       const SsdOptions& options) {
  auto tier = std::unique_ptr<SsdTier>(new SsdTier);
  tier->filter_.reset(leveldb::NewBloomFilterPolicy(kBloomBitsPerKey));
  for (int i = 0; i < options.instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(tier->OpenInstance(InstanceDirectory(directory, i), options));
  }
  return tier;
}

SsdTier::~SsdTier() {
  for (Instance& instance : instances_) instance.db.reset();
}

std::string SsdTier::InstanceDirectory(const std::string& directory, int instance) {
  return JoinPath(directory, absl::StrCat("ssd-", instance));
}

absl::Status SsdTier::OpenInstance(const std::string& directory, const SsdOptions& options) {
  TF_HPS_RETURN_IF_ERROR(CreateDirectories(directory));
  Instance instance;
  instance.directory = directory;
  instance.env = std::make_unique<SsdEnv>();
  caches_.emplace_back(leveldb::NewLRUCache(static_cast<size_t>(options.block_cache_bytes)));
  leveldb::Options db_options;
  db_options.create_if_missing = true;
  db_options.paranoid_checks = true;
  db_options.env = instance.env->env();
  db_options.write_buffer_size = static_cast<size_t>(options.write_buffer_bytes);
  db_options.max_open_files = std::max(64, options.max_open_files / options.instances);
  db_options.block_cache = caches_.back().get();
  db_options.block_size = kBlockBytes;
  db_options.max_file_size = kMaxFileBytes;
  db_options.compression = leveldb::kNoCompression;
  db_options.filter_policy = filter_.get();
  leveldb::DB* db = nullptr;
  TF_HPS_RETURN_IF_ERROR(
      FromLevelDb(leveldb::DB::Open(db_options, directory, &db), "open", directory));
  instance.db.reset(db);
  instances_.push_back(std::move(instance));
  return absl::OkStatus();
}

absl::Status SsdTier::Get(int instance, uint32_t table_id, absl::Span<const int64_t> keys,
                          absl::FunctionRef<absl::Status(int64_t i, absl::string_view row)> found) {
  Instance& target = instances_[instance];
  const leveldb::ReadOptions options = Checked();
  char entry[kSsdKeyBytes];
  std::string value;
  for (size_t i = 0; i < keys.size(); ++i) {
    WriteSsdKey(table_id, keys[i], entry);
    const leveldb::Status status =
        target.db->Get(options, leveldb::Slice(entry, kSsdKeyBytes), &value);
    if (status.IsNotFound()) continue;
    TF_HPS_RETURN_IF_ERROR(FromLevelDb(status, "read a row from", target.directory));
    TF_HPS_RETURN_IF_ERROR(found(static_cast<int64_t>(i), value));
  }
  return absl::OkStatus();
}

absl::Status SsdTier::Write(int instance, Batch* batch) {
  Instance& target = instances_[instance];
  return FromLevelDb(target.db->Write(leveldb::WriteOptions(), &batch->batch_), "write rows to",
                     target.directory);
}

absl::Status SsdTier::DropTable(uint32_t table_id) {
  for (int i = 0; i < instances(); ++i) {
    Instance& instance = instances_[i];
    std::unique_ptr<leveldb::Iterator> it(instance.db->NewIterator(ForScan(nullptr)));
    Batch batch;
    int64_t key;
    for (it->Seek(EncodeSsdKey(table_id, INT64_MIN));
         it->Valid() && ReadSsdKey(it->key(), table_id, &key); it->Next()) {
      batch.Remove(table_id, key);
      if (batch.entries() < kDropBatch) continue;
      TF_HPS_RETURN_IF_ERROR(Write(i, &batch));
      batch.Clear();
    }
    TF_HPS_RETURN_IF_ERROR(FromLevelDb(it->status(), "read", instance.directory));
    TF_HPS_RETURN_IF_ERROR(Write(i, &batch));
  }
  return absl::OkStatus();
}

std::unique_ptr<SsdTier::Scan> SsdTier::NewScan(uint32_t table_id) {
  return std::unique_ptr<Scan>(new Scan(this, table_id));
}

SsdTier::Scan::Scan(SsdTier* tier, uint32_t table_id) : tier_(tier), table_id_(table_id) {
  for (Instance& instance : tier_->instances_) {
    snapshots_.push_back(instance.db->GetSnapshot());
    iterators_.emplace_back(instance.db->NewIterator(ForScan(snapshots_.back())));
    iterators_.back()->Seek(EncodeSsdKey(table_id_, INT64_MIN));
  }
  FindSmallest();
}

SsdTier::Scan::~Scan() {
  iterators_.clear();
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    tier_->instances_[i].db->ReleaseSnapshot(snapshots_[i]);
  }
}

void SsdTier::Scan::FindSmallest() {
  current_ = -1;
  for (size_t i = 0; i < iterators_.size(); ++i) {
    int64_t key;
    if (!iterators_[i]->status().ok()) {
      current_ = -1;
      return;
    }
    if (!iterators_[i]->Valid() || !ReadSsdKey(iterators_[i]->key(), table_id_, &key)) continue;
    if (current_ < 0 || key < key_) {
      current_ = static_cast<int>(i);
      key_ = key;
    }
  }
}

absl::string_view SsdTier::Scan::row() const {
  const leveldb::Slice value = iterators_[current_]->value();
  return absl::string_view(value.data(), value.size());
}

void SsdTier::Scan::Next() {
  iterators_[current_]->Next();
  FindSmallest();
}

absl::Status SsdTier::Scan::status() const {
  for (size_t i = 0; i < iterators_.size(); ++i) {
    TF_HPS_RETURN_IF_ERROR(
        FromLevelDb(iterators_[i]->status(), "read", tier_->instances_[i].directory));
  }
  return absl::OkStatus();
}

absl::Status SsdTier::FlushInstance(int instance) {
  // A write of no batch makes LevelDB switch to a new write buffer, after waiting for the one
  // before to be in a file: the second such write returns when the first's rows are there.
  Instance& target = instances_[instance];
  for (int i = 0; i < 2; ++i) {
    TF_HPS_RETURN_IF_ERROR(FromLevelDb(target.db->Write(leveldb::WriteOptions(), nullptr),
                                       "write buffered rows to", target.directory));
  }
  return absl::OkStatus();
}

absl::Status SsdTier::VisitFiles(absl::FunctionRef<absl::Status(const File& file)> visit) {
  for (int i = 0; i < instances(); ++i) {
    TF_HPS_RETURN_IF_ERROR(FlushInstance(i));
    instances_[i].env->HoldDeletions();
    const auto release = absl::MakeCleanup([&] { instances_[i].env->ReleaseDeletions(); });
    TF_HPS_RETURN_IF_ERROR(VisitInstanceFiles(i, visit));
  }
  return absl::OkStatus();
}

absl::Status SsdTier::VisitInstanceFiles(int instance,
                                         absl::FunctionRef<absl::Status(const File& file)> visit) {
  const std::string& directory = instances_[instance].directory;
  TF_HPS_ASSIGN_OR_RETURN(std::string current, ReadFile(JoinPath(directory, "CURRENT")));
  const std::string manifest(absl::StripSuffix(current, "\n"));
  // First the length of LevelDB's manifest, then the tables: all that the manifest names up to
  // there exist.
  TF_HPS_ASSIGN_OR_RETURN(const int64_t manifest_bytes, FileSize(JoinPath(directory, manifest)));
  TF_HPS_RETURN_IF_ERROR(visit(File{instance, manifest, manifest_bytes, false}));
  TF_HPS_RETURN_IF_ERROR(
      visit(File{instance, "CURRENT", static_cast<int64_t>(current.size()), false}));
  TF_HPS_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(directory));
  const std::set<std::string> unfinished = instances_[instance].env->FilesBeingWritten();
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    if (!absl::EndsWith(name, ".ldb") || unfinished.count(path) > 0) continue;
    TF_HPS_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
    TF_HPS_RETURN_IF_ERROR(visit(File{instance, name, bytes, true}));
  }
  return absl::OkStatus();
}

int64_t SsdTier::bytes_read() const {
  int64_t bytes = 0;
  for (const Instance& instance : instances_) bytes += instance.env->bytes_read();
  return bytes;
}

int64_t SsdTier::bytes_written() const {
  int64_t bytes = 0;
  for (const Instance& instance : instances_) bytes += instance.env->bytes_written();
  return bytes;
}

}  // namespace tf_hps
