// What a store's last commit or a checkpoint's tables consist of, read from the manifest alone:
// without a lock, changing nothing, whether or not the store is in use.

#ifndef TF_HPS_CC_OPS_ENGINE_SAVED_TABLES_H_
#define TF_HPS_CC_OPS_ENGINE_SAVED_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/snapshot.h"
#include "cc_ops/engine/table_state.h"

namespace tf_hps {

struct SavedTables {
  std::string manifest;            // path; of a store without a commit, CURRENT's
  int64_t commit = 0;              // 0: a checkpoint's, or a store without a commit
  Snapshot snapshot;               // of no instance: a store without a commit
  std::vector<std::string> files;  // path of each of snapshot.files
};

absl::StatusOr<SavedTables> ReadCommit(const std::string& store, int64_t number);
absl::StatusOr<SavedTables> ReadCheckpoint(const std::string& prefix, const std::string& save_id);

// What the store `path` has as the commit of that number, 0 being the last one; or, with a save id,
// what the checkpoint of the prefix `path` has. DataLoss, NotFound, ...: with the path.
absl::StatusOr<SavedTables> ReadSavedTables(const std::string& path, const std::string& save_id,
                                            int64_t commit = 0);

// How a table's rows lie. InvalidArgument: its optimizer is none that there is.
absl::StatusOr<RowLayout> LayoutOf(const TableState& state);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SAVED_TABLES_H_
