#include "cc_ops/engine/key_hash.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tf_hps {
namespace {

// docs/format.md promises these: a store on disk depends on them.
TEST(KeyHashTest, IsFrozen) {
  EXPECT_EQ(HashKey(0), 0xe220a8397b1dcdafull);
  EXPECT_EQ(HashKey(1), 0x910a2dec89025cc1ull);
  EXPECT_EQ(HashKey(-1), 0xe4d971771b652c20ull);
  EXPECT_EQ(HashKey(INT64_MAX), 0x2a67d7552e039ea7ull);
  EXPECT_EQ(HashKey(INT64_MIN), 0x481ec0a212a9f3dbull);
}

TEST(KeyHashTest, PartitionsLieWithinOneInstance) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t hash = HashKey(static_cast<int64_t>(rng()));
    for (uint32_t instances = 1; instances <= 8; instances *= 2) {
      for (uint32_t partitions = instances; partitions <= 64; partitions *= 2) {
        EXPECT_EQ(PartitionOf(hash, partitions) * instances / partitions,
                  PartitionOf(hash, instances));
      }
    }
  }
}

TEST(KeyHashTest, PartitionsAndBucketsAreAllUsedAndInRange) {
  std::set<uint32_t> partitions, buckets;
  for (int64_t key = 0; key < 2000; ++key) {
    const uint64_t hash = HashKey(key);
    partitions.insert(PartitionOf(hash, 32));
    buckets.insert(BucketOf(hash, 37));
  }
  EXPECT_EQ(partitions.size(), 32);
  EXPECT_EQ(*partitions.rbegin(), 31);
  EXPECT_EQ(buckets.size(), 37);
  EXPECT_EQ(*buckets.rbegin(), 36);
}

// Else the rows of one partition would crowd in a part of its index.
TEST(KeyHashTest, BucketDoesNotFollowFromPartition) {
  std::set<uint32_t> buckets;
  for (int64_t key = 0; key < 4000; ++key) {
    const uint64_t hash = HashKey(key);
    if (PartitionOf(hash, 32) == 7) buckets.insert(BucketOf(hash, 8));
  }
  EXPECT_EQ(buckets.size(), 8);
}

}  // namespace
}  // namespace tf_hps
