#include "cc_ops/engine/table_file.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/ldb_format.h"

namespace tf_hps {
namespace {

// The handles that an index block has for values.
bool ReadHandles(absl::string_view block, std::vector<LdbHandle>* handles) {
  LdbEntries entries(block);
  while (entries.Next()) {
    absl::string_view value = entries.value();
    if (!TakeHandle(&value, &handles->emplace_back())) return false;
  }
  return entries.ok();
}

class FileCheck {
 public:
  explicit FileCheck(absl::string_view data) : data_(data) {}

  std::vector<std::string> Run() {
    if (data_.size() < kLdbFooterBytes) {
      Report(absl::StrCat("it has ", data_.size(), " bytes, fewer than a footer"));
      return damage_;
    }
    LdbHandle metaindex, index;
    if (!ParseFooter(data_.substr(data_.size() - kLdbFooterBytes), &metaindex, &index)) {
      Report("its footer is not that of a LevelDB table");
      return damage_;
    }
    CheckIndex(metaindex, "metaindex");
    CheckIndex(index, "index");
    if (damage_.empty()) CheckNothingBetween();
    return damage_;
  }

 private:
  void Report(std::string what) { damage_.push_back(std::move(what)); }

  // The contents of a sound block; of another nothing, which it reports.
  absl::string_view Block(const LdbHandle& handle, absl::string_view what) {
    const uint64_t end = data_.size() - kLdbFooterBytes;
    if (handle.size > end || handle.offset > end - handle.size ||
        end - handle.size - handle.offset < kLdbTrailerBytes) {
      Report(absl::StrCat("its ", what, " block at byte ", handle.offset, " of ", handle.size,
                          " bytes lies outside"));
      return {};
    }
    blocks_.push_back(handle);
    if (!ChecksumFits(data_.substr(handle.offset, handle.size + kLdbTrailerBytes))) {
      Report(absl::StrCat("the checksum of its ", what, " block at byte ", handle.offset,
                          " does not fit"));
      return {};
    }
    return data_.substr(handle.offset, handle.size);
  }

  void CheckIndex(const LdbHandle& handle, absl::string_view what) {
    const absl::string_view block = Block(handle, what);
    if (block.data() == nullptr) return;
    std::vector<LdbHandle> handles;
    if (!ReadHandles(block, &handles)) Report(absl::StrCat("its ", what, " block cannot be read"));
    const absl::string_view part = what == "index" ? "data" : "filter";
    for (const LdbHandle& each : handles) Block(each, part);
  }

  // Blocks follow one another without a gap, so that every byte has a checksum.
  void CheckNothingBetween() {
    std::sort(blocks_.begin(), blocks_.end(),
              [](const LdbHandle& x, const LdbHandle& y) { return x.offset < y.offset; });
    uint64_t end = 0;
    for (const LdbHandle& block : blocks_) {
      if (block.offset != end) {
        Report(absl::StrCat("bytes ", end, " to ", block.offset, " belong to no block"));
      }
      end = block.offset + block.size + kLdbTrailerBytes;
    }
    if (end != data_.size() - kLdbFooterBytes) {
      Report(absl::StrCat("bytes from ", end, " to the footer belong to no block"));
    }
  }

  const absl::string_view data_;
  std::vector<LdbHandle> blocks_;
  std::vector<std::string> damage_;
};

}  // namespace

std::vector<std::string> TableFileDamage(absl::string_view data) { return FileCheck(data).Run(); }

}  // namespace tf_hps
