// Goes through all rows of a table as they were at one instant, in ascending order of keys.

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_EXPORT_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_EXPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/ssd_tier.h"

namespace tf_hps {

// Thread-safe. The store cancels its exports when it closes, so that LevelDB can be closed under
// them.
class TableExport {
 public:
  struct Rows {
    std::vector<int64_t> keys;   // [n]
    std::vector<float> weights;  // [n, dim], as of the table's step
    std::vector<float> state;    // [n, slots * dim], caught up likewise
  };

  TableExport(std::string table, std::unique_ptr<SsdTier::Scan> scan, const RowLayout& layout,
              uint32_t state_epoch, uint32_t step, const OptimizerSpec& optimizer);

  int dim() const { return layout_.dim; }
  int slots() const { return layout_.slots; }

  // The next rows, at most max_rows; none at the end. FailedPrecondition once cancelled.
  absl::Status Next(int64_t max_rows, Rows* rows);

  void Cancel();

 private:
  absl::Status AppendRow(Rows* rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string table_;
  const RowLayout layout_;
  const uint32_t state_epoch_;
  const uint32_t step_;
  const OptimizerSpec optimizer_;

  Mutex mu_;
  std::unique_ptr<SsdTier::Scan> scan_ ABSL_GUARDED_BY(mu_);
  RowBuffer row_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_EXPORT_H_
