#ifndef TF_HPS_CC_OPS_ENGINE_PREFETCH_H_
#define TF_HPS_CC_OPS_ENGINE_PREFETCH_H_

#include <algorithm>
#include <cstdint>

namespace tf_hps {

// Asks for the cache line at `address`, which need not be readable.
//
// GCC takes a function that only prefetches for one without effects and leaves out calls to it,
// unless it is inlined. The empty statement is an effect.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  asm volatile("" : : "r"(address));
}

// Asks for the first `bytes` of some floats, at least one.
inline void PrefetchFloats(const float* floats, int64_t bytes) {
  // The hardware goes on by itself after a few lines. Each line once: asking again costs as much.
  constexpr int64_t kLine = 64, kMostBytes = 4 * kLine;
  const char* line = reinterpret_cast<const char*>(floats);
  const char* const end = line + std::min(bytes, kMostBytes);
  do {
    PrefetchLine(line);
    line += kLine - (reinterpret_cast<intptr_t>(line) & (kLine - 1));
  } while (line < end);
}

// Calls visit(i) for each i in [0, n), in this order, and prefetch(i) some visits before.
template <typename Prefetch, typename Visit>
void VisitPrefetched(int64_t n, Prefetch prefetch, Visit visit) {
  constexpr int64_t kAhead = 16;
  for (int64_t i = 0; i < std::min(kAhead, n); ++i) prefetch(i);
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) prefetch(i + kAhead);
    visit(i);
  }
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_PREFETCH_H_
