// Kernels that open, commit, close and describe stores.

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/kernels/byte_size.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/op_parallel_for.h"
#include "cc_ops/kernels/outputs.h"
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
using tensorflow::tstring;

// A SavedModel carries the budget of the machine that trained it; this one is the serving
// machine's.
constexpr char kServingDramBytes[] = "TF_HPS_SERVING_DRAM_BYTES";

class StoreHandleOp : public OpKernel {
 public:
  explicit StoreHandleOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int64_t hbm_bytes = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("path", &options_.path));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dram_bytes", &options_.dram_bytes));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("hbm_bytes", &hbm_bytes));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("eviction", &options_.eviction));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cache_reads", &options_.cache_reads));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("keep_commits", &options_.keep_commits));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("commit", &options_.commit));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shared_name", &shared_name_));
    OP_REQUIRES(
        ctx, hbm_bytes == 0,
        absl::InvalidArgumentError(absl::StrCat(
            "hbm_bytes: this build has no GPU tier; use hbm_bytes=0. Received: ", hbm_bytes)));
    OP_REQUIRES(ctx, !shared_name_.empty(),
                absl::InvalidArgumentError("shared_name: expected a name, one for each store. "
                                           "Received: \"\""));
    description_ =
        absl::StrCat("store at \"", options_.path, "\" with dram_bytes ", options_.dram_bytes,
                     ", eviction \"", options_.eviction, "\", cache_reads ", options_.cache_reads);
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, OutputResource<StoreResource>(ctx, shared_name_, description_, [this] {
                          return Open();
                        }).status());
  }

 private:
  absl::StatusOr<StoreResource*> Open() const {
    StoreOptions options = options_;
    const char* const serving = options.cache_reads ? std::getenv(kServingDramBytes) : nullptr;
    if (serving != nullptr) {
      const absl::StatusOr<int64_t> bytes = ParseByteSize(serving);
      if (!bytes.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("environment variable ", kServingDramBytes,
                                                       ": ", bytes.status().message()));
      }
      options.dram_bytes = *bytes;
    }
    absl::StatusOr<std::shared_ptr<Store>> store = Store::Open(options);
    if (!store.ok()) return store.status();
    return new StoreResource(description_, *std::move(store));
  }

  StoreOptions options_;
  std::string shared_name_;
  std::string description_;
};

class StoreCommitOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    OP_REQUIRES_VALUE(const int64_t number, ctx, resource->store->Commit(OpParallelFor(ctx)));
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, 0, number));
  }
};

class StoreCommitsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, resource->store->Commits()));
  }
};

class StoreCloseOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "commit", 0));
    OP_REQUIRES_OK(ctx, resource->store->Close(ctx->input(1).scalar<bool>()()));
  }
};

class StoreStatsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    const auto stats = resource->store->Stats();
    const TensorShape shape({static_cast<int64_t>(stats.size())});
    Tensor* names = nullptr;
    Tensor* values = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &names));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, shape, &values));
    for (size_t i = 0; i < stats.size(); ++i) {
      names->vec<tstring>()(i) = stats[i].first;
      values->vec<double>()(i) = stats[i].second;
    }
  }
};

class StorePathOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, 0, std::string(resource->store->path())));
  }
};

class StoreTablesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    const std::vector<TableState> tables = resource->store->Tables();
    const TensorShape shape({static_cast<int64_t>(tables.size())});
    Tensor* outputs[5];
    for (int i = 0; i < 5; ++i) OP_REQUIRES_OK(ctx, ctx->allocate_output(i, shape, &outputs[i]));
    for (size_t i = 0; i < tables.size(); ++i) {
      outputs[0]->vec<tstring>()(i) = tables[i].name;
      outputs[1]->vec<int64_t>()(i) = tables[i].dim;
      outputs[2]->vec<tstring>()(i) = tables[i].initializer;
      outputs[3]->vec<int64_t>()(i) = tables[i].seed;
      outputs[4]->vec<tstring>()(i) = tables[i].optimizer;
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TfHps>StoreHandle").Device(DEVICE_CPU), StoreHandleOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreCommit").Device(DEVICE_CPU), StoreCommitOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreCommits").Device(DEVICE_CPU), StoreCommitsOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreClose").Device(DEVICE_CPU), StoreCloseOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreStats").Device(DEVICE_CPU), StoreStatsOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StorePath").Device(DEVICE_CPU), StorePathOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreTables").Device(DEVICE_CPU), StoreTablesOp);

}  // namespace
}  // namespace tf_hps
