// Kernels that go through all rows of a table.

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/outputs.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/denormal.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::TensorShape;

class ExportBeginOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    OP_REQUIRES_VALUE(auto rows, ctx, resource->store->Export(resource->table.get()));
    // With the export ends the snapshot that it holds.
    OP_REQUIRES_OK(
        ctx, OutputOwner(ctx, 0,
                         new ExportResource(absl::StrCat("export of ", resource->DebugString()),
                                            resource->store, std::move(rows))));
  }
};

class ExportNextOp : public OpKernel {
 public:
  explicit ExportNextOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &dim_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<ExportResource>(ctx, ctx->input(0)));
    TableExport& table_export = *resource->rows;
    OP_REQUIRES_OK(ctx, CheckDim(resource->DebugString(), table_export.dim(), dim_));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "max_rows", 0));
    const int64_t max_rows = ctx->input(1).scalar<int64_t>()();
    OP_REQUIRES(ctx, max_rows >= 1,
                absl::InvalidArgumentError(
                    absl::StrCat("max_rows: expected at least 1. Received: ", max_rows)));
    TableExport::Rows rows;
    {
      // Rows are caught up with the table's step here: as in OpParallelFor, their bits must not
      // depend on the thread.
      const tensorflow::port::ScopedFlushDenormal flush_denormal;
      OP_REQUIRES_OK(ctx, table_export.Next(max_rows, &rows));
    }
    const auto n = static_cast<int64_t>(rows.keys.size());
    const int64_t state_width = int64_t{table_export.slots()} * dim_;
    OP_REQUIRES_OK(ctx, Output(ctx, 0, rows.keys, TensorShape({n})));
    OP_REQUIRES_OK(ctx, Output(ctx, 1, rows.weights, TensorShape({n, dim_})));
    OP_REQUIRES_OK(ctx, Output(ctx, 2, rows.state, TensorShape({n, state_width})));
  }

 private:
  int dim_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TfHps>ExportBegin").Device(DEVICE_CPU), ExportBeginOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>ExportNext").Device(DEVICE_CPU), ExportNextOp);

}  // namespace
}  // namespace tf_hps
