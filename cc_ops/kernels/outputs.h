// Outputs of kernels, from C++ values.

#ifndef TF_HPS_CC_OPS_KERNELS_OUTPUTS_H_
#define TF_HPS_CC_OPS_KERNELS_OUTPUTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_hps {

// Puts values into an output of the shape, row by row. A std::string goes into a string tensor.
template <typename T>
absl::Status Output(tensorflow::OpKernelContext* ctx, int index, const std::vector<T>& values,
                    const tensorflow::TensorShape& shape) {
  using Element = std::conditional_t<std::is_same_v<T, std::string>, tensorflow::tstring, T>;
  tensorflow::Tensor* output = nullptr;
  const absl::Status status = ctx->allocate_output(index, shape, &output);
  if (status.ok()) std::copy(values.begin(), values.end(), output->flat<Element>().data());
  return status;
}

template <typename T>
absl::Status OutputVector(tensorflow::OpKernelContext* ctx, int index,
                          const std::vector<T>& values) {
  return Output(ctx, index, values, tensorflow::TensorShape({static_cast<int64_t>(values.size())}));
}

template <typename T>
absl::Status OutputScalar(tensorflow::OpKernelContext* ctx, int index, const T& value) {
  return Output(ctx, index, std::vector<T>{value}, tensorflow::TensorShape({}));
}

// Puts a handle into a scalar output that owns the resource: it ends when the last tensor of it is
// gone. The handle remembers the type `Resource`, by which FindResource finds it.
template <typename Resource>
absl::Status OutputOwner(tensorflow::OpKernelContext* ctx, int index, Resource* resource) {
  return OutputScalar(
      ctx, index,
      tensorflow::ResourceHandle::MakeRefCountingHandle(resource, ctx->device()->name()));
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_KERNELS_OUTPUTS_H_
