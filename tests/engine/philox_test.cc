#include "cc_ops/engine/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace tf_hps {
namespace {

using Words = std::array<uint32_t, 4>;

uint64_t Join(uint32_t low, uint32_t high) { return (uint64_t{high} << 32) | low; }

Words Words4x32(const Words& counter, uint32_t k0, uint32_t k1) {
  const Philox::Block block =
      Philox(Join(k0, k1))(Join(counter[0], counter[1]), Join(counter[2], counter[3]));
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// The known answers for philox4x32 with 10 rounds that the authors publish with Random123.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(Words4x32({0, 0, 0, 0}, 0, 0), (Words{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Words4x32({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (Words{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Words4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0xA4093822, 0x299F31D0),
            (Words{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(PhiloxTest, EveryBitOfKeyAndCounterMatters) {
  const Words base = Words4x32({1, 2, 3, 4}, 5, 6);
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t flip = 1u << bit;
    EXPECT_NE(Words4x32({1, 2, 3, 4}, 5 ^ flip, 6), base);
    EXPECT_NE(Words4x32({1, 2, 3, 4}, 5, 6 ^ flip), base);
    for (int word = 0; word < 4; ++word) {
      Words counter = {1, 2, 3, 4};
      counter[word] ^= flip;
      EXPECT_NE(Words4x32(counter, 5, 6), base) << "bit " << bit << " of word " << word;
    }
  }
}

}  // namespace
}  // namespace tf_hps
