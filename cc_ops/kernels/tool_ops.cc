// Kernels for the command-line tools: what is saved where, whether it is sound, what rows cost.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc_ops/engine/estimate.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/saved_tables.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/verify.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/outputs.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::tstring;

absl::StatusOr<std::string> StringInput(OpKernelContext* ctx, int index, const char* name) {
  if (const absl::Status status = CheckRank(ctx->input(index), name, 0); !status.ok()) {
    return status;
  }
  return std::string(ctx->input(index).scalar<tstring>()());
}

class InspectOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const std::string path, ctx, StringInput(ctx, 0, "path"));
    OP_REQUIRES_VALUE(const std::string save_id, ctx, StringInput(ctx, 1, "save_id"));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "commit", 0));
    const int64_t commit = ctx->input(2).scalar<int64_t>()();
    OP_REQUIRES_VALUE(const SavedTables saved, ctx, ReadSavedTables(path, save_id, commit));
    const Snapshot& snapshot = saved.snapshot;
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, std::vector<std::string>{saved.manifest}));
    OP_REQUIRES_OK(ctx,
                   OutputVector(ctx, 1,
                                std::vector<int64_t>{saved.commit, snapshot.instances,
                                                     snapshot.dense_step, snapshot.keep_commits}));
    std::vector<std::string> texts;
    std::vector<int64_t> numbers;
    for (const Snapshot::Table& table : snapshot.tables) {
      const TableState& s = table.state;
      OP_REQUIRES_VALUE(const RowLayout layout, ctx, LayoutOf(s));
      for (const auto& text : {table.alias, s.name, s.initializer, s.salt, s.optimizer}) {
        texts.push_back(text);
      }
      for (const int64_t number :
           {int64_t{s.dim}, s.seed, int64_t{s.step}, s.rows, EntryBytes(layout)}) {
        numbers.push_back(number);
      }
    }
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 2, texts));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 3, numbers));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 4, saved.files));
    numbers.clear();
    for (const SsdTier::File& file : snapshot.files) {
      numbers.push_back(file.instance);
      numbers.push_back(file.bytes);
    }
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 5, numbers));
  }
};

class VerifierResource : public DescribedResource {
 public:
  static constexpr char kKind[] = "verifier";
  VerifierResource(const std::string& path, const std::string& save_id, int64_t commit)
      : DescribedResource(absl::StrCat("verifier of ", path)), verifier(path, save_id, commit) {}

  Mutex mu;
  Verifier verifier ABSL_GUARDED_BY(mu);
};

class VerifyBeginOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const std::string path, ctx, StringInput(ctx, 0, "path"));
    OP_REQUIRES_VALUE(const std::string save_id, ctx, StringInput(ctx, 1, "save_id"));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(2), "commit", 0));
    const int64_t commit = ctx->input(2).scalar<int64_t>()();
    // With the verifier go its temporary files.
    OP_REQUIRES_OK(ctx, OutputOwner(ctx, 0, new VerifierResource(path, save_id, commit)));
  }
};

class VerifyNextOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<VerifierResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, CheckRank(ctx->input(1), "seconds", 0));
    const absl::Time end = absl::Now() + absl::Seconds(ctx->input(1).scalar<float>()());
    MutexLock lock(&resource->mu);
    Verifier& verifier = resource->verifier;
    bool more = true;
    while (more && absl::Now() < end) more = verifier.Next();
    std::vector<std::string> paths, texts;
    std::vector<bool> damage;
    for (Finding& finding : verifier.TakeFindings()) {
      paths.push_back(std::move(finding.path));
      texts.push_back(std::move(finding.text));
      damage.push_back(finding.damage);
    }
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0, std::vector<double>{more ? verifier.progress() : 2}));
    OP_REQUIRES_OK(ctx,
                   OutputVector(ctx, 1, std::vector<int64_t>{verifier.files(), verifier.rows()}));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 2, paths));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 3, texts));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 4, damage));
  }
};

class StoreCompactOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto resource, ctx, FindResource<StoreResource>(ctx, ctx->input(0)));
    OP_REQUIRES_OK(ctx, resource->store->Compact());
  }
};

class EstimateOp : public OpKernel {
 public:
  explicit EstimateOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rows", &rows_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dram_bytes", &dram_bytes_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const Estimate e, ctx, EstimateBytes(rows_, dim_, optimizer_, dram_bytes_));
    OP_REQUIRES_OK(ctx, OutputVector(ctx, 0,
                                     std::vector<double>{e.dram_bytes_per_row, e.ssd_bytes_per_row,
                                                         e.dram_rows, e.dram_bytes, e.ssd_bytes,
                                                         e.overhead_bytes}));
  }

 private:
  int64_t rows_ = 0;
  int dim_ = 0;
  std::string optimizer_;
  int64_t dram_bytes_ = -1;
};

REGISTER_KERNEL_BUILDER(Name("TfHps>Inspect").Device(DEVICE_CPU), InspectOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>VerifyBegin").Device(DEVICE_CPU), VerifyBeginOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>VerifyNext").Device(DEVICE_CPU), VerifyNextOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>StoreCompact").Device(DEVICE_CPU), StoreCompactOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>Estimate").Device(DEVICE_CPU), EstimateOp);

}  // namespace
}  // namespace tf_hps
