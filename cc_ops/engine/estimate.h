// What rows take on each tier, from the sizes that the tiers themselves use.

#ifndef TF_HPS_CC_OPS_ENGINE_ESTIMATE_H_
#define TF_HPS_CC_OPS_ENGINE_ESTIMATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tf_hps {

struct Estimate {
  double dram_bytes_per_row;  // at most: header, weights, state and its share of the index
  double ssd_bytes_per_row;   // in files without garbage: key, row, bloom filter, block overhead
  double dram_rows;           // of these rows, how many fit the budget
  double dram_bytes;          // that they take of it
  double ssd_bytes;           // of all rows
  double overhead_bytes;  // of memory besides the budget: LevelDB's write buffers, block caches,
                          // file indexes and bloom filters
};

// InvalidArgument: an argument that no table has. A negative budget is one that all rows fit.
absl::StatusOr<Estimate> EstimateBytes(int64_t rows, int dim, const std::string& optimizer,
                                       int64_t dram_bytes);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_ESTIMATE_H_
