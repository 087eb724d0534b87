// Opening a store at its last commit, and making commits.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/engine/store_files.h"

namespace tf_hps {
namespace {

// An empty file that says that nobody wants the store when its process has ended.
constexpr absl::string_view kTemporary = "TEMPORARY";

// A directory that is empty but for what a store leaves that died while it was being made.
absl::StatusOr<bool> IsFresh(const std::string& path) {
  TF_HPS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "LOCK" || name == kTemporary || name == "CURRENT" || name == "CURRENT.tmp" ||
           name == "FORMAT.tmp";
  });
}

absl::Status CheckFormat(const std::string& path) {
  const std::string format_path = JoinPath(path, "FORMAT");
  if (!PathExists(format_path)) {
    TF_HPS_ASSIGN_OR_RETURN(const bool fresh, IsFresh(path));
    if (fresh) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is neither empty nor a tf_hps store (it has no file FORMAT); give the "
                     "path of a new directory or of a store"));
  }
  return CheckFormatFile(path);
}

// Makes a new directory a store: CURRENT first, so that a store without it is known to be damaged.
absl::Status MakeStore(const std::string& path) {
  if (PathExists(JoinPath(path, "FORMAT"))) return absl::OkStatus();
  TF_HPS_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(path, "CURRENT"), CurrentText(0)));
  return WriteFileAtomically(JoinPath(path, "FORMAT"), kStoreFormat);
}

absl::StatusOr<std::unique_ptr<FileLock>> LockStore(const std::string& path) {
  absl::StatusOr<std::unique_ptr<FileLock>> lock = FileLock::Acquire(JoinPath(path, "LOCK"));
  if (lock.ok() || !absl::IsFailedPrecondition(lock.status())) return lock;
  return absl::FailedPreconditionError(
      absl::StrCat("the store is open already: ", lock.status().message(), " (this is process ",
                   ::getpid(), "). Close it there first, or, in the same process, use that Store"));
}

// Removes temporary stores whose process was killed. What cannot be removed is left to others.
void RemoveAbandonedStores() {
  const std::string parent = TemporaryParent();
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(parent);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(parent, name);
    if (!absl::StartsWith(name, kTemporaryPrefix)) continue;
    if (!PathExists(JoinPath(path, kTemporary)) || !PathExists(JoinPath(path, "FORMAT"))) continue;
    if (LockStore(path).ok()) RemoveTree(path).IgnoreError();
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<Store>> Store::Open(const StoreOptions& options) {
  if (options.dram_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dram_bytes must not be negative, got ", options.dram_bytes));
  }
  TF_HPS_ASSIGN_OR_RETURN(const EvictionPolicy eviction, EvictionPolicy::Parse(options.eviction));
  const bool temporary = options.path.empty();
  std::string path = options.path;
  if (temporary) {
    RemoveAbandonedStores();
    TF_HPS_ASSIGN_OR_RETURN(path, MakeTemporaryDirectory());
  } else {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(path));
  }
  auto discard = absl::MakeCleanup([&] {
    if (temporary) RemoveTree(path).IgnoreError();
  });
  TF_HPS_ASSIGN_OR_RETURN(path, CanonicalPath(path));
  TF_HPS_RETURN_IF_ERROR(CheckFormat(path));
  TF_HPS_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, LockStore(path));
  if (temporary) {
    TF_HPS_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(path, kTemporary), ""));
  }
  TF_HPS_RETURN_IF_ERROR(MakeStore(path));
  auto context =
      std::make_shared<StoreContext>(path, options.dram_bytes, eviction, options.cache_reads);
  auto store = std::shared_ptr<Store>(new Store(context, std::move(lock), temporary));
  ExclusivePass pass(&store->context_->gate);
  TF_HPS_RETURN_IF_ERROR(store->OpenCommit(options));
  std::move(discard).Cancel();
  return store;
}

std::string Store::CommitDirectory(int64_t number) const { return CommitPath(path(), number); }

std::string Store::LiveDirectory() const { return JoinPath(path(), "live"); }

std::string Store::NewLiveDirectory(absl::string_view purpose) {
  return JoinPath(LiveDirectory(), absl::StrCat(purpose, "-", next_live_directory_++));
}

std::vector<int64_t> Store::WholeCommits() const {
  std::vector<int64_t> numbers = ListCommits(path());
  const auto is_none = [this](int64_t number) {
    return number > last_commit_ || !PathExists(ManifestPath(path(), number));
  };
  numbers.erase(std::remove_if(numbers.begin(), numbers.end(), is_none), numbers.end());
  return numbers;
}

std::string Store::OtherCommits(int64_t but) const {
  std::vector<int64_t> numbers = WholeCommits();
  numbers.erase(std::remove(numbers.begin(), numbers.end(), but), numbers.end());
  if (numbers.empty()) return "";
  const std::string number = absl::StrCat(numbers.back());
  numbers.pop_back();
  return numbers.empty()
             ? absl::StrCat(", it has commit ", number)
             : absl::StrCat(", it has commits ", absl::StrJoin(numbers, ", "), " and ", number);
}

absl::StatusOr<int64_t> Store::ChooseCommit(int64_t asked_for) {
  const absl::StatusOr<int64_t> current = ReadCurrent(path());
  last_commit_ = INT64_MAX;  // so that all there are count
  if (current.ok()) {
    last_commit_ = *current;
  } else if (const std::vector<int64_t> whole = WholeCommits(); asked_for > 0 && !whole.empty()) {
    // A commit that has its manifest is whole, whatever CURRENT says.
    last_commit_ = whole.back();
  } else {
    return CannotOpen(current.status(), 0);
  }
  if (asked_for == 0) return last_commit_;
  if (asked_for <= last_commit_ && PathExists(ManifestPath(path(), asked_for))) return asked_for;
  const std::string others = OtherCommits(asked_for);
  return absl::NotFoundError(absl::StrCat("store ", path(), " has no commit ", asked_for,
                                          " (any more)",
                                          others.empty() ? ", and no other" : others));
}

absl::Status Store::CannotOpen(const absl::Status& status, int64_t number) const {
  if (!absl::IsDataLoss(status) && !absl::IsNotFound(status)) return status;
  const std::string others = OtherCommits(number);
  return absl::Status(
      status.code(),
      absl::StrCat("store ", path(), " cannot be opened",
                   number > 0 ? absl::StrCat(" at commit ", number) : "", ": ", status.message(),
                   ". `tf-hps verify ", path(), "` lists all that is damaged",
                   others.empty() ? "" : others + "; commit=<number> opens one of them"));
}

absl::Status Store::OpenCommit(const StoreOptions& options) {
  TF_HPS_ASSIGN_OR_RETURN(const int64_t number, ChooseCommit(options.commit));
  TF_HPS_RETURN_IF_ERROR(RemoveTree(LiveDirectory()));
  const std::string directory = NewLiveDirectory("rows");
  TF_HPS_RETURN_IF_ERROR(CreateDirectories(directory));
  Snapshot snapshot;
  const auto open_files = [&]() -> absl::Status {
    context_->gate.AssertExclusive();
    snapshot.instances = DefaultInstances();
    if (number > 0) {
      TF_HPS_ASSIGN_OR_RETURN(snapshot, Snapshot::Read(ManifestPath(path(), number)));
      TF_HPS_RETURN_IF_ERROR(snapshot.RestoreFiles(CommitDirectory(number), directory));
    }
    ssd_options_ =
        SsdOptionsFor(options.dram_bytes, options.write_buffer_bytes, snapshot.instances);
    absl::StatusOr<std::shared_ptr<SsdTier>> ssd = SsdTier::Open(directory, ssd_options_);
    if (ssd.ok()) context_->ssd = *std::move(ssd);
    // The live directory is gone when somebody looks: it is the commit's file that is meant.
    return absl::Status(
        ssd.status().code(),
        absl::StrReplaceAll(ssd.status().message(), {{directory, CommitDirectory(number)}}));
  };
  if (const absl::Status status = open_files(); !status.ok()) {
    RemoveTree(LiveDirectory()).IgnoreError();
    return CannotOpen(status, number);
  }
  context_->ChoosePartitions(snapshot.instances);
  context_->dense_step = snapshot.dense_step;
  next_table_id_ = snapshot.next_table_id;
  for (const Snapshot::Table& table : snapshot.tables) {
    TF_HPS_ASSIGN_OR_RETURN(tables_[table.state.name], TieredTable::Create(context_, table.state));
  }
  keep_commits_ =
      options.keep_commits > 0 ? options.keep_commits : std::max<int64_t>(snapshot.keep_commits, 1);
  RetainCommits(INT64_MAX);  // who only opens a store loses none
  return absl::OkStatus();
}

std::vector<int64_t> Store::Commits() {
  SharedPass pass(&context_->gate);
  return WholeCommits();
}

absl::Status Store::RemoveCommit(int64_t number) {
  // The manifest first, and for good: a commit that has one is whole, even if the power fails now.
  const std::string directory = CommitDirectory(number);
  TF_HPS_RETURN_IF_ERROR(RemoveTree(ManifestPath(path(), number)));
  TF_HPS_RETURN_IF_ERROR(SyncDirectory(directory));
  // Out of the way at once, as the next commit may need the name.
  const std::string removed = NewLiveDirectory("removed");
  TF_HPS_RETURN_IF_ERROR(Rename(directory, removed));
  removals_->Schedule([removed] { RemoveTree(removed).IgnoreError(); });
  return absl::OkStatus();
}

void Store::RetainCommits(int64_t count) {
  std::vector<int64_t> numbers = ListCommits(path());
  // One beyond the last did not come about.
  int64_t kept = 0;
  for (auto it = numbers.rbegin(); it != numbers.rend(); ++it) {
    // Nor one without a manifest: its removal was interrupted.
    const bool whole = *it < last_commit_ && PathExists(ManifestPath(path(), *it));
    const bool keep = *it == last_commit_ || (whole && kept < count);
    if (keep) {
      ++kept;
    } else {
      RemoveCommit(*it).IgnoreError();  // what is left goes another time
    }
  }
}

Snapshot Store::DescribeTables() {
  Snapshot snapshot;
  snapshot.instances = context_->ssd->instances();
  snapshot.next_table_id = next_table_id_;
  snapshot.dense_step = context_->dense_step;
  for (const auto& [name, table] : tables_) {
    table->AssertGateExclusive();
    snapshot.tables.push_back({name, table->GetState()});
  }
  return snapshot;
}

absl::StatusOr<int64_t> Store::Commit(ParallelFor parallel_for) {
  MutexLock files(&files_mu_);
  StageTimer timer(context_.get(), Stage::kCommit);
  Snapshot snapshot;
  std::string directory;
  auto still_changed = absl::MakeCleanup([this] { context_->NoteChange(); });  // unless it works
  {
    ExclusivePass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    context_->changed = false;
    directory = CommitDirectory(last_commit_ + 1);
    TF_HPS_RETURN_IF_ERROR(RemoveTree(directory));  // of a commit that did not come about
    TF_HPS_RETURN_IF_ERROR(FlushTables(parallel_for));
    snapshot = DescribeTables();
    snapshot.keep_commits = keep_commits_;
    TF_HPS_RETURN_IF_ERROR(LinkFiles(directory, &snapshot));
    const int64_t reopenings = context_->ssd->reopenings();
    if (std::exchange(synced_reopenings_, reopenings) != reopenings) synced_files_.clear();
  }
  TF_HPS_ASSIGN_OR_RETURN(const int64_t number, PublishCommit(directory, snapshot, parallel_for));
  std::move(still_changed).Cancel();
  return number;
}

absl::Status Store::LinkFiles(const std::string& directory, Snapshot* snapshot) {
  const std::string from = context_->ssd->directory();
  for (int i = 0; i < snapshot->instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(SsdTier::InstanceDirectory(directory, i)));
  }
  return context_->ssd->VisitFiles([&](const SsdTier::File& file) {
    snapshot->files.push_back(file);
    return SsdTier::SaveFile(file, SsdTier::FilePath(from, file),
                             SsdTier::FilePath(directory, file));
  });
}

absl::Status Store::SyncFiles(const std::string& directory, const Snapshot& snapshot,
                              ParallelFor parallel_for) {
  std::set<std::string> synced;
  std::vector<std::string> paths;
  for (const SsdTier::File& file : snapshot.files) {
    const std::string name = SsdTier::FilePath("", file);
    if (synced_files_.count(name) == 0) paths.push_back(SsdTier::FilePath(directory, file));
    if (file.immutable) synced.insert(name);
  }
  TF_HPS_RETURN_IF_ERROR(ParallelForStatus(parallel_for, static_cast<int64_t>(paths.size()),
                                           [&](int64_t i) { return SyncFile(paths[i]); }));
  synced_files_ = std::move(synced);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Store::PublishCommit(const std::string& directory, const Snapshot& snapshot,
                                             ParallelFor parallel_for) {
  const int64_t number = last_commit_ + 1;
  TF_HPS_RETURN_IF_ERROR(SyncFiles(directory, snapshot, parallel_for));
  for (int i = 0; i < snapshot.instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(SyncDirectory(SsdTier::InstanceDirectory(directory, i)));
  }
  TF_HPS_RETURN_IF_ERROR(WriteFileAtomically(ManifestPath(path(), number), snapshot.ToText()));
  TF_HPS_RETURN_IF_ERROR(SyncDirectory(JoinPath(path(), "commits")));
  TF_HPS_RETURN_IF_ERROR(SyncDirectory(path()));
  const absl::Status published =
      WriteFileAtomically(JoinPath(path(), "CURRENT"), CurrentText(number));
  if (!published.ok()) {
    // The rename may have happened and only the sync after it failed: then the new commit is the
    // last.
    const absl::StatusOr<int64_t> current = ReadCurrent(path());
    if (!current.ok() || *current != last_commit_) last_commit_ = number;
    return published;
  }
  last_commit_ = number;
  RetainCommits(keep_commits_);
  return number;
}

}  // namespace tf_hps
