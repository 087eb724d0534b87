#include "cc_ops/engine/table_export.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {

TableExport::TableExport(std::string table, std::unique_ptr<SsdTier::Scan> scan,
                         const RowLayout& layout, uint32_t state_epoch, uint32_t step,
                         const OptimizerSpec& optimizer)
    : table_(std::move(table)),
      layout_(layout),
      state_epoch_(state_epoch),
      step_(step),
      optimizer_(optimizer),
      scan_(std::move(scan)),
      row_(layout, 1) {}

absl::Status TableExport::Next(int64_t max_rows, Rows* rows) {
  *rows = Rows();
  MutexLock lock(&mu_);
  if (scan_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the export of table \"", table_, "\" ended when its store was closed or restored"));
  }
  for (int64_t n = 0; n < max_rows && scan_->Valid(); ++n, scan_->Next()) {
    TF_HPS_RETURN_IF_ERROR(AppendRow(rows));
  }
  return scan_->status();
}

absl::Status TableExport::AppendRow(Rows* rows) {
  bool fresh_state = false;
  const absl::Status status = DecodeRow(layout_, state_epoch_, scan_->row(), row_[0], &fresh_state);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("table \"", table_, "\", key ", scan_->key(),
                                                    ": ", status.message()));
  }
  float* weights = row_[0].weights;
  float* state = weights + layout_.dim;
  if (fresh_state) optimizer_.InitState(state, layout_.dim);
  const uint32_t last_step = row_[0].header->last_step;
  if (optimizer_.idle() && !fresh_state && step_ > last_step) {
    std::visit(
        [&](const auto& rule) { rule.CatchUp(weights, state, layout_.dim, step_ - last_step); },
        optimizer_.ReadRule());
  }
  rows->keys.push_back(scan_->key());
  rows->weights.insert(rows->weights.end(), weights, weights + layout_.dim);
  rows->state.insert(rows->state.end(), state, weights + layout_.floats());
  return absl::OkStatus();
}

void TableExport::Cancel() {
  MutexLock lock(&mu_);
  scan_.reset();
}

}  // namespace tf_hps
