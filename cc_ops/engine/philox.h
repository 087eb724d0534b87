#ifndef TF_HPS_CC_OPS_ENGINE_PHILOX_H_
#define TF_HPS_CC_OPS_ENGINE_PHILOX_H_

#include <cstdint>

#include "cc_ops/engine/host_device.h"

namespace tf_hps {

// Philox4x32-10, the counter-based generator of J. K. Salmon, M. A. Moraes, R. O. Dror and D. E.
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011: a keyed bijection of 128-bit
// counters. It has no state, so any thread may compute any block in any order.
class Philox {
 public:
  struct Block {
    uint32_t word[4];
  };

  // `key` is k0 (low half) and k1 (high half) of the paper.
  TF_HPS_HOST_DEVICE explicit Philox(uint64_t key) : key_(key) {}

  // The block of the counter (c0, c1, c2, c3): `low` is c0 and c1, `high` is c2 and c3.
  TF_HPS_HOST_DEVICE Block operator()(uint64_t low, uint64_t high) const {
    Block block = {{Low(low), High(low), Low(high), High(high)}};
    uint32_t k0 = Low(key_);
    uint32_t k1 = High(key_);
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t product0 = uint64_t{kMultiplier0} * block.word[0];
      const uint64_t product1 = uint64_t{kMultiplier1} * block.word[2];
      block = {{High(product1) ^ block.word[1] ^ k0, Low(product1),
                High(product0) ^ block.word[3] ^ k1, Low(product0)}};
      k0 += kWeyl0;
      k1 += kWeyl1;
    }
    return block;
  }

 private:
  static constexpr int kRounds = 10;
  static constexpr uint32_t kMultiplier0 = 0xD2511F53;
  static constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  static constexpr uint32_t kWeyl0 = 0x9E3779B9;  // the golden ratio
  static constexpr uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1

  TF_HPS_HOST_DEVICE static uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
  TF_HPS_HOST_DEVICE static uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  uint64_t key_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_PHILOX_H_
