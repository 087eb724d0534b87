// A store: one directory on SSD and one DRAM budget, shared by its tables; owned by one process at
// a time.
//
//   <path>/FORMAT             "tf_hps store 1"
//   <path>/LOCK               locked by the owner
//   <path>/CURRENT            the number of the last commit, and its checksum
//   <path>/commits/<number>/  MANIFEST and the LevelDB files of that commit, never written again
//   <path>/live/rows-<i>/     LevelDB's working directories: thrown away and linked anew from the
//   last commit at every open
//
// So a process may be killed at any instant: what it wrote since the last commit is in live/, which
// nobody reads again.

#ifndef TF_HPS_CC_OPS_ENGINE_STORE_H_
#define TF_HPS_CC_OPS_ENGINE_STORE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc_ops/engine/background.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/snapshot.h"
#include "cc_ops/engine/store_context.h"
#include "cc_ops/engine/table_export.h"
#include "cc_ops/engine/tiered_table.h"

namespace tf_hps {

struct StoreOptions {
  // The directory; made if it is not there. Empty: a temporary one, removed when the store is
  // closed.
  std::string path;
  // Bytes of DRAM that rows, their state and the index may take, all tables together.
  int64_t dram_bytes = int64_t{2} << 30;
  // "lfu" or "lru".
  std::string eviction = "lfu";
  // Bytes of each LevelDB instance's write buffer; 0: from dram_bytes.
  int64_t write_buffer_bytes = 0;
  // Commits to keep: the last ones. The next commit remembers it. 0: as many as the commit that is
  // opened says, one in a new store.
  int64_t keep_commits = 0;
  // The commit to open at, one of Commits(); 0: the last. The next commit has the number after the
  // last. With a number the store opens even if CURRENT is damaged.
  int64_t commit = 0;
  // See StoreContext::cache_reads.
  bool cache_reads = false;
};

// What a caller asks of a table; the rest of its state is the store's.
struct TableOptions {
  std::string name;
  int dim = 0;
  std::string initializer;  // canonical spec
  int64_t seed = 0;
  std::string salt;  // empty: the name, or that of the table that is there
};

// A table under the name that identifies it in a checkpoint.
struct NamedTable {
  std::string name;
  std::shared_ptr<TieredTable> table;
};

// Thread-safe. Tables may outlive it: their operations then fail as after Close.
class Store {
 public:
  // Opens the store at its last commit. FailedPrecondition: this or another process has it open, or
  // the directory holds something else. DataLoss: damaged. PermissionDenied, ResourceExhausted,
  // ...: what the file system says, with the path.
  static absl::StatusOr<std::shared_ptr<Store>> Open(const StoreOptions& options);
  ~Store();  // closes without a commit
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& path() const { return context_->path; }

  // The table of that name, made if there is none. InvalidArgument when there is one of another
  // dim, initializer, seed or salt, or the options are no table's.
  absl::StatusOr<std::shared_ptr<TieredTable>> Attach(const TableOptions& options);

  // Forgets a table and its rows. Operations on it fail from then on.
  absl::Status Drop(TieredTable* table);

  std::vector<TableState> Tables();

  // Makes all that has been done so far durable, as one point, and returns its number. Operations
  // on rows wait while rows that changed since the last commit are written, not while files are
  // synced. All but the last `keep_commits` commits are removed.
  absl::StatusOr<int64_t> Commit(ParallelFor parallel_for = SerialFor);

  // Numbers of the commits that there are, ascending.
  std::vector<int64_t> Commits();

  // Commits if asked to and something has changed since the last commit, or since the store was
  // opened; then frees everything. Closing twice is fine. When the commit fails the store stays
  // open.
  absl::Status Close(bool commit);

  // Removes rows that no table has any more and rewrites LevelDB's files so that they hold nothing
  // else. The next commit has the smaller files.
  absl::Status Compact();

  // An iteration over the rows as they are now.
  absl::StatusOr<std::shared_ptr<TableExport>> Export(TieredTable* table);

  // "tables/<name>/<counter>" and "store/<counter>".
  std::vector<std::pair<std::string, double>> Stats();

  // Writes `tables`, all of this store, as one consistent point to files
  // "<prefix>.data-hNNNN-of-<save_id>". Files are linked where that is possible, unless the store
  // has other tables too: then these tables' rows are copied. AlreadyExists: there is a save of
  // this id.
  absl::Status Save(const std::string& prefix, const std::string& save_id,
                    absl::Span<const NamedTable> tables, ParallelFor parallel_for = SerialFor);

  // Replaces rows and state of `tables`, all of this store, by those that Save wrote. Unchanged
  // when it fails. NotFound: a name or a file is missing; DataLoss: a file is damaged;
  // InvalidArgument: another dim.
  absl::Status Restore(const std::string& prefix, const std::string& save_id,
                       absl::Span<const NamedTable> tables);

 private:
  Store(std::shared_ptr<StoreContext> context, std::unique_ptr<FileLock> lock, bool temporary);

  // store.cc
  absl::Status CheckOpen() ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  // That `table` is one of this store's, and not dropped.
  absl::Status CheckOwned(TieredTable* table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  absl::Status CheckNamedTables(absl::Span<const NamedTable> tables)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  absl::Status FlushTables(ParallelFor parallel_for) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  absl::StatusOr<std::shared_ptr<TieredTable>> AttachLocked(const TableOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);

  // store_commit.cc
  absl::Status OpenCommit(const StoreOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // The number of the commit to open; last_commit_ is set.
  absl::StatusOr<int64_t> ChooseCommit(int64_t asked_for);
  // ", it has commits 3 and 4", of those that are whole; but for one.
  std::string OtherCommits(int64_t but) const;
  // A reason why the commit cannot be opened, with what can be done about it.
  absl::Status CannotOpen(const absl::Status& status, int64_t number) const;
  Snapshot DescribeTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // Links the ssd tier's files, which must be flushed, into a new directory.
  absl::Status LinkFiles(const std::string& directory, Snapshot* snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // Makes durable those linked files that no earlier commit did.
  absl::Status SyncFiles(const std::string& directory, const Snapshot& snapshot,
                         ParallelFor parallel_for) ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mu_);
  absl::StatusOr<int64_t> PublishCommit(const std::string& directory, const Snapshot& snapshot,
                                        ParallelFor parallel_for)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mu_);
  // Takes a commit away. Its files go in the background.
  absl::Status RemoveCommit(int64_t number);
  // Removes all but the last `count` commits, and what is left of those that did not come about.
  void RetainCommits(int64_t count);
  std::string CommitDirectory(int64_t number) const;
  std::string LiveDirectory() const;
  std::string NewLiveDirectory(absl::string_view purpose);
  std::vector<int64_t> WholeCommits() const;  // up to the last

  // store_checkpoint.cc
  absl::Status SaveCopies(const std::string& prefix, const std::string& save_id,
                          const std::string& directory, Snapshot* snapshot)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mu_);
  absl::StatusOr<std::vector<TableState>> MatchTables(const Snapshot& snapshot,
                                                      absl::Span<const NamedTable> tables);
  // Two ways to restore: take the files over, where they make up the whole store, or copy rows.
  absl::Status Adopt(std::unique_ptr<SsdTier> staged, const Snapshot& snapshot,
                     absl::Span<const TableState> states, absl::Span<const NamedTable> tables)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mu_);
  absl::Status Ingest(SsdTier* from, absl::Span<const TableState> states,
                      absl::Span<const NamedTable> tables)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  void CancelExports() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);

  const std::shared_ptr<StoreContext> context_;
  std::unique_ptr<FileLock> lock_ ABSL_GUARDED_BY(context_->gate);
  const bool temporary_;

  // Held by what makes or takes over files, one at a time: commit, save, restore, close. Before the
  // gate.
  Mutex files_mu_;
  SsdOptions ssd_options_;  // changes under files_mu_ and the gate
  std::set<std::string> synced_files_ ABSL_GUARDED_BY(files_mu_);  // FilePath("", file) of each
  int64_t synced_reopenings_ ABSL_GUARDED_BY(files_mu_) = 0;  // of the tier that has these files
  int64_t keep_commits_ = 1;
  std::atomic<int64_t> next_live_directory_{0};
  std::atomic<int64_t> last_commit_{0};

  uint32_t next_table_id_ ABSL_GUARDED_BY(context_->gate) = 1;
  // Changed only in exclusive mode.
  std::map<std::string, std::shared_ptr<TieredTable>> tables_ ABSL_GUARDED_BY(context_->gate);
  std::vector<std::weak_ptr<TableExport>> exports_ ABSL_GUARDED_BY(context_->gate);

  // Removes the files of former commits: freeing what they take on disk takes its time.
  std::unique_ptr<Background> removals_ = std::make_unique<Background>("tf_hps_remove");
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_STORE_H_
