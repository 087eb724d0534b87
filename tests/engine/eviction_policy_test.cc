#include "cc_ops/engine/eviction_policy.h"

#include <gtest/gtest.h>

#include <string>

namespace tf_hps {
namespace {

uint8_t After(const EvictionPolicy& policy, uint8_t score, int touches, int passes) {
  for (int i = 0; i < touches; ++i) score = policy.Touched(score);
  for (int i = 0; i < passes; ++i) score = policy.Aged(score);
  return score;
}

class EvictionPolicyTest : public testing::TestWithParam<const char*> {
 protected:
  const EvictionPolicy policy_ = *EvictionPolicy::Parse(GetParam());
};

TEST_P(EvictionPolicyTest, NameReadsBack) { EXPECT_EQ(policy_.name(), GetParam()); }

TEST_P(EvictionPolicyTest, UseNeverLowersAScore) {
  for (int score = 0; score <= 255; ++score) {
    if (GetParam() == std::string("lru") && score > policy_.Initial()) continue;  // never reached
    EXPECT_GE(policy_.Touched(static_cast<uint8_t>(score)), score);
  }
}

TEST_P(EvictionPolicyTest, AgeingNeverRaisesAScoreAndEndsAtZero) {
  for (int score = 0; score <= 255; ++score) {
    EXPECT_LE(policy_.Aged(static_cast<uint8_t>(score)), score);
    EXPECT_EQ(After(policy_, static_cast<uint8_t>(score), 0, 256), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EvictionPolicyTest, testing::Values("lfu", "lru"));

TEST(LfuTest, MoreUsesScoreHigherUpToSaturation) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_GT(After(lfu, lfu.Initial(), 10, 0), After(lfu, lfu.Initial(), 9, 0));
  EXPECT_EQ(After(lfu, lfu.Initial(), 1000, 0), 255);
}

TEST(LfuTest, AFrequentRowOutlivesARecentOne) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_GT(After(lfu, lfu.Initial(), 100, 3), After(lfu, lfu.Initial(), 1, 0));
}

TEST(LfuTest, AFrequentRowOfLongAgoGivesWay) {
  const EvictionPolicy lfu(EvictionPolicy::kLfu);
  EXPECT_LT(After(lfu, lfu.Initial(), 1000, 9), After(lfu, lfu.Initial(), 1, 0));
}

TEST(LruTest, ARecentRowOutlivesAFrequentOne) {
  const EvictionPolicy lru(EvictionPolicy::kLru);
  EXPECT_GT(After(lru, lru.Initial(), 1, 0), After(lru, lru.Initial(), 1000, 1));
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
