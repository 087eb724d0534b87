#include "cc_ops/kernels/inputs.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace tf_hps {

absl::Status CheckRank(const tensorflow::Tensor& tensor, absl::string_view input, int rank) {
  if (tensor.dims() == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(input, ": expected a tensor of rank ", rank,
                                                 ". Received: shape ",
                                                 tensor.shape().DebugString()));
}

absl::StatusOr<absl::Span<const int64_t>> KeysOf(const tensorflow::Tensor& keys,
                                                 std::vector<int64_t>* storage) {
  if (keys.NumElements() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys: expected at most ", std::numeric_limits<int32_t>::max(),
                     " in a batch. Received: ", keys.NumElements(), "; split the batch"));
  }
  const auto count = static_cast<size_t>(keys.NumElements());
  if (keys.dtype() == tensorflow::DT_INT64) {
    return absl::MakeConstSpan(keys.flat<int64_t>().data(), count);
  }
  const int32_t* const narrow = keys.flat<int32_t>().data();
  storage->assign(narrow, narrow + count);
  return absl::MakeConstSpan(*storage);
}

absl::Status CheckPair(const TieredTable& table, const tensorflow::Tensor& keys,
                       const tensorflow::Tensor& values, absl::string_view what) {
  if (keys.dims() == 1 && values.dims() == 2 && values.dim_size(0) == keys.dim_size(0) &&
      values.dim_size(1) == table.dim()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", table.name(), "\": expected keys of shape [n] and ", what, " of shape [n, ",
      table.dim(), "], the table's dim. Received: keys of shape ", keys.shape().DebugString(), ", ",
      what, " of shape ", values.shape().DebugString()));
}

absl::Status CheckDim(absl::string_view what, int rows_dim, int dim) {
  if (rows_dim == dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has rows of dim ", rows_dim,
                                                 ". Received: dim ", dim,
                                                 "; give the op the table's dim"));
}

}  // namespace tf_hps
