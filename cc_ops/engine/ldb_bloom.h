// LevelDB's bloom filters, for keys whose hash is worked out once for all files.
//
//   filter:  | bits | how many of them a key sets 1 |
//
// Source: LevelDB's util/bloom.cc and util/hash.cc, version 1.23.

#ifndef TF_HPS_CC_OPS_ENGINE_LDB_BLOOM_H_
#define TF_HPS_CC_OPS_ENGINE_LDB_BLOOM_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "cc_ops/engine/ldb_format.h"
#include "cc_ops/engine/ssd_key.h"

namespace tf_hps {

// The hash of a row's key.
inline uint32_t BloomHash(const SsdKey& key) {
  constexpr uint32_t kSeed = 0xbc9f1d34, kFactor = 0xc6a4a793;
  static_assert(kSsdKeyBytes % 4 == 0,
                "LevelDB treats the last bytes of other keys in another way");
  char entry[kSsdKeyBytes];
  WriteSsdKey(key.table_id, key.key, entry);
  uint32_t hash = kSeed ^ static_cast<uint32_t>(kSsdKeyBytes) * kFactor;
  for (size_t i = 0; i < kSsdKeyBytes; i += 4) {
    hash = (hash + LoadLittleEndian<uint32_t>(entry + i)) * kFactor;
    hash ^= hash >> 16;
  }
  return hash;
}

// False: the key of that hash is none of those that the filter was made of.
inline bool BloomMayMatch(uint32_t hash, absl::string_view filter) {
  if (filter.size() < 2) return false;
  const uint32_t bits = static_cast<uint32_t>(filter.size() - 1) * 8;
  const auto probes = static_cast<uint8_t>(filter.back());
  if (probes > 30) return true;  // kept for other kinds of filters
  const uint32_t step = hash >> 17 | hash << 15;
  for (int i = 0; i < probes; ++i, hash += step) {
    const uint32_t bit = hash % bits;
    if (!(static_cast<uint8_t>(filter[bit / 8]) >> (bit % 8) & 1)) return false;
  }
  return true;
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_LDB_BLOOM_H_
