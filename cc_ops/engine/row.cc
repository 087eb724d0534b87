#include "cc_ops/engine/row.h"

#include "absl/strings/str_cat.h"

namespace tf_hps {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rows are stored as they lie in memory");

uint32_t LoadU32(const char* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

}  // namespace

void EncodeRow(const RowLayout& layout, uint32_t state_epoch, const Row& row, std::string* out) {
  const RowHeader& header = *row.header;
  const uint32_t words[4] = {header.version, header.frequency, header.last_step, state_epoch};
  out->append(reinterpret_cast<const char*>(words), sizeof(words));
  out->append(reinterpret_cast<const char*>(row.weights), 4 * static_cast<size_t>(layout.floats()));
}

absl::Status DecodeRow(const RowLayout& layout, uint32_t state_epoch, absl::string_view value,
                       const Row& row, bool* fresh_state) {
  const int64_t size = static_cast<int64_t>(value.size());
  const int64_t state_bytes = size - layout.encoded_bytes_without_state();
  if (state_bytes < 0 || state_bytes % (4ll * layout.dim) != 0) {
    return absl::DataLossError(absl::StrCat("a stored row has ", size, " bytes, expected ",
                                            layout.encoded_bytes(), " (dim ", layout.dim, ", ",
                                            layout.slots, " state slots)"));
  }
  row.header->version = LoadU32(value.data());
  row.header->frequency = LoadU32(value.data() + 4);
  row.header->last_step = LoadU32(value.data() + 8);
  const bool same_state = LoadU32(value.data() + 12) == state_epoch;
  if (same_state && size != layout.encoded_bytes()) {
    return absl::DataLossError(
        absl::StrCat("a stored row has ", size, " bytes, expected ", layout.encoded_bytes()));
  }
  const int64_t floats = same_state ? layout.floats() : layout.dim;
  std::memcpy(row.weights, value.data() + RowLayout::kEncodedHeaderBytes, 4 * floats);
  *fresh_state = !same_state;
  return absl::OkStatus();
}

}  // namespace tf_hps
