#include "cc_ops/engine/table_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/crc/crc32c.h"
#include "absl/strings/str_cat.h"

namespace tf_hps {
namespace {

constexpr size_t kFooterBytes = 48;
constexpr size_t kTrailerBytes = 5;  // type and checksum
constexpr uint64_t kMagic = 0xdb4775248b80fb57ull;

template <typename Int>
Int LoadLittleEndian(const char* p) {
  Int value = 0;
  for (size_t i = sizeof(Int); i-- > 0;) value = value << 8 | static_cast<uint8_t>(p[i]);
  return value;
}

// Takes a varint off the front of *data. Not one with more bytes than it needs: LevelDB writes
// none, so a bit has been flipped, even if the value is the same.
bool TakeVarint(absl::string_view* data, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !data->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(data->front());
    data->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return byte != 0 || shift == 0;
  }
  return false;
}

struct Handle {
  uint64_t offset;
  uint64_t size;
};

bool TakeHandle(absl::string_view* data, Handle* handle) {
  return TakeVarint(data, &handle->offset) && TakeVarint(data, &handle->size);
}

// The handles that an index block has for values.
bool ReadHandles(absl::string_view block, std::vector<Handle>* handles) {
  if (block.size() < 4) return false;
  const uint64_t restarts = LoadLittleEndian<uint32_t>(block.data() + block.size() - 4);
  if (4 * (restarts + 1) > block.size()) return false;
  absl::string_view entries = block.substr(0, block.size() - 4 * (restarts + 1));
  while (!entries.empty()) {
    uint64_t shared, unshared, value_bytes;
    if (!TakeVarint(&entries, &shared) || !TakeVarint(&entries, &unshared) ||
        !TakeVarint(&entries, &value_bytes) || unshared > entries.size() ||
        value_bytes > entries.size() - unshared) {
      return false;
    }
    absl::string_view value = entries.substr(unshared, value_bytes);
    if (!TakeHandle(&value, &handles->emplace_back())) return false;
    entries.remove_prefix(unshared + value_bytes);
  }
  return true;
}

class FileCheck {
 public:
  explicit FileCheck(absl::string_view data) : data_(data) {}

  std::vector<std::string> Run() {
    if (data_.size() < kFooterBytes) {
      Report(absl::StrCat("it has ", data_.size(), " bytes, fewer than a footer"));
      return damage_;
    }
    Handle metaindex, index;
    absl::string_view footer = data_.substr(data_.size() - kFooterBytes);
    const absl::string_view magic = footer.substr(kFooterBytes - 8);
    footer.remove_suffix(8);
    if (LoadLittleEndian<uint64_t>(magic.data()) != kMagic || !TakeHandle(&footer, &metaindex) ||
        !TakeHandle(&footer, &index) || footer.find_first_not_of('\0') != footer.npos) {
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
  absl::string_view Block(const Handle& handle, absl::string_view what) {
    const uint64_t end = data_.size() - kFooterBytes;
    if (handle.size > end || handle.offset > end - handle.size ||
        end - handle.size - handle.offset < kTrailerBytes) {
      Report(absl::StrCat("its ", what, " block at byte ", handle.offset, " of ", handle.size,
                          " bytes lies outside"));
      return {};
    }
    blocks_.push_back(handle);
    const absl::string_view covered = data_.substr(handle.offset, handle.size + 1);
    const auto crc = static_cast<uint32_t>(absl::ComputeCrc32c(covered));
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    if (masked != LoadLittleEndian<uint32_t>(covered.data() + covered.size())) {
      Report(absl::StrCat("the checksum of its ", what, " block at byte ", handle.offset,
                          " does not fit"));
      return {};
    }
    return covered.substr(0, handle.size);
  }

  void CheckIndex(const Handle& handle, absl::string_view what) {
    const absl::string_view block = Block(handle, what);
    if (block.data() == nullptr) return;
    std::vector<Handle> handles;
    if (!ReadHandles(block, &handles)) Report(absl::StrCat("its ", what, " block cannot be read"));
    const absl::string_view part = what == "index" ? "data" : "filter";
    for (const Handle& each : handles) Block(each, part);
  }

  // Blocks follow one another without a gap, so that every byte has a checksum.
  void CheckNothingBetween() {
    std::sort(blocks_.begin(), blocks_.end(),
              [](const Handle& x, const Handle& y) { return x.offset < y.offset; });
    uint64_t end = 0;
    for (const Handle& block : blocks_) {
      if (block.offset != end) {
        Report(absl::StrCat("bytes ", end, " to ", block.offset, " belong to no block"));
      }
      end = block.offset + block.size + kTrailerBytes;
    }
    if (end != data_.size() - kFooterBytes) {
      Report(absl::StrCat("bytes from ", end, " to the footer belong to no block"));
    }
  }

  const absl::string_view data_;
  std::vector<Handle> blocks_;
  std::vector<std::string> damage_;
};

}  // namespace

std::vector<std::string> TableFileDamage(absl::string_view data) { return FileCheck(data).Run(); }

}  // namespace tf_hps
