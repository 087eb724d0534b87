#ifndef TF_HPS_CC_OPS_ENGINE_PREFETCH_H_
#define TF_HPS_CC_OPS_ENGINE_PREFETCH_H_

namespace tf_hps {

// Asks for the cache line at `address`, which need not be readable.
//
// GCC takes a function that only prefetches for one without effects and leaves out calls to it,
// unless it is inlined. The empty statement is an effect.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  asm volatile("" : : "r"(address));
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_PREFETCH_H_
