// Checks every byte of a LevelDB table file (.ldb), which LevelDB itself does only for the blocks
// that it happens to read, and without saying in which file.
//
//   | data block | ... | filter block | metaindex block | index block | footer 48 |
//
//   block:   | contents | type 1 | masked CRC-32C of both 4 |
//   footer:  | handle of the metaindex | handle of the index | zeros up to 40 | magic 8 |
//   handle:  | offset, varint | size without type and checksum, varint |

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_FILE_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_FILE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tf_hps {

// What is wrong with a file that holds `data`, a sentence each; none: it is sound.
std::vector<std::string> TableFileDamage(absl::string_view data);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_FILE_H_
