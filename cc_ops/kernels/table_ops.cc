// Kernels that attach to, drop and measure tables.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/kernels/outputs.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class TableHandleOp : public OpKernel {
 public:
  explicit TableHandleOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_name", &options_.name));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &options_.dim));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("initializer", &options_.initializer));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("seed", &options_.seed));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("salt", &options_.salt));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shared_name", &shared_name_));
    OP_REQUIRES(ctx, !shared_name_.empty(),
                absl::InvalidArgumentError("shared_name: expected a name, one for each table. "
                                           "Received: \"\""));
    description_ = absl::StrCat("table \"", options_.name, "\" of dim ", options_.dim,
                                ", initializer ", options_.initializer, ", seed ", options_.seed,
                                ", salt \"", options_.salt, "\"");
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto store, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    const auto attach = [&] { return Attach(store->store); };
    OP_REQUIRES_VALUE(const auto table, ctx,
                      OutputResource<TableResource>(ctx, shared_name_, description_, attach));
    OP_REQUIRES(ctx, table->store == store->store,
                absl::InvalidArgumentError(absl::StrCat(
                    "shared_name \"", shared_name_, "\" is that of a table in the store at \"",
                    table->store->path(), "\". Received: the store at \"", store->store->path(),
                    "\". Give each table its own shared_name")));
  }

 private:
  absl::StatusOr<TableResource*> Attach(const std::shared_ptr<Store>& store) const {
    absl::StatusOr<std::shared_ptr<TieredTable>> table = store->Attach(options_);
    if (!table.ok()) return table.status();
    return new TableResource(description_, store, *std::move(table));
  }

  TableOptions options_;
  std::string shared_name_;
  std::string description_;
};

class TableDropOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, resource->store->Drop(resource->table.get()));
  }
};

class SizeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<TableResource>(ctx, ctx->input(0)));
    OP_REQUIRES_VALUE(const int64_t rows, ctx, resource->table->Size());
    OP_REQUIRES_OK(ctx, OutputScalar(ctx, 0, rows));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfHps>TableHandle").Device(DEVICE_CPU), TableHandleOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>TableDrop").Device(DEVICE_CPU), TableDropOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>Size").Device(DEVICE_CPU), SizeOp);

}  // namespace
}  // namespace tf_hps
