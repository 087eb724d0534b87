// CRC-32C, which every block that is read from SSD has to be checked with.

#ifndef TF_HPS_CC_OPS_ENGINE_CRC32C_H_
#define TF_HPS_CC_OPS_ENGINE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tf_hps {

// By the processor's instruction where it has one; the Abseil that TensorFlow brings does without.
uint32_t Crc32c(absl::string_view data);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_CRC32C_H_
