// Hashes that are the same on every platform and build, and stay so: initial rows, file formats and
// the placement of rows follow from them.

#ifndef TF_HPS_CC_OPS_ENGINE_STABLE_HASH_H_
#define TF_HPS_CC_OPS_ENGINE_STABLE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tf_hps {

// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that spreads each
// bit over all.
inline uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// FNV-1a over the bytes, then Mix64.
inline uint64_t StableHash64(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return Mix64(hash);
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_STABLE_HASH_H_
