// One LevelDB instance of the ssd tier, and what it takes to go on after a failed write.
//
// LevelDB refuses all writes once one of its background writes has failed, until it is opened
// again; and as it keeps no log here (ssd_env.h), the rows in its write buffers would be lost by
// that. So an instance remembers the keys of the rows that LevelDB may not have in a file yet. When
// LevelDB is stuck it takes those rows out of LevelDB's memory, opens it anew and writes them
// again. An operation that meets LevelDB stuck does this and is tried once more. While that does
// not succeed (a full disk) the rows are kept, and every write returns the error.

#ifndef TF_HPS_CC_OPS_ENGINE_SSD_INSTANCE_H_
#define TF_HPS_CC_OPS_ENGINE_SSD_INSTANCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc_ops/engine/level_files.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/ssd_env.h"
#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

namespace tf_hps {

inline constexpr int kSsdBloomBitsPerKey = 10;
inline constexpr size_t kSsdBlockBytes = 2048;

// Rows are read from LevelDB's files directly (table_reader.h), those that are still in its memory
// aside. LevelDB's own Get costs twice as much, and it compacts files through which many a Get had
// to look further, which keeps it busy for good where reads are spread over all rows: 25 times what
// was written instead of 4, measured at 10 million rows. For the same reason LevelDB's background
// work runs only when there is a buffer to be written or a level has outgrown its size.

// Entries to be written to an instance together.
class SsdWrites {
 public:
  void Put(const SsdKey& key, absl::string_view value);
  void Remove(const SsdKey& key);
  void Clear();
  bool empty() const { return keys_.empty(); }
  int64_t bytes() const { return bytes_; }
  int64_t entries() const { return static_cast<int64_t>(keys_.size()); }

 private:
  friend class SsdInstance;
  void Remember(const SsdKey& key, size_t value_bytes);

  leveldb::WriteBatch batch_;
  std::vector<SsdKey> keys_;
  int64_t bytes_ = 0;  // in LevelDB's write buffer
};

// Thread-safe. Errors name the directory.
class SsdInstance {
 public:
  struct Options {
    int64_t write_buffer_bytes;
    int max_open_files;  // for reading rows
  };

  static absl::StatusOr<std::unique_ptr<SsdInstance>> Open(const std::string& directory,
                                                           const Options& options);
  ~SsdInstance();  // after its cursors
  SsdInstance(const SsdInstance&) = delete;
  SsdInstance& operator=(const SsdInstance&) = delete;

  const std::string& directory() const { return directory_; }
  // How often LevelDB was opened anew. It may have used names of files again then.
  int64_t reopenings() const { return reopenings_.load(); }
  SsdEnv* env() { return &env_; }
  // In LevelDB's write buffers; some of it may be in a file already.
  int64_t buffered_bytes() const { return buffered_bytes_.load(std::memory_order_relaxed); }

  // Calls read(db) while the database stays open. `read` says what LevelDB said.
  absl::Status Read(absl::string_view action,
                    absl::FunctionRef<leveldb::Status(leveldb::DB* db)> read);

  // Calls found(i, value) for those of `keys`, which ascend, that have a value.
  absl::Status Get(absl::Span<const SsdKey> keys,
                   absl::FunctionRef<absl::Status(int64_t i, absl::string_view value)> found);

  // Writes all of the batch or nothing.
  absl::Status Write(SsdWrites* writes);

  // Puts all that was written so far into files.
  absl::Status Flush();
  // Half of that: starts to put it into a file, once the file that was started before is there.
  absl::Status StartFlush();

  // Rewrites the files without what was overwritten or removed.
  absl::Status Compact();

  // An iterator over a snapshot. LevelDB cannot be opened anew while there are any: writes then
  // fail instead.
  class Cursor {
   public:
    ~Cursor();
    leveldb::Iterator* operator->() { return iterator_.get(); }
    absl::Status status() const;

   private:
    friend class SsdInstance;
    Cursor(SsdInstance* instance, std::shared_ptr<leveldb::DB> db);
    SsdInstance* const instance_;
    const std::shared_ptr<leveldb::DB> db_;
    const leveldb::Snapshot* const snapshot_;
    std::unique_ptr<leveldb::Iterator> iterator_;
  };
  absl::StatusOr<std::unique_ptr<Cursor>> NewCursor();

  absl::Status ToStatus(const leveldb::Status& status, absl::string_view action) const;

 private:
  using KeySet = absl::flat_hash_set<SsdKey>;

  SsdInstance(const std::string& directory, const Options& options);
  absl::StatusOr<std::shared_ptr<leveldb::DB>> OpenDatabase();
  // Whether LevelDB's background work is worth doing now. The background thread asks.
  bool WorkIsDue();
  // Lets readers have it. `buffered` is what its memory holds.
  void Publish(std::shared_ptr<leveldb::DB> database, const SsdWrites& buffered)
      ABSL_LOCKS_EXCLUDED(db_mu_);
  // Waits for whoever uses the database: no cursor may stay.
  void CloseDatabase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Calls `write`, which may find that LevelDB is stuck: then recovers, and calls it again.
  absl::Status Run(absl::FunctionRef<absl::Status()> write)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  // Opens LevelDB anew and puts the rows that it had in memory into a file.
  absl::Status Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status Reopen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status Salvage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status SwitchBuffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  absl::Status WriteLocked(SsdWrites* writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  void NoteWritten(const SsdWrites& writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_);
  std::shared_ptr<leveldb::DB> db() ABSL_LOCKS_EXCLUDED(db_mu_);
  // db(), opened anew if it is stuck.
  absl::StatusOr<std::shared_ptr<leveldb::DB>> OpenedDatabase() ABSL_LOCKS_EXCLUDED(write_mu_);
  absl::Status FindInFiles(const LevelFiles& files, absl::Span<const SsdKey> keys,
                           std::vector<int32_t> wanted, EntryFound found);
  absl::Status FindInLevel(absl::Span<const std::shared_ptr<const LevelFile>> files,
                           absl::Span<const SsdKey> keys, absl::Span<const uint32_t> hashes,
                           EntryFound found, std::vector<int32_t>* wanted);
  void CloseUnusedReaders(const LevelFiles& files);

  const std::string directory_;
  const Options options_;
  SsdEnv env_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  const std::unique_ptr<leveldb::Cache> cache_;  // of nothing: LevelDB only compacts and scans

  Mutex write_mu_;  // one writer at a time
  int64_t filling_bytes_ ABSL_GUARDED_BY(write_mu_) = 0;
  SsdWrites salvaged_ ABSL_GUARDED_BY(write_mu_);
  bool stuck_ ABSL_GUARDED_BY(write_mu_) = false;
  std::atomic<int> cursors_{0};
  std::atomic<int64_t> reopenings_{0};
  std::atomic<int64_t> buffered_bytes_{0};
  std::atomic<bool> buffer_waits_{false};  // for being written to a file
  // Of those who need LevelDB's work to go on, whatever it is: none of them while a database is
  // open and not compacted by hand.
  std::atomic<int> work_waiters_{1};

  Mutex db_mu_;  // after write_mu_
  std::shared_ptr<leveldb::DB> db_ ABSL_GUARDED_BY(db_mu_);
  // Keys of rows that may be in LevelDB's memory only: in the buffer being filled, and in the one
  // before. They change under write_mu_ too.
  KeySet filling_keys_ ABSL_GUARDED_BY(db_mu_);
  KeySet flushing_keys_ ABSL_GUARDED_BY(db_mu_);
  std::atomic<int64_t> read_clock_{0};
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SSD_INSTANCE_H_
