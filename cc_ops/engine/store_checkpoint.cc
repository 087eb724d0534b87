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

namespace tf_hps {
namespace {

constexpr int64_t kMaxCheckpointFiles = 36 * 36 * 36 * 36;

std::string FlatPath(const std::string& prefix, const std::string& save_id, int64_t number) {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string digits(4, '0');
  for (int i = 3; i >= 0; --i, number /= 36) digits[i] = kDigits[number % 36];
  return absl::StrCat(prefix, ".data-h", digits, "-of-", save_id);
}

std::string ParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Writes a tier's files and the manifest that lists them.
absl::Status WriteFlatFiles(SsdTier* tier, const std::string& directory, const std::string& prefix,
                            const std::string& save_id, Snapshot* snapshot) {
  TF_HPS_RETURN_IF_ERROR(tier->VisitFiles([&](const SsdTier::File& file) {
    snapshot->files.push_back(file);
    const int64_t number = static_cast<int64_t>(snapshot->files.size());
    if (number >= kMaxCheckpointFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat(prefix, ": a checkpoint holds at most ", kMaxCheckpointFiles, " files"));
    }
    const std::string from =
        JoinPath(SsdTier::InstanceDirectory(directory, file.instance), file.name);
    return SsdTier::SaveFile(file, from, FlatPath(prefix, save_id, number));
  }));
  TF_HPS_RETURN_IF_ERROR(WriteFileAtomically(FlatPath(prefix, save_id, 0), snapshot->ToText()));
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
    const SsdTier::File& file = snapshot.files[i];
    const std::string from = FlatPath(prefix, save_id, static_cast<int64_t>(i) + 1);
    const std::string to =
        JoinPath(SsdTier::InstanceDirectory(directory, file.instance), file.name);
    TF_HPS_RETURN_IF_ERROR(SsdTier::RestoreFile(file, from, to));
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
                         absl::Span<const NamedTable> tables) {
  ExclusivePass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  TF_HPS_RETURN_IF_ERROR(CheckNamedTables(tables));
  if (const std::string manifest = FlatPath(prefix, save_id, 0); PathExists(manifest)) {
    return absl::AlreadyExistsError(
        absl::StrCat(manifest, " is there already; save under another id"));
  }
  TF_HPS_RETURN_IF_ERROR(CreateDirectories(ParentDirectory(prefix)));
  Snapshot snapshot;
  snapshot.instances = context_->ssd->instances();
  snapshot.next_table_id = next_table_id_;
  for (const NamedTable& named : tables) {
    TF_HPS_RETURN_IF_ERROR(named.table->FlushDirty());
    snapshot.tables.push_back({named.name, named.table->GetState()});
  }
  absl::Status status;
  if (tables.size() == tables_.size()) {
    status = WriteFlatFiles(context_->ssd.get(), LiveDirectory(), prefix, save_id, &snapshot);
  } else {
    const std::string scratch = JoinPath(LiveDirectory(), absl::StrCat("save-", save_id));
    const auto remove = absl::MakeCleanup([&] { RemoveTree(scratch).IgnoreError(); });
    TF_HPS_ASSIGN_OR_RETURN(const std::unique_ptr<SsdTier> copy, CopyTables(tables, scratch));
    status = WriteFlatFiles(copy.get(), scratch, prefix, save_id, &snapshot);
  }
  if (!status.ok()) RemoveSave(prefix, save_id, static_cast<int64_t>(snapshot.files.size()));
  return status;
}

absl::StatusOr<std::unique_ptr<SsdTier>> Store::CopyTables(absl::Span<const NamedTable> tables,
                                                           const std::string& directory) {
  TF_HPS_RETURN_IF_ERROR(RemoveTree(directory));
  TF_HPS_ASSIGN_OR_RETURN(std::unique_ptr<SsdTier> copy, SsdTier::Open(directory, ssd_options_));
  for (const NamedTable& named : tables) {
    const uint32_t id = named.table->GetState().id;
    TF_HPS_RETURN_IF_ERROR(CopyRows(context_->ssd.get(), id, copy.get(), id).status());
  }
  return copy;
}

absl::Status Store::Restore(const std::string& prefix, const std::string& save_id,
                            absl::Span<const NamedTable> tables) {
  ExclusivePass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  TF_HPS_RETURN_IF_ERROR(CheckNamedTables(tables));
  const std::string manifest = FlatPath(prefix, save_id, 0);
  TF_HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest));
  TF_HPS_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Parse(text, manifest));
  const std::string scratch = JoinPath(LiveDirectory(), absl::StrCat("restore-", save_id));
  const auto remove = absl::MakeCleanup([&] { RemoveTree(scratch).IgnoreError(); });
  const auto restore = [&]() -> absl::Status {
    TF_HPS_RETURN_IF_ERROR(RemoveTree(scratch));
    TF_HPS_RETURN_IF_ERROR(StageFiles(prefix, save_id, snapshot, scratch));
    SsdOptions options = ssd_options_;
    options.instances = snapshot.instances;
    TF_HPS_ASSIGN_OR_RETURN(const std::unique_ptr<SsdTier> staged, SsdTier::Open(scratch, options));
    return RestoreFrom(staged.get(), snapshot, tables);
  };
  const absl::Status status = restore();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("checkpoint ", prefix, " (save id ", save_id,
                                                  "): ", status.message()));
}

absl::Status Store::RestoreFrom(SsdTier* from, const Snapshot& snapshot,
                                absl::Span<const NamedTable> tables) {
  // Rows come in under new ids, so that a failure leaves the tables as they are.
  std::vector<TableState> states;
  auto undo = absl::MakeCleanup([&] {
    for (const TableState& state : states) context_->ssd->DropTable(state.id).IgnoreError();
  });
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
    TableState state = saved->state;
    state.name = named.table->name();
    state.id = next_table_id_++;
    states.push_back(state);
    TF_HPS_ASSIGN_OR_RETURN(const int64_t rows,
                            CopyRows(from, saved->state.id, context_->ssd.get(), state.id));
    if (rows != state.rows) {
      return absl::DataLossError(
          absl::StrCat("table \"", named.name, "\" has ", rows, " rows, expected ", state.rows));
    }
  }
  std::move(undo).Cancel();
  for (size_t i = 0; i < tables.size(); ++i) {
    const uint32_t old_id = tables[i].table->GetState().id;
    TF_HPS_RETURN_IF_ERROR(tables[i].table->Reset(states[i]));
    // Rows left under an id that no table has any more take room, no more.
    context_->ssd->DropTable(old_id).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
