// The key of an entry on SSD: table id (4 bytes, big endian) . key (8 bytes, big endian, sign bit
// flipped).

#ifndef TF_HPS_CC_OPS_ENGINE_SSD_KEY_H_
#define TF_HPS_CC_OPS_ENGINE_SSD_KEY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "cc_ops/engine/row.h"

namespace tf_hps {

inline constexpr size_t kSsdKeyBytes = 12;

// In the order of the entries.
struct SsdKey {
  uint32_t table_id;
  int64_t key;

  friend bool operator==(const SsdKey& x, const SsdKey& y) {
    return x.table_id == y.table_id && x.key == y.key;
  }
  friend bool operator<(const SsdKey& x, const SsdKey& y) {
    return x.table_id != y.table_id ? x.table_id < y.table_id : x.key < y.key;
  }
  template <typename H>
  friend H AbslHashValue(H h, const SsdKey& k) {
    return H::combine(std::move(h), k.table_id, k.key);
  }
};

// Bytes of a row's key and value.
inline int64_t EntryBytes(const RowLayout& layout) {
  return static_cast<int64_t>(kSsdKeyBytes) + layout.encoded_bytes();
}

// Writes kSsdKeyBytes.
inline void WriteSsdKey(uint32_t table_id, int64_t key, char* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(table_id >> (24 - 8 * i));
  const uint64_t ordered = static_cast<uint64_t>(key) ^ (uint64_t{1} << 63);
  for (int i = 0; i < 8; ++i) out[4 + i] = static_cast<char>(ordered >> (56 - 8 * i));
}

// Where a row's entry lies; kSsdKeyBytes.
inline std::string EncodeSsdKey(uint32_t table_id, int64_t key) {
  std::string encoded(kSsdKeyBytes, '\0');
  WriteSsdKey(table_id, key, encoded.data());
  return encoded;
}

// False when `entry` is of another length.
inline bool ParseSsdKey(absl::string_view entry, uint32_t* table_id, int64_t* key) {
  if (entry.size() != kSsdKeyBytes) return false;
  uint32_t id = 0;
  for (int i = 0; i < 4; ++i) id = id << 8 | static_cast<uint8_t>(entry[i]);
  uint64_t ordered = 0;
  for (int i = 4; i < 12; ++i) ordered = ordered << 8 | static_cast<uint8_t>(entry[i]);
  *table_id = id;
  *key = static_cast<int64_t>(ordered ^ (uint64_t{1} << 63));
  return true;
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SSD_KEY_H_
