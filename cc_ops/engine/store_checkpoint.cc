// Tables in and out of checkpoints. A checkpoint of tables is a snapshot whose files lie flat
// beside TensorFlow's own:
//
//   <prefix>.data-h0000-of-<save_id>   the manifest (Snapshot::ToText)
//   <prefix>.data-h0001-of-<save_id>   the first file that the manifest names, and so on; numbers
//   in base 36
//
// TensorFlow removes a checkpoint by the pattern <prefix>.data-?????-of-?????, and so removes these
// as well.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/engine/store_files.h"

namespace tf_hps {
namespace {

constexpr int64_t kMaxCheckpointFiles = 36 * 36 * 36 * 36;

std::string ParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Links or copies the files of a snapshot from `directory`, syncs them, and writes the manifest
// that lists them.
absl::Status WriteFlatFiles(const Snapshot& snapshot, const std::string& directory,
                            const std::string& prefix, const std::string& save_id) {
  if (static_cast<int64_t>(snapshot.files.size()) >= kMaxCheckpointFiles) {
    return absl::ResourceExhaustedError(
        absl::StrCat(prefix, ": a checkpoint holds at most ", kMaxCheckpointFiles, " files"));
  }
  for (size_t i = 0; i < snapshot.files.size(); ++i) {
    const SsdTier::File& file = snapshot.files[i];
    const std::string path = FlatPath(prefix, save_id, static_cast<int64_t>(i) + 1);
    TF_HPS_RETURN_IF_ERROR(SsdTier::SaveFile(file, SsdTier::FilePath(directory, file), path));
    TF_HPS_RETURN_IF_ERROR(SyncFile(path));
  }
  TF_HPS_RETURN_IF_ERROR(WriteFileAtomically(FlatPath(prefix, save_id, 0), snapshot.ToText()));
  return SyncDirectory(ParentDirectory(prefix));
}

void RemoveSave(const std::string& prefix, const std::string& save_id, int64_t files) {
  for (int64_t i = 0; i <= files; ++i) RemoveTree(FlatPath(prefix, save_id, i)).IgnoreError();
}

// Links a checkpoint's files to where LevelDB can open them.
absl::Status StageFiles(const std::string& prefix, const std::string& save_id,
                        const Snapshot& snapshot, const std::string& directory) {
  for (int i = 0; i < snapshot.instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(SsdTier::InstanceDirectory(directory, i)));
  }
  for (size_t i = 0; i < snapshot.files.size(); ++i) {
    const std::string from = FlatPath(prefix, save_id, static_cast<int64_t>(i) + 1);
    TF_HPS_RETURN_IF_ERROR(SsdTier::RestoreFile(snapshot.files[i], from,
                                                SsdTier::FilePath(directory, snapshot.files[i])));
  }
  return absl::OkStatus();
}

// Copies one table's rows from tier to tier, under another id; returns their number.
absl::StatusOr<int64_t> CopyRows(SsdTier* from, uint32_t from_id, SsdTier* to, uint32_t to_id) {
  SsdTier::Writer writer(to);
  int64_t rows = 0;
  TF_HPS_ASSIGN_OR_RETURN(const std::unique_ptr<SsdTier::Scan> scan, from->NewScan(from_id));
  for (; scan->Valid(); scan->Next(), ++rows) {
    TF_HPS_RETURN_IF_ERROR(writer.Put(to_id, scan->key(), scan->row()));
  }
  TF_HPS_RETURN_IF_ERROR(scan->status());
  TF_HPS_RETURN_IF_ERROR(writer.Finish());
  return rows;
}

}  // namespace

absl::Status Store::Save(const std::string& prefix, const std::string& save_id,
                         absl::Span<const NamedTable> tables, ParallelFor parallel_for) {
  MutexLock files(&files_mu_);
  if (const std::string manifest = FlatPath(prefix, save_id, 0); PathExists(manifest)) {
    return absl::AlreadyExistsError(
        absl::StrCat(manifest, " is there already; save under another id"));
  }
  Snapshot snapshot;
  bool has_other_tables = false;
  const std::string scratch = NewLiveDirectory("save");
  const auto remove = absl::MakeCleanup([&] { RemoveTree(scratch).IgnoreError(); });
  {
    ExclusivePass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    TF_HPS_RETURN_IF_ERROR(CheckNamedTables(tables));
    for (const NamedTable& named : tables) {
      named.table->AssertGateExclusive();
      TF_HPS_RETURN_IF_ERROR(named.table->FlushDirty(parallel_for));
    }
    snapshot = DescribeTables();
    has_other_tables = tables.size() < tables_.size();
    snapshot.tables.clear();
    for (const NamedTable& named : tables) {
      named.table->AssertGateExclusive();
      snapshot.tables.push_back({named.name, named.table->GetState()});
    }
    TF_HPS_RETURN_IF_ERROR(LinkFiles(scratch, &snapshot));
  }
  // From here on rows may change again: the linked files do not.
  TF_HPS_RETURN_IF_ERROR(CreateDirectories(ParentDirectory(prefix)));
  const absl::Status status = has_other_tables ? SaveCopies(prefix, save_id, scratch, &snapshot)
                                               : WriteFlatFiles(snapshot, scratch, prefix, save_id);
  if (!status.ok()) RemoveSave(prefix, save_id, static_cast<int64_t>(snapshot.files.size()));
  return status;
}

absl::Status Store::SaveCopies(const std::string& prefix, const std::string& save_id,
                               const std::string& directory, Snapshot* snapshot) {
  const std::string scratch = JoinPath(directory, "copy");
  TF_HPS_ASSIGN_OR_RETURN(const std::unique_ptr<SsdTier> all,
                          SsdTier::Open(directory, ssd_options_));
  TF_HPS_ASSIGN_OR_RETURN(const std::unique_ptr<SsdTier> copy,
                          SsdTier::Open(scratch, ssd_options_));
  for (const Snapshot::Table& table : snapshot->tables) {
    TF_HPS_RETURN_IF_ERROR(
        CopyRows(all.get(), table.state.id, copy.get(), table.state.id).status());
  }
  const std::string linked = JoinPath(directory, "linked");
  snapshot->files.clear();
  for (int i = 0; i < snapshot->instances; ++i) {
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(SsdTier::InstanceDirectory(linked, i)));
  }
  TF_HPS_RETURN_IF_ERROR(copy->VisitFiles([&](const SsdTier::File& file) {
    snapshot->files.push_back(file);
    return SsdTier::SaveFile(file, SsdTier::FilePath(scratch, file),
                             SsdTier::FilePath(linked, file));
  }));
  return WriteFlatFiles(*snapshot, linked, prefix, save_id);
}

absl::Status Store::Restore(const std::string& prefix, const std::string& save_id,
                            absl::Span<const NamedTable> tables) {
  MutexLock files(&files_mu_);
  ExclusivePass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  TF_HPS_RETURN_IF_ERROR(CheckNamedTables(tables));
  TF_HPS_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Read(FlatPath(prefix, save_id, 0)));
  const std::string staging = NewLiveDirectory("rows");
  context_->NoteChange();
  const auto restore = [&]() -> absl::Status {
    files_mu_.AssertHeld();
    context_->gate.AssertExclusive();
    TF_HPS_ASSIGN_OR_RETURN(const std::vector<TableState> states, MatchTables(snapshot, tables));
    TF_HPS_RETURN_IF_ERROR(StageFiles(prefix, save_id, snapshot, staging));
    SsdOptions options = ssd_options_;
    options.instances = snapshot.instances;
    TF_HPS_ASSIGN_OR_RETURN(std::unique_ptr<SsdTier> staged, SsdTier::Open(staging, options));
    const bool all = tables.size() == tables_.size() &&
                     static_cast<uint32_t>(snapshot.instances) <= context_->partitions;
    return all ? Adopt(std::move(staged), snapshot, states, tables)
               : Ingest(staged.get(), states, tables);
  };
  const absl::Status status = restore();
  if (context_->ssd->directory() != staging) RemoveTree(staging).IgnoreError();
  if (status.ok()) {
    context_->dense_step = snapshot.dense_step;
    return status;
  }
  return absl::Status(status.code(), absl::StrCat("checkpoint ", prefix, " (save id ", save_id,
                                                  "): ", status.message()));
}

absl::StatusOr<std::vector<TableState>> Store::MatchTables(const Snapshot& snapshot,
                                                           absl::Span<const NamedTable> tables) {
  std::vector<TableState> states;
  for (const NamedTable& named : tables) {
    const Snapshot::Table* saved = snapshot.FindAlias(named.name);
    if (saved == nullptr) {
      return absl::NotFoundError(absl::StrCat("it has no table \"", named.name, "\""));
    }
    if (saved->state.dim != named.table->dim()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", named.name, "\" was saved with dim ", saved->state.dim,
                       ", and is to be restored into table \"", named.table->name(), "\" with dim ",
                       named.table->dim()));
    }
    states.push_back(saved->state);
    states.back().name = named.table->name();
  }
  return states;
}

absl::Status Store::Adopt(std::unique_ptr<SsdTier> staged, const Snapshot& snapshot,
                          absl::Span<const TableState> states,
                          absl::Span<const NamedTable> tables) {
  const std::string former = context_->ssd->directory();
  CancelExports();
  synced_files_.clear();  // another tier's files have the same names
  ssd_options_.instances = snapshot.instances;
  context_->former_bytes_read += context_->ssd->bytes_read();
  context_->former_bytes_written += context_->ssd->bytes_written();
  context_->ssd = std::move(staged);
  next_table_id_ = std::max(next_table_id_, snapshot.next_table_id);
  std::set<uint32_t> wanted;
  for (size_t i = 0; i < tables.size(); ++i) {
    TieredTable* const table = tables[i].table.get();
    table->AssertGateExclusive();
    TF_HPS_RETURN_IF_ERROR(table->Reset(states[i]));
    wanted.insert(states[i].id);
  }
  for (const Snapshot::Table& saved : snapshot.tables) {
    if (wanted.count(saved.state.id) == 0) context_->ssd->DropTable(saved.state.id).IgnoreError();
  }
  RemoveTree(former).IgnoreError();  // what is left of it goes when the store is closed
  return absl::OkStatus();
}

absl::Status Store::Ingest(SsdTier* from, absl::Span<const TableState> states,
                           absl::Span<const NamedTable> tables) {
  // Rows come in under new ids, so that a failure leaves the tables as they are.
  std::vector<TableState> renumbered;
  auto undo = absl::MakeCleanup([&] {
    context_->gate.AssertExclusive();
    for (const TableState& state : renumbered) context_->ssd->DropTable(state.id).IgnoreError();
  });
  for (const TableState& state : states) {
    renumbered.push_back(state);
    renumbered.back().id = next_table_id_++;
    TF_HPS_ASSIGN_OR_RETURN(const int64_t rows,
                            CopyRows(from, state.id, context_->ssd.get(), renumbered.back().id));
    if (rows != state.rows) {
      return absl::DataLossError(absl::StrCat("the table to be restored as \"", state.name,
                                              "\" has ", rows, " rows, expected ", state.rows));
    }
  }
  std::move(undo).Cancel();
  for (size_t i = 0; i < tables.size(); ++i) {
    TieredTable* const table = tables[i].table.get();
    table->AssertGateExclusive();
    const uint32_t old_id = table->id();
    TF_HPS_RETURN_IF_ERROR(table->Reset(renumbered[i]));
    // Rows left under an id that no table has any more take room, no more.
    context_->ssd->DropTable(old_id).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
