// Checks of inputs that several kernels share.

#ifndef TF_HPS_CC_OPS_KERNELS_INPUTS_H_
#define TF_HPS_CC_OPS_KERNELS_INPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc_ops/engine/tiered_table.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_hps {

// InvalidArgument that names the input unless the tensor has this rank.
absl::Status CheckRank(const tensorflow::Tensor& tensor, absl::string_view input, int rank);

// The elements of int32 or int64 keys of any shape, widened into `storage` if need be; both must
// outlive the result. InvalidArgument: more than a batch may have.
absl::StatusOr<absl::Span<const int64_t>> KeysOf(const tensorflow::Tensor& keys,
                                                 std::vector<int64_t>* storage);

// Keys [n] and rows' values or gradients [n, dim of the table]. `what` names the latter in errors.
absl::Status CheckPair(const TieredTable& table, const tensorflow::Tensor& keys,
                       const tensorflow::Tensor& values, absl::string_view what);

// InvalidArgument unless an op's attribute dim is that of the rows. `what` has them: `table
// "user"`.
absl::Status CheckDim(absl::string_view what, int rows_dim, int dim);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_KERNELS_INPUTS_H_
