// Kernels that write and read tables beside TensorFlow's checkpoints.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/kernels/inputs.h"
#include "cc_ops/kernels/op_parallel_for.h"
#include "cc_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/random.h"

namespace tf_hps {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

constexpr int kSaveIdLength = 5;

std::string NewSaveId() {
  constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t random = tensorflow::random::New64();
  std::string id;
  for (int i = 0; i < kSaveIdLength; ++i, random /= 36) id.push_back(kDigits[random % 36]);
  return id;
}

absl::StatusOr<std::string> ScalarString(OpKernelContext* ctx, absl::string_view input) {
  const Tensor* tensor = nullptr;
  TF_HPS_RETURN_IF_ERROR(ctx->input(input, &tensor));
  TF_HPS_RETURN_IF_ERROR(CheckRank(*tensor, input, 0));
  return std::string(tensor->scalar<tstring>()());
}

absl::StatusOr<std::string> Prefix(OpKernelContext* ctx) {
  TF_HPS_ASSIGN_OR_RETURN(std::string prefix, ScalarString(ctx, "prefix"));
  if (prefix.empty() || absl::StrContains(prefix, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefix: tables are saved to and restored from local paths only. Received: \"",
                     prefix, "\"; save to a local directory and copy its files"));
  }
  return prefix;
}

absl::StatusOr<std::string> SaveId(OpKernelContext* ctx) {
  TF_HPS_ASSIGN_OR_RETURN(std::string id, ScalarString(ctx, "save_id"));
  if (id.size() != kSaveIdLength || !std::all_of(id.begin(), id.end(), absl::ascii_isalnum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("save_id: expected ", kSaveIdLength,
                     " letters and digits, as SaveTables returned them. Received: \"", id, "\""));
  }
  return id;
}

absl::StatusOr<std::vector<std::string>> Names(OpKernelContext* ctx, int count) {
  const Tensor* tensor = nullptr;
  TF_HPS_RETURN_IF_ERROR(ctx->input("names", &tensor));
  TF_HPS_RETURN_IF_ERROR(CheckRank(*tensor, "names", 1));
  const auto elements = tensor->vec<tstring>();
  std::vector<std::string> names(elements.data(), elements.data() + elements.size());
  if (static_cast<int>(names.size()) != count) {
    return absl::InvalidArgumentError(absl::StrCat("names: expected one for each of the ", count,
                                                   " tables. Received: ", names.size()));
  }
  std::set<std::string> distinct;
  for (const std::string& name : names) {
    if (distinct.insert(name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("names: expected another one for each table. Received twice: \"", name, "\""));
  }
  return names;
}

// Tables of one store under their names in a checkpoint.
struct NamedTables {
  std::shared_ptr<Store> store;
  std::vector<NamedTable> tables;
};

absl::StatusOr<NamedTables> Tables(OpKernelContext* ctx) {
  OpInputList handles;
  TF_HPS_RETURN_IF_ERROR(ctx->input_list("tables", &handles));
  TF_HPS_ASSIGN_OR_RETURN(const auto names, Names(ctx, handles.size()));
  NamedTables result;
  for (int i = 0; i < handles.size(); ++i) {
    TF_HPS_ASSIGN_OR_RETURN(const auto resource, FindResource<TableResource>(ctx, handles[i]));
    if (i == 0) result.store = resource->store;
    if (resource->store != result.store) {
      return absl::UnimplementedError(absl::StrCat(
          "one checkpoint cannot hold tables of several stores yet. Received: table \"",
          result.tables[0].table->name(), "\" of the store at \"", result.store->path(),
          "\", table \"", resource->table->name(), "\" of the store at \"", resource->store->path(),
          "\". Keep a model's tables in one store"));
    }
    result.tables.push_back({names[i], resource->table});
  }
  return result;
}

class SaveTablesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto prefix, ctx, Prefix(ctx));
    OP_REQUIRES_VALUE(const auto tables, ctx, Tables(ctx));
    Tensor* save_id = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &save_id));
    const std::string id = NewSaveId();
    OP_REQUIRES_OK(ctx, tables.store->Save(prefix, id, tables.tables, OpParallelFor(ctx)));
    save_id->scalar<tstring>()() = id;
  }
};

class RestoreTablesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_VALUE(const auto prefix, ctx, Prefix(ctx));
    OP_REQUIRES_VALUE(const auto save_id, ctx, SaveId(ctx));
    OP_REQUIRES_VALUE(const auto tables, ctx, Tables(ctx));
    OP_REQUIRES_OK(ctx, tables.store->Restore(prefix, save_id, tables.tables));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfHps>SaveTables").Device(DEVICE_CPU), SaveTablesOp);
REGISTER_KERNEL_BUILDER(Name("TfHps>RestoreTables").Device(DEVICE_CPU), RestoreTablesOp);

}  // namespace
}  // namespace tf_hps
