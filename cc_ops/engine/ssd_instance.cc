#include "cc_ops/engine/ssd_instance.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/ldb_bloom.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

// Of a table file: small ones make short compactions, but a commit has to link each of them.
constexpr int64_t kMinFileBytes = 8 << 20;
constexpr int64_t kMaxFileBytes = 256 << 20;
constexpr int64_t kFilesWanted = 256;
// What an entry takes in LevelDB's write buffer besides its key and value.
constexpr int64_t kEntryOverhead = 40;

// When a level has outgrown its size. LevelDB's own limits, which are no options, are 4 files in
// level 0 and 10 MiB in level 1; but compactions that begin later merge more at a time (4 bytes
// written for each byte of a row instead of 9, measured at 10 million rows), and to look into more
// files costs little with bloom filters. At 12 files in level 0 LevelDB lets writers wait.
constexpr int kLevel0Files = 8;
constexpr double kLevel1MiB = 80;
constexpr double kLevelGrowth = 10;

// Whether a line of LevelDB's "leveldb.stats" tells of a level that has outgrown its size.
bool LevelIsTooLarge(const std::string& line) {
  int level, files;
  double mib;  // rounded
  if (std::sscanf(line.c_str(), "%d %d %lf", &level, &files, &mib) != 3) return false;
  return level == 0 ? files >= kLevel0Files : mib > kLevel1MiB * std::pow(kLevelGrowth, level - 1);
}

// Of all table files in a directory, as far as they can be seen.
int64_t TableBytes(const std::string& directory) {
  int64_t bytes = 0;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, ".ldb")) continue;
    const absl::StatusOr<int64_t> size = FileSize(JoinPath(directory, name));
    if (size.ok()) bytes += *size;
  }
  return bytes;
}

leveldb::ReadOptions CheckedRead() {
  leveldb::ReadOptions options;
  options.verify_checksums = true;
  return options;
}

}  // namespace

void SsdWrites::Remember(const SsdKey& key, size_t value_bytes) {
  keys_.push_back(key);
  bytes_ += static_cast<int64_t>(kSsdKeyBytes + value_bytes) + kEntryOverhead;
}

void SsdWrites::Put(const SsdKey& key, absl::string_view value) {
  char entry[kSsdKeyBytes];
  WriteSsdKey(key.table_id, key.key, entry);
  batch_.Put(leveldb::Slice(entry, kSsdKeyBytes), leveldb::Slice(value.data(), value.size()));
  Remember(key, value.size());
}

void SsdWrites::Remove(const SsdKey& key) {
  char entry[kSsdKeyBytes];
  WriteSsdKey(key.table_id, key.key, entry);
  batch_.Delete(leveldb::Slice(entry, kSsdKeyBytes));
  Remember(key, 0);
}

void SsdWrites::Clear() {
  batch_.Clear();
  keys_.clear();
  bytes_ = 0;
}

SsdInstance::SsdInstance(const std::string& directory, const Options& options)
    : directory_(directory),
      options_(options),
      filter_(leveldb::NewBloomFilterPolicy(kSsdBloomBitsPerKey)),
      cache_(leveldb::NewLRUCache(0)) {
  env_.RunWorkWhen([this] { return WorkIsDue(); });
}

SsdInstance::~SsdInstance() {
  MutexLock lock(&write_mu_);
  CloseDatabase();
}

absl::StatusOr<std::unique_ptr<SsdInstance>> SsdInstance::Open(const std::string& directory,
                                                               const Options& options) {
  TF_HPS_RETURN_IF_ERROR(CreateDirectories(directory));
  auto instance = std::unique_ptr<SsdInstance>(new SsdInstance(directory, options));
  MutexLock lock(&instance->write_mu_);
  TF_HPS_ASSIGN_OR_RETURN(std::shared_ptr<leveldb::DB> opened, instance->OpenDatabase());
  instance->Publish(std::move(opened), SsdWrites());
  return instance;
}

absl::StatusOr<std::shared_ptr<leveldb::DB>> SsdInstance::OpenDatabase() {
  leveldb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.env = env_.env();
  // Out of reach: SwitchBuffer() decides when a buffer is full, so as to know what LevelDB has in
  // files, and what work waits.
  options.write_buffer_size = 1 << 30;
  options.max_open_files = 0;  // as few as it can do with: it only compacts and scans
  options.block_cache = cache_.get();
  options.block_size = kSsdBlockBytes;
  options.max_file_size = static_cast<size_t>(
      std::clamp(TableBytes(directory_) / kFilesWanted, kMinFileBytes, kMaxFileBytes));
  options.compression = leveldb::kNoCompression;
  options.filter_policy = filter_.get();
  leveldb::DB* db = nullptr;
  TF_HPS_RETURN_IF_ERROR(ToStatus(leveldb::DB::Open(options, directory_, &db), "open"));
  return std::shared_ptr<leveldb::DB>(db);
}

bool SsdInstance::WorkIsDue() {
  if (work_waiters_ > 0 || buffer_waits_.exchange(false)) return true;
  const std::shared_ptr<leveldb::DB> database = db();
  std::string stats;
  if (database == nullptr || !database->GetProperty("leveldb.stats", &stats)) return true;
  const std::vector<std::string> lines = absl::StrSplit(stats, '\n');
  return std::any_of(lines.begin(), lines.end(), LevelIsTooLarge);
}

void SsdInstance::Publish(std::shared_ptr<leveldb::DB> database, const SsdWrites& buffered) {
  MutexLock lock(&db_mu_);
  db_ = std::move(database);
  filling_keys_ = KeySet(buffered.keys_.begin(), buffered.keys_.end());
  flushing_keys_.clear();
  --work_waiters_;
}

std::shared_ptr<leveldb::DB> SsdInstance::db() {
  MutexLock lock(&db_mu_);
  return db_;
}

absl::Status SsdInstance::ToStatus(const leveldb::Status& status, absl::string_view action) const {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  const std::string message = absl::StrCat("cannot ", action, " ", directory_, ": ", text);
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (absl::StrContains(text, "No space left") || absl::StrContains(text, "quota exceeded") ||
      absl::StrContains(text, "Too many open files")) {
    return absl::ResourceExhaustedError(message);
  }
  if (absl::StrContains(text, "Permission denied")) return absl::PermissionDeniedError(message);
  if (status.IsNotFound()) return absl::NotFoundError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<std::shared_ptr<leveldb::DB>> SsdInstance::OpenedDatabase() {
  std::shared_ptr<leveldb::DB> database = db();
  if (database == nullptr) {
    MutexLock lock(&write_mu_);
    if (stuck_) TF_HPS_RETURN_IF_ERROR(Reopen());
    database = db();
  }
  return database;
}

absl::Status SsdInstance::Read(absl::string_view action,
                               absl::FunctionRef<leveldb::Status(leveldb::DB* db)> read) {
  TF_HPS_ASSIGN_OR_RETURN(const std::shared_ptr<leveldb::DB> database, OpenedDatabase());
  return ToStatus(read(database.get()), action);
}

absl::Status SsdInstance::Get(
    absl::Span<const SsdKey> keys,
    absl::FunctionRef<absl::Status(int64_t i, absl::string_view value)> found) {
  std::vector<bool> done(keys.size());
  const auto once = [&](int64_t i, bool removed, absl::string_view value) -> absl::Status {
    if (done[i]) return absl::OkStatus();  // by an attempt that lost a file to a compaction
    done[i] = true;
    return removed ? absl::OkStatus() : found(i, value);
  };
  for (std::shared_ptr<const LevelFiles> former;;) {
    TF_HPS_ASSIGN_OR_RETURN(std::shared_ptr<leveldb::DB> database, OpenedDatabase());
    std::shared_ptr<const LevelFiles> files;
    std::vector<int32_t> in_memory, on_disk;
    {
      MutexLock lock(&db_mu_);
      if (db_ == nullptr) continue;
      database = db_;
      files = env_.files();
      for (size_t i = 0; i < keys.size(); ++i) {
        const bool buffered = filling_keys_.contains(keys[i]) || flushing_keys_.contains(keys[i]);
        (buffered ? &in_memory : &on_disk)->push_back(static_cast<int32_t>(i));
      }
    }
    if (files == nullptr) {
      return absl::DataLossError(absl::StrCat(directory_, " has keys that are none of tf_hps's"));
    }
    for (const int32_t i : in_memory) {
      std::string value;
      const leveldb::Status status =
          database->Get(CheckedRead(), EncodeSsdKey(keys[i].table_id, keys[i].key), &value);
      if (!status.ok() && !status.IsNotFound()) return ToStatus(status, "read a row from");
      TF_HPS_RETURN_IF_ERROR(once(i, status.IsNotFound(), value));
    }
    database.reset();
    const absl::Status status = FindInFiles(*files, keys, std::move(on_disk), once);
    // A file that LevelDB does not have any more either has been compacted into others.
    if (!absl::IsNotFound(status) || files == former) return status;
    former = files;
  }
}

absl::Status SsdInstance::FindInFiles(const LevelFiles& files, absl::Span<const SsdKey> keys,
                                      std::vector<int32_t> wanted, EntryFound found) {
  std::vector<uint32_t> hashes(keys.size());
  for (const int32_t i : wanted) hashes[i] = BloomHash(keys[i]);
  for (int level = 0; level < kLdbLevels && !wanted.empty(); ++level) {
    const absl::Span<const std::shared_ptr<const LevelFile>> of_level = files.levels[level];
    const size_t step = level == 0 ? 1 : of_level.size();  // those of level 0 overlap
    for (size_t i = 0; i < of_level.size() && !wanted.empty(); i += step) {
      TF_HPS_RETURN_IF_ERROR(FindInLevel(of_level.subspan(i, step), keys, hashes, found, &wanted));
    }
  }
  CloseUnusedReaders(files);
  return absl::OkStatus();
}

absl::Status SsdInstance::FindInLevel(absl::Span<const std::shared_ptr<const LevelFile>> files,
                                      absl::Span<const SsdKey> keys,
                                      absl::Span<const uint32_t> hashes, EntryFound found,
                                      std::vector<int32_t>* wanted) {
  const TableReadContext context = {filter_.get(), env_.read_counter()};
  const int64_t now = read_clock_.fetch_add(1, std::memory_order_relaxed);
  std::vector<int32_t> missing;
  std::vector<TableReader::Deferred> deferred;
  auto rest = wanted->begin();
  for (const auto& file : files) {
    const auto begin =
        std::lower_bound(rest, wanted->end(), file->smallest,
                         [&](int32_t i, const SsdKey& key) { return keys[i] < key; });
    const auto end = std::upper_bound(begin, wanted->end(), file->largest,
                                      [&](const SsdKey& key, int32_t i) { return key < keys[i]; });
    missing.insert(missing.end(), rest, begin);
    rest = end;
    if (begin == end) continue;
    const std::string path = JoinPath(directory_, absl::StrFormat("%06d.ldb", file->number));
    TF_HPS_ASSIGN_OR_RETURN(const auto reader, file->slot.Get(path, file->bytes, context));
    file->slot.last_use.store(now, std::memory_order_relaxed);
    const absl::Span<const int32_t> in_file(&*begin, static_cast<size_t>(end - begin));
    TF_HPS_RETURN_IF_ERROR(reader->Find(keys, hashes, in_file, found, &missing, &deferred));
  }
  missing.insert(missing.end(), rest, wanted->end());
  TF_HPS_RETURN_IF_ERROR(TableReader::Finish(deferred, keys, found, &missing));
  if (!std::is_sorted(missing.begin(), missing.end())) std::sort(missing.begin(), missing.end());
  *wanted = std::move(missing);
  return absl::OkStatus();
}

void SsdInstance::CloseUnusedReaders(const LevelFiles& files) {
  std::vector<std::pair<int64_t, const LevelFile*>> open;
  for (const auto& level : files.levels) {
    for (const auto& file : level) {
      if (file->slot.is_open()) open.emplace_back(file->slot.last_use, file.get());
    }
  }
  if (open.size() <= static_cast<size_t>(options_.max_open_files)) return;
  const auto kept = open.end() - options_.max_open_files;
  std::nth_element(open.begin(), kept, open.end());
  for (auto it = open.begin(); it != kept; ++it) it->second->slot.Close();
}

absl::Status SsdInstance::Write(SsdWrites* writes) {
  MutexLock lock(&write_mu_);
  return Run([&]() -> absl::Status {
    write_mu_.AssertHeld();
    if (filling_bytes_ >= options_.write_buffer_bytes) TF_HPS_RETURN_IF_ERROR(SwitchBuffer());
    return WriteLocked(writes);
  });
}

absl::Status SsdInstance::WriteLocked(SsdWrites* writes) {
  const leveldb::Status status = db()->Write(leveldb::WriteOptions(), &writes->batch_);
  if (!status.ok()) stuck_ = true;
  TF_HPS_RETURN_IF_ERROR(ToStatus(status, "write rows to"));
  NoteWritten(*writes);
  return absl::OkStatus();
}

void SsdInstance::NoteWritten(const SsdWrites& writes) {
  MutexLock lock(&db_mu_);
  filling_keys_.insert(writes.keys_.begin(), writes.keys_.end());
  filling_bytes_ += writes.bytes_;
  buffered_bytes_.fetch_add(writes.bytes_, std::memory_order_relaxed);
}

absl::Status SsdInstance::SwitchBuffer() {
  // A write of no batch makes LevelDB start a new buffer, once the one before the present is in a
  // file.
  const leveldb::Status status = db()->Write(leveldb::WriteOptions(), nullptr);
  if (!status.ok()) stuck_ = true;
  TF_HPS_RETURN_IF_ERROR(ToStatus(status, "write buffered rows to"));
  // LevelDB writes the buffer before it does anything else.
  buffer_waits_ = true;
  env_.ReconsiderWork();
  buffered_bytes_.store(filling_bytes_, std::memory_order_relaxed);
  filling_bytes_ = 0;
  MutexLock lock(&db_mu_);
  flushing_keys_.clear();
  flushing_keys_.swap(filling_keys_);
  return absl::OkStatus();
}

absl::Status SsdInstance::StartFlush() {
  MutexLock lock(&write_mu_);
  return Run([&] {
    write_mu_.AssertHeld();
    return SwitchBuffer();
  });
}

absl::Status SsdInstance::Flush() {
  MutexLock lock(&write_mu_);
  return Run([&] {
    write_mu_.AssertHeld();
    return FlushLocked();
  });
}

absl::Status SsdInstance::FlushLocked() {
  TF_HPS_RETURN_IF_ERROR(SwitchBuffer());
  return SwitchBuffer();
}

absl::Status SsdInstance::Compact() {
  ++work_waiters_;
  env_.ReconsiderWork();
  const auto done = absl::MakeCleanup([this] { --work_waiters_; });
  absl::Status status;
  for (int tries = 0; tries < 2; ++tries) {
    // LevelDB rewrites files as it merges a level with the one below. Of the lowest level it then
    // rewrites those that a file above overlaps: one from the first to the last key there could be.
    SsdWrites everywhere;
    everywhere.Remove({0, INT64_MIN});
    everywhere.Remove({UINT32_MAX, INT64_MAX});
    TF_HPS_RETURN_IF_ERROR(Write(&everywhere));
    TF_HPS_RETURN_IF_ERROR(Flush());
    const std::weak_ptr<leveldb::DB> compacted = db();
    TF_HPS_RETURN_IF_ERROR(Read("compact", [](leveldb::DB* db) {
      db->CompactRange(nullptr, nullptr);
      return leveldb::Status::OK();
    }));
    MutexLock lock(&write_mu_);
    // LevelDB tells of a compaction that failed when it is next written to; here, unless another
    // writer was told.
    status = compacted.expired() ? absl::UnavailableError(absl::StrCat(
                                       "cannot compact ", directory_,
                                       ": a write failed meanwhile, and LevelDB was opened anew"))
                                 : SwitchBuffer();
    if (status.ok() || absl::IsDataLoss(status)) break;
  }
  return status;
}

absl::Status SsdInstance::Run(absl::FunctionRef<absl::Status()> write) {
  const bool was_stuck = stuck_;
  if (was_stuck) TF_HPS_RETURN_IF_ERROR(Recover());
  const absl::Status status = write();
  // What LevelDB tells is the error of an earlier background write, which may have gone by. That a
  // file is damaged does not go by, and a cursor would refuse to let LevelDB be opened anew.
  if (status.ok() || was_stuck || absl::IsDataLoss(status) || cursors_ > 0) return status;
  TF_HPS_RETURN_IF_ERROR(Recover());
  return write();
}

absl::Status SsdInstance::Recover() {
  TF_HPS_RETURN_IF_ERROR(Reopen());
  // Else a write would succeed again and again in memory only.
  return FlushLocked();
}

absl::Status SsdInstance::Reopen() {
  if (db() != nullptr) {
    TF_HPS_RETURN_IF_ERROR(Salvage());
    CloseDatabase();
  }
  std::shared_ptr<leveldb::DB> opened;
  // So that a compaction that fails at once does not keep the rows from being written.
  env_.HoldWork();
  const auto release = absl::MakeCleanup([this] { env_.ReleaseWork(); });
  TF_HPS_ASSIGN_OR_RETURN(opened, OpenDatabase());
  // In one batch: before another one LevelDB might wait for its background work.
  TF_HPS_RETURN_IF_ERROR(
      ToStatus(opened->Write(leveldb::WriteOptions(), &salvaged_.batch_), "write rows to"));
  ++reopenings_;
  // Only now that it has all rows may lookups see it.
  Publish(std::move(opened), salvaged_);
  filling_bytes_ = salvaged_.bytes_;
  buffered_bytes_.store(filling_bytes_, std::memory_order_relaxed);
  salvaged_.Clear();
  stuck_ = false;
  return absl::OkStatus();
}

void SsdInstance::CloseDatabase() {
  std::shared_ptr<leveldb::DB> closing;
  {
    MutexLock lock(&db_mu_);
    closing = std::move(db_);
  }
  ++work_waiters_;  // LevelDB waits for its work when it is closed
  env_.ReconsiderWork();
  // Lookups under way, or a cursor that goes away just now, hold it for a moment more.
  while (closing.use_count() > 1) std::this_thread::yield();
}

absl::Status SsdInstance::Salvage() {
  if (cursors_ > 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot write rows to ", directory_,
                     ": a write failed before, and LevelDB cannot be opened anew while an export "
                     "goes on. End it and try again"));
  }
  const std::shared_ptr<leveldb::DB> database = db();
  KeySet keys;
  {
    MutexLock lock(&db_mu_);
    keys = filling_keys_;
    keys.insert(flushing_keys_.begin(), flushing_keys_.end());
  }
  SsdWrites rows;
  std::string value;
  for (const SsdKey& key : keys) {
    const leveldb::Status status =
        database->Get(CheckedRead(), EncodeSsdKey(key.table_id, key.key), &value);
    if (status.ok()) {
      rows.Put(key, value);
    } else if (status.IsNotFound()) {
      rows.Remove(key);
    } else {
      return ToStatus(status, "read a row from");
    }
  }
  salvaged_ = std::move(rows);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SsdInstance::Cursor>> SsdInstance::NewCursor() {
  MutexLock lock(&write_mu_);
  if (stuck_) TF_HPS_RETURN_IF_ERROR(Reopen());
  return std::unique_ptr<Cursor>(new Cursor(this, db()));
}

SsdInstance::Cursor::Cursor(SsdInstance* instance, std::shared_ptr<leveldb::DB> db)
    : instance_(instance), db_(std::move(db)), snapshot_(db_->GetSnapshot()) {
  leveldb::ReadOptions options = CheckedRead();
  options.fill_cache = false;
  options.snapshot = snapshot_;
  iterator_.reset(db_->NewIterator(options));
  ++instance_->cursors_;
}

SsdInstance::Cursor::~Cursor() {
  iterator_.reset();
  db_->ReleaseSnapshot(snapshot_);
  --instance_->cursors_;
}

absl::Status SsdInstance::Cursor::status() const {
  return instance_->ToStatus(iterator_->status(), "read");
}

}  // namespace tf_hps
