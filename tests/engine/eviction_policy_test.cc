#include "cc_ops/engine/eviction_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace tf_hps {
namespace {

// The rank of a row that was used so often, each time in the same epoch, and then not for `epochs`.
uint32_t RankAfter(const EvictionPolicy& policy, int uses, int epochs) {
  uint8_t score = policy.Initial(0);
  for (int i = 0; i < uses; ++i) score = policy.Used(score, 0);
  return policy.Rank(score, static_cast<uint16_t>(epochs), 0);
}

class EvictionPolicyTest : public testing::TestWithParam<const char*> {
 protected:
  const EvictionPolicy policy_ = *EvictionPolicy::Parse(GetParam());
};

TEST_P(EvictionPolicyTest, NameReadsBack) { EXPECT_EQ(policy_.name(), GetParam()); }

TEST_P(EvictionPolicyTest, UseNeverLowersARank) {
  for (int score = 0; score <= 255; ++score) {
    for (const uint16_t epochs : {0, 1, 7, 8, 1000, 65535}) {
      const uint8_t before = static_cast<uint8_t>(score);
      EXPECT_GE(policy_.Rank(policy_.Used(before, epochs), 0, 1), policy_.Rank(before, epochs, 1));
    }
  }
}

TEST_P(EvictionPolicyTest, AgeingNeverRaisesARankAndRanksAreInRange) {
  for (int score = 0; score <= 255; ++score) {
    for (int epochs = 0; epochs < 300; ++epochs) {
      const uint32_t rank =
          policy_.Rank(static_cast<uint8_t>(score), static_cast<uint16_t>(epochs), 9);
      EXPECT_LT(rank, EvictionPolicy::kRanks);
      EXPECT_GE(rank,
                policy_.Rank(static_cast<uint8_t>(score), static_cast<uint16_t>(epochs + 1), 9));
    }
  }
}

TEST_P(EvictionPolicyTest, EpochsEndInPartitionsOfAnySize) {
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 32}) {
    EXPECT_GE(policy_.EpochUses(rows), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EvictionPolicyTest, testing::Values("lfu", "lru"));

TEST(LfuTest, MoreUsesRankHigherUpToSaturation) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_GT(RankAfter(lfu, 10, 0), RankAfter(lfu, 9, 0));
  EXPECT_EQ(RankAfter(lfu, 1000, 0), RankAfter(lfu, 255, 0));
}

TEST(LfuTest, AFrequentRowOutlivesARecentOne) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_GT(RankAfter(lfu, 100, 3), RankAfter(lfu, 1, 0));
}

TEST(LfuTest, AFrequentRowOfLongAgoGivesWay) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_LT(RankAfter(lfu, 1000, 9), RankAfter(lfu, 1, 0));
}

TEST(LfuTest, UsesOfFormerEpochsCountLess) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_EQ(lfu.Used(100, 0), 101);
  EXPECT_EQ(lfu.Used(100, 2), 26);
  EXPECT_EQ(lfu.Used(255, 60000), 1);
}

TEST(LfuTest, ARowThatComesBackHasItsPast) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_EQ(lfu.Initial(0), 0);
  EXPECT_GT(lfu.Initial(1000), lfu.Initial(10));
  EXPECT_GT(lfu.Rank(1, 0, 100), lfu.Rank(1, 0, 10));
  EXPECT_GT(lfu.Rank(2, 0, 0), lfu.Rank(1, 0, UINT32_MAX));
}

TEST(LruTest, ARecentRowOutlivesAFrequentOne) {
  const EvictionPolicy lru(EvictionPolicy::kLru);
  EXPECT_GT(RankAfter(lru, 1, 0), RankAfter(lru, 1000, 1));
}

TEST(EvictionPolicyParseTest, RefusesOtherNames) {
  for (const char* name : {"", "LFU", "fifo"}) {
    const auto policy = EvictionPolicy::Parse(name);
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(policy.status().message().find(absl::StrCat("\"", name, "\"")), std::string::npos);
  }
}

}  // namespace
}  // namespace tf_hps
