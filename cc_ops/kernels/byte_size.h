#ifndef TF_HPS_CC_OPS_KERNELS_BYTE_SIZE_H_
#define TF_HPS_CC_OPS_KERNELS_BYTE_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tf_hps {

// A number of bytes as users write it: "2147483648", "512MB", "1.5 GiB"; units B, KB, MB, GB, TB
// (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024), in any case. InvalidArgument, which
// says that, for anything else.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_KERNELS_BYTE_SIZE_H_
