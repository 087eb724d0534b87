#include "cc_ops/engine/ldb_format.h"

#include "cc_ops/engine/crc32c.h"

namespace tf_hps {
namespace {

constexpr uint64_t kMagic = 0xdb4775248b80fb57ull;

}  // namespace

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

bool TakeLengthPrefixed(absl::string_view* data, absl::string_view* value) {
  uint64_t bytes;
  if (!TakeVarint(data, &bytes) || bytes > data->size()) return false;
  *value = data->substr(0, bytes);
  data->remove_prefix(bytes);
  return true;
}

bool TakeHandle(absl::string_view* data, LdbHandle* handle) {
  return TakeVarint(data, &handle->offset) && TakeVarint(data, &handle->size);
}

bool ParseFooter(absl::string_view footer, LdbHandle* metaindex, LdbHandle* index) {
  if (footer.size() != kLdbFooterBytes) return false;
  if (LoadLittleEndian<uint64_t>(footer.data() + kLdbFooterBytes - 8) != kMagic) return false;
  footer.remove_suffix(8);
  return TakeHandle(&footer, metaindex) && TakeHandle(&footer, index) &&
         footer.find_first_not_of('\0') == footer.npos;
}

uint32_t MaskedCrc32c(absl::string_view data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

bool ChecksumFits(absl::string_view block_with_trailer) {
  if (block_with_trailer.size() < kLdbTrailerBytes) return false;
  const absl::string_view covered = block_with_trailer.substr(0, block_with_trailer.size() - 4);
  return MaskedCrc32c(covered) == LoadLittleEndian<uint32_t>(covered.data() + covered.size());
}

LdbEntries::LdbEntries(absl::string_view contents) {
  if (contents.size() < 4) {
    ok_ = false;
    return;
  }
  restart_count_ = LoadLittleEndian<uint32_t>(contents.data() + contents.size() - 4);
  if (4 * (uint64_t{restart_count_} + 1) > contents.size()) {
    ok_ = false;
    return;
  }
  entries_ = contents.substr(0, contents.size() - 4 * (size_t{restart_count_} + 1));
  restarts_ = entries_.data() + entries_.size();
  rest_ = entries_;
}

bool LdbEntries::Fail() {
  ok_ = false;
  rest_ = {};
  return false;
}

bool LdbEntries::TakeEntry(absl::string_view* rest, absl::string_view* unshared, uint64_t* shared,
                           absl::string_view* value) const {
  uint64_t unshared_bytes, value_bytes;
  if (!TakeVarint(rest, shared) || !TakeVarint(rest, &unshared_bytes) ||
      !TakeVarint(rest, &value_bytes) || unshared_bytes > rest->size() ||
      value_bytes > rest->size() - unshared_bytes) {
    return false;
  }
  *unshared = rest->substr(0, unshared_bytes);
  *value = rest->substr(unshared_bytes, value_bytes);
  rest->remove_prefix(unshared_bytes + value_bytes);
  return true;
}

bool LdbEntries::Next() {
  if (rest_.empty()) return false;
  absl::string_view unshared;
  uint64_t shared;
  if (!TakeEntry(&rest_, &unshared, &shared, &value_) || shared > key_.size()) return Fail();
  key_.resize(shared);
  key_.append(unshared.data(), unshared.size());
  return true;
}

void LdbEntries::SeekRestartBefore(absl::string_view key) {
  uint32_t low = 0, high = restart_count_;  // the first `low` restart points come before the key
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const uint32_t offset = LoadLittleEndian<uint32_t>(restarts_ + 4 * size_t{middle});
    absl::string_view rest = offset <= entries_.size() ? entries_.substr(offset) : "";
    absl::string_view first, value;
    uint64_t shared;
    if (!TakeEntry(&rest, &first, &shared, &value) || shared != 0) {
      Fail();
      return;
    }
    if (first.substr(0, key.size()) < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const size_t from = low == 0 ? 0 : LoadLittleEndian<uint32_t>(restarts_ + 4 * size_t{low - 1});
  rest_ = entries_.substr(from);
  key_.clear();
}

}  // namespace tf_hps
