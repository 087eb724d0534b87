// Checks every byte of a LevelDB table file (.ldb), which LevelDB itself does only for the blocks
// that it happens to read, and without saying in which file. ldb_format.h has the format.

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
