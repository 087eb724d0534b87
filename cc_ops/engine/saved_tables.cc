#include "cc_ops/engine/saved_tables.h"

#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store_files.h"

namespace tf_hps {
namespace {

// A store that is in use may remove a commit just when it is looked at.
constexpr int kAttempts = 5;

absl::StatusOr<SavedTables> ReadManifest(const std::string& manifest) {
  SavedTables saved;
  saved.manifest = manifest;
  TF_HPS_ASSIGN_OR_RETURN(saved.snapshot, Snapshot::Read(manifest));
  return saved;
}

}  // namespace

absl::StatusOr<SavedTables> ReadCommit(const std::string& store, int64_t number) {
  if (number == 0) return SavedTables{JoinPath(store, "CURRENT"), 0, {}, {}};
  const std::string directory = CommitPath(store, number);
  TF_HPS_ASSIGN_OR_RETURN(SavedTables saved, ReadManifest(ManifestPath(store, number)));
  saved.commit = number;
  for (const SsdTier::File& file : saved.snapshot.files) {
    saved.files.push_back(
        JoinPath(SsdTier::InstanceDirectory(directory, file.instance), file.name));
  }
  return saved;
}

absl::StatusOr<SavedTables> ReadCheckpoint(const std::string& prefix, const std::string& save_id) {
  TF_HPS_ASSIGN_OR_RETURN(SavedTables saved, ReadManifest(FlatPath(prefix, save_id, 0)));
  for (size_t i = 0; i < saved.snapshot.files.size(); ++i) {
    saved.files.push_back(FlatPath(prefix, save_id, static_cast<int64_t>(i) + 1));
  }
  return saved;
}

absl::StatusOr<SavedTables> ReadSavedTables(const std::string& path, const std::string& save_id,
                                            int64_t commit) {
  if (!save_id.empty()) return ReadCheckpoint(path, save_id);
  TF_HPS_RETURN_IF_ERROR(CheckFormatFile(path));
  if (commit > 0) return ReadCommit(path, commit);
  for (int attempt = 1;; ++attempt) {
    TF_HPS_ASSIGN_OR_RETURN(const int64_t number, ReadCurrent(path));
    absl::StatusOr<SavedTables> saved = ReadCommit(path, number);
    if (saved.ok() || !absl::IsNotFound(saved.status()) || attempt == kAttempts) return saved;
    if (ReadCurrent(path).value_or(number) == number) return saved;
  }
}

absl::StatusOr<RowLayout> LayoutOf(const TableState& state) {
  TF_HPS_ASSIGN_OR_RETURN(const OptimizerSpec optimizer, OptimizerSpec::Parse(state.optimizer));
  return RowLayout{state.dim, optimizer.slots()};
}

}  // namespace tf_hps
