// The description of one consistent point of a store: its tables and the LevelDB files that hold
// their rows. It is the MANIFEST of a commit and the first file of a checkpoint (docs/format.md).

#ifndef TF_HPS_CC_OPS_ENGINE_SNAPSHOT_H_
#define TF_HPS_CC_OPS_ENGINE_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc_ops/engine/ssd_tier.h"
#include "cc_ops/engine/table_state.h"

namespace tf_hps {

struct Snapshot {
  struct Table {
    std::string alias;  // what identifies it in a checkpoint; in a commit its name
    TableState state;
  };

  int instances = 0;
  uint32_t next_table_id = 1;
  int64_t dense_step = 0;
  int64_t keep_commits = 0;  // of a commit: how many the store keeps; 0 in a checkpoint
  std::vector<Table> tables;
  std::vector<SsdTier::File> files;

  const Table* FindAlias(absl::string_view alias) const;

  // Links or copies the files, which lie in `from` as in a tier's directory, to a new directory
  // `to`.
  absl::Status RestoreFiles(const std::string& from, const std::string& to) const;

  // Lines of text, the last one a checksum of the others.
  std::string ToText() const;

  // DataLoss naming `path` when the text is not what ToText gave, FailedPrecondition when a later
  // version wrote it.
  static absl::StatusOr<Snapshot> Parse(absl::string_view text, absl::string_view path);
  // Parses the file at `path`.
  static absl::StatusOr<Snapshot> Read(const std::string& path);
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SNAPSHOT_H_
