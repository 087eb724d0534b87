// One 64-bit hash of a key, and the independent bit ranges that the engine takes from it.

#ifndef TF_HPS_CC_OPS_ENGINE_KEY_HASH_H_
#define TF_HPS_CC_OPS_ENGINE_KEY_HASH_H_

#include <cstdint>

#include "cc_ops/engine/stable_hash.h"

namespace tf_hps {

// A bijection: no two keys collide. Frozen: it decides in which LevelDB instance a row lies on disk
// (docs/format.md).
inline uint64_t HashKey(int64_t key) {
  return Mix64(static_cast<uint64_t>(key) + 0x9e3779b97f4a7c15ull);
}

// Bits 63..: which of `count` (a power of two, at most 2^16) partitions or LevelDB instances. As
// both take the top bits, a partition lies within one instance whenever there are at least as many
// partitions as instances.
inline uint32_t PartitionOf(uint64_t hash, uint32_t count) {
  return static_cast<uint32_t>((hash >> 48) * count >> 16);
}

// Bits 39..8, scaled to [0, buckets): the home bucket within a partition's index.
inline uint32_t BucketOf(uint64_t hash, uint32_t buckets) {
  return static_cast<uint32_t>(((hash >> 8) & 0xffffffffull) * buckets >> 32);
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_KEY_HASH_H_
