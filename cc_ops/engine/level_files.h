// Which table files make up a LevelDB database, level by level, as its MANIFEST says.
//
// A MANIFEST is a log of edits. SsdEnv hands on what LevelDB writes to it, so that whoever reads
// rows knows LevelDB's files at the moment at which LevelDB itself does.
//
// Source: LevelDB's doc/log_format.md and db/version_edit.cc, version 1.23.

#ifndef TF_HPS_CC_OPS_ENGINE_LEVEL_FILES_H_
#define TF_HPS_CC_OPS_ENGINE_LEVEL_FILES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/table_reader.h"

namespace tf_hps {

struct LevelFile {
  uint64_t number;
  int64_t bytes;
  SsdKey smallest;
  SsdKey largest;
  mutable TableSlot slot;  // of its reader

  LevelFile(uint64_t number, int64_t bytes, SsdKey smallest, SsdKey largest)
      : number(number), bytes(bytes), smallest(smallest), largest(largest) {}
};

inline constexpr int kLdbLevels = 7;

struct LevelFiles {
  // Level 0 from the newest to the oldest, the others in the order of their keys, without overlap.
  std::array<std::vector<std::shared_ptr<const LevelFile>>, kLdbLevels> levels;
};

// Reads a MANIFEST from its beginning.
class ManifestReader {
 public:
  // False once the log makes no sense, or names a key that is none of ours.
  bool Append(absl::string_view data);

  // The files as of the last whole edit.
  std::shared_ptr<const LevelFiles> files() const {
    return std::make_shared<const LevelFiles>(files_);
  }

 private:
  bool TakeRecord();
  bool ApplyEdit(absl::string_view edit);
  void Remove(uint64_t level, uint64_t number);
  void Add(uint64_t level, std::shared_ptr<const LevelFile> file);

  std::string unread_;
  uint64_t offset_ = 0;  // of unread_ in the file
  std::string edit_;     // so far
  bool ok_ = true;
  LevelFiles files_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_LEVEL_FILES_H_
