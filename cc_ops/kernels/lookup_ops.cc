// Kernels that read rows.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/op_parallel_for.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Whether all keys are in [0, bound), without a branch for each.
bool AllBelow(absl::Span<const int64_t> keys, int64_t bound) {
  const uint64_t last = static_cast<uint64_t>(bound) - 1;
  uint64_t signs = 0;
  for (const int64_t signed_key : keys) {
    const auto key = static_cast<uint64_t>(signed_key);
    signs |= key | (last - key);  // either is negative for a key outside
  }
  return signs >> 63 == 0;
}

absl::Status CheckKeys(const TieredTable& table, absl::Span<const int64_t> keys,
                       int64_t input_dim) {
  if (input_dim == 0 || AllBelow(keys, input_dim)) return absl::OkStatus();
  size_t i = 0;
  while (keys[i] >= 0 && keys[i] < input_dim) ++i;
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", table.name(), "\": expected ids in [0, ", input_dim,
      "), the input_dim. Received: ", keys[i], " (number ", i, " of ", keys.size(),
      "). Correct the ids, raise input_dim, or use input_dim=None, which allows every int64"));
}

template <bool kCreate>
class LookupOp : public OpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("input_dim", &input_dim_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    TieredTable& table = *resource->table;
    OP_REQUIRES_OK(ctx, CheckDim(absl::StrCat("table \"", table.name(), "\""), table.dim(), dim_));
    std::vector<int64_t> widened;
    OP_REQUIRES_VALUE(const auto keys, ctx, KeysOf(ctx->input(1), &widened));
    OP_REQUIRES_OK(ctx, CheckKeys(table, keys, input_dim_));
    TensorShape shape = ctx->input(1).shape();
    OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(dim_));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &rows));
    float* const out = rows->flat<float>().data();
    const OpParallelFor parallel_for(ctx);
    OP_REQUIRES_OK(ctx, kCreate ? table.LookupOrCreate(keys, out, parallel_for)
                                : table.Lookup(keys, out, parallel_for));
  }

 private:
  int dim_ = 0;
  int64_t input_dim_ = 0;
};

class PrefetchOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    std::vector<int64_t> widened;
    OP_REQUIRES_VALUE(const auto keys, ctx, KeysOf(ctx->input(1), &widened));
    OP_REQUIRES_OK(ctx, resource->table->Prefetch(keys, OpParallelFor(ctx)));
  }
};

class ContainsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    std::vector<int64_t> unused;
    OP_REQUIRES_VALUE(const auto keys, ctx, KeysOf(ctx->input(1), &unused));
    Tensor* contained = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ctx->input(1).shape(), &contained));
    const OpParallelFor parallel_for(ctx);
    OP_REQUIRES_OK(ctx,
                   resource->table->Contains(keys, contained->flat<bool>().data(), parallel_for));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfHps>Lookup").Device(DEVICE_CPU), LookupOp</*kCreate=*/false>);
REGISTER_KERNEL_BUILDER(Name("TfHps>LookupOrCreate").Device(DEVICE_CPU),
                        LookupOp</*kCreate=*/true>);
REGISTER_KERNEL_BUILDER(Name("TfHps>Prefetch").Device(DEVICE_CPU), PrefetchOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>Contains").Device(DEVICE_CPU), ContainsOp);

}  // namespace
}  // namespace tf_hps
