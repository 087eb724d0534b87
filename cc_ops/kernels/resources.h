// What resource handles of the ops refer to, and how kernels get at it.

#ifndef TF_HPS_CC_OPS_KERNELS_RESOURCES_H_
#define TF_HPS_CC_OPS_KERNELS_RESOURCES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/engine/table_export.h"
#include "cc_ops/engine/tiered_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace tf_hps {

// A resource that remembers what it was made from. Immutable.
class DescribedResource : public tensorflow::ResourceBase {
 public:
  explicit DescribedResource(std::string description) : description_(std::move(description)) {}
  std::string DebugString() const override { return description_; }

 private:
  const std::string description_;
};

// Destroying it closes the store without a commit, unless tables or exports still hold it.
class StoreResource : public DescribedResource {
 public:
  static constexpr char kKind[] = "store";
  StoreResource(std::string description, std::shared_ptr<Store> store)
      : DescribedResource(std::move(description)), store(std::move(store)) {}

  const std::shared_ptr<Store> store;
};

class TableResource : public DescribedResource {
 public:
  static constexpr char kKind[] = "table";
  TableResource(std::string description, std::shared_ptr<Store> store,
                std::shared_ptr<TieredTable> table)
      : DescribedResource(std::move(description)),
        store(std::move(store)),
        table(std::move(table)) {}

  const std::shared_ptr<Store> store;
  const std::shared_ptr<TieredTable> table;
};

class ExportResource : public DescribedResource {
 public:
  static constexpr char kKind[] = "export";
  ExportResource(std::string description, std::shared_ptr<Store> store,
                 std::shared_ptr<TableExport> rows)
      : DescribedResource(std::move(description)), store(std::move(store)), rows(std::move(rows)) {}

  const std::shared_ptr<Store> store;
  const std::shared_ptr<TableExport> rows;
};

template <typename Resource>
using ResourcePtr = tensorflow::core::RefCountPtr<Resource>;

// The resource whose handle is in a scalar tensor. InvalidArgument: not a scalar, or of another
// kind; NotFound: destroyed.
template <typename Resource>
absl::StatusOr<ResourcePtr<Resource>> FindResource(tensorflow::OpKernelContext* ctx,
                                                   const tensorflow::Tensor& handle) {
  if (handle.dims() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("expected the handle of one ", Resource::kKind,
                                                   ", a scalar. Received: shape ",
                                                   handle.shape().DebugString()));
  }
  ResourcePtr<Resource> resource;
  absl::Status status =
      LookupResource(ctx, handle.scalar<tensorflow::ResourceHandle>()(), &resource);
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("this handle's ", Resource::kKind,
                                            " was destroyed or never made here; make it again (",
                                            status.message(), ")"));
  }
  if (!status.ok()) return status;
  return resource;
}

// Puts the handle of the resource `name` into output 0 and returns the resource, which `make` makes
// if there is none: once, however many kernels ask at a time. InvalidArgument: the one there was
// made from another description.
template <typename Resource>
absl::StatusOr<ResourcePtr<Resource>> OutputResource(
    tensorflow::OpKernelContext* ctx, const std::string& name, const std::string& description,
    absl::FunctionRef<absl::StatusOr<Resource*>()> make) {
  // ResourceMgr::LookupOrCreate would keep all other kernels waiting while a store is opened.
  static Mutex mu;
  MutexLock lock(&mu);
  tensorflow::ResourceMgr* const resources = ctx->resource_manager();
  const std::string& container = resources->default_container();
  Resource* found = nullptr;
  absl::Status status = resources->Lookup(container, name, &found);
  if (absl::IsNotFound(status)) {
    absl::StatusOr<Resource*> made = make();
    if (!made.ok()) return made.status();
    found = *made;
    found->Ref();  // the manager takes the other one
    status = resources->Create(container, name, found);
    if (!status.ok()) found->Unref();
  }
  if (!status.ok()) return status;
  ResourcePtr<Resource> resource(found);
  if (resource->DebugString() != description) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shared_name \"", name, "\" is that of the ", resource->DebugString(),
        ". Received: ", description, ". Give each ", Resource::kKind, " its own shared_name"));
  }
  tensorflow::Tensor* handle = nullptr;
  status = ctx->allocate_output(0, tensorflow::TensorShape({}), &handle);
  if (!status.ok()) return status;
  handle->scalar<tensorflow::ResourceHandle>()() =
      tensorflow::MakeResourceHandle<Resource>(ctx, container, name);
  return resource;
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_KERNELS_RESOURCES_H_
