// Where a store and a checkpoint keep what, for all who read or write it.

#ifndef TF_HPS_CC_OPS_ENGINE_STORE_FILES_H_
#define TF_HPS_CC_OPS_ENGINE_STORE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc_ops/engine/ssd_tier.h"

namespace tf_hps {

// What a store's file FORMAT holds.
inline constexpr absl::string_view kStoreFormat = "tf_hps store 1\n";

// That FORMAT holds that. FailedPrecondition: it holds something else.
absl::Status CheckFormatFile(const std::string& store);

// What a store's file CURRENT holds: the last commit's number and a checksum of it. With a bit
// flipped it must not name another commit, least of all none.
std::string CurrentText(int64_t number);

// The number of the last commit; 0: there was none. DataLoss: CURRENT is damaged.
absl::StatusOr<int64_t> ReadCurrent(const std::string& store);

std::string CommitPath(const std::string& store, int64_t number);
// A commit that has its manifest is whole.
std::string ManifestPath(const std::string& store, int64_t number);

// The numbers that directories of commits have, whole ones or not, ascending.
std::vector<int64_t> ListCommits(const std::string& store);

// The number-th file of the tables that were saved with a checkpoint; 0 is the manifest.
std::string FlatPath(const std::string& prefix, const std::string& save_id, int64_t number);

// LevelDB instances of a new store.
int DefaultInstances();

// What LevelDB may hold in memory follows from the budget. write_buffer_bytes 0: that too.
SsdOptions SsdOptionsFor(int64_t dram_bytes, int64_t write_buffer_bytes, int instances);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_STORE_FILES_H_
