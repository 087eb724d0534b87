// Kernels that change rows.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/op_parallel_for.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ApplyGradientsOp : public OpKernel {
 public:
  explicit ApplyGradientsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::string optimizer;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer));
    OP_REQUIRES_VALUE(optimizer_, ctx, OptimizerSpec::Parse(optimizer));
    std::string non_finite;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("non_finite", &non_finite));
    non_finite_ = non_finite == "error"  ? TieredTable::NonFinite::kError
                  : non_finite == "skip" ? TieredTable::NonFinite::kSkip
                                         : TieredTable::NonFinite::kPropagate;
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList tables;
    OpInputList keys;
    OpInputList grads;
    OP_REQUIRES_OK(ctx, ctx->input_list("tables", &tables));
    OP_REQUIRES_OK(ctx, ctx->input_list("keys", &keys));
    OP_REQUIRES_OK(ctx, ctx->input_list("grads", &grads));
    std::vector<ResourcePtr<TableResource>> resources;
    std::vector<TieredTable::Gradients> gradients;
    for (int i = 0; i < tables.size(); ++i) {
      OP_REQUIRES_VALUE(auto resource, ctx, FindResource<TableResource>(ctx, tables[i]));
      OP_REQUIRES_OK(ctx, CheckPair(*resource->table, keys[i], grads[i], "gradients"));
      std::vector<int64_t> unused;
      OP_REQUIRES_VALUE(const auto table_keys, ctx, KeysOf(keys[i], &unused));
      gradients.push_back({resource->table.get(), table_keys, grads[i].flat<float>().data()});
      resources.push_back(std::move(resource));
    }
    const Tensor& hyperparameters = ctx->input(ctx->num_inputs() - 2);
    const Tensor& dense_step = ctx->input(ctx->num_inputs() - 1);
    OP_REQUIRES_OK(ctx, CheckRank(hyperparameters, "hyperparameters", 1));
    OP_REQUIRES_OK(ctx, CheckRank(dense_step, "dense_step", 0));
    const OpParallelFor parallel_for(ctx);
    OP_REQUIRES_OK(ctx, TieredTable::ApplyGradients(
                            gradients, optimizer_,
                            absl::MakeConstSpan(hyperparameters.flat<float>().data(),
                                                hyperparameters.NumElements()),
                            non_finite_, parallel_for, dense_step.scalar<int64_t>()()));
  }

 private:
  OptimizerSpec optimizer_;
  TieredTable::NonFinite non_finite_ = TieredTable::NonFinite::kError;
};

class UpsertOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    const Tensor& values = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckPair(*resource->table, ctx->input(1), values, "values"));
    std::vector<int64_t> unused;
    OP_REQUIRES_VALUE(const auto keys, ctx, KeysOf(ctx->input(1), &unused));
    const OpParallelFor parallel_for(ctx);
    OP_REQUIRES_OK(ctx, resource->table->Upsert(keys, values.flat<float>().data(), parallel_for));
  }
};

class RemoveOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "keys", 1));
    std::vector<int64_t> unused;
    OP_REQUIRES_VALUE(const auto keys, ctx, KeysOf(ctx->input(1), &unused));
    const OpParallelFor parallel_for(ctx);
    OP_REQUIRES_OK(ctx, resource->table->Remove(keys, parallel_for));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfHps>ApplyGradients").Device(DEVICE_CPU), ApplyGradientsOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>Upsert").Device(DEVICE_CPU), UpsertOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>Remove").Device(DEVICE_CPU), RemoveOp);

}  // namespace
}  // namespace tf_hps
