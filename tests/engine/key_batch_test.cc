#include "cc_ops/engine/key_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "cc_ops/engine/key_hash.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

constexpr uint32_t kPartitions = 8;

// With many duplicates and all the extremes.
std::vector<int64_t> RandomKeys(size_t n) {
  std::mt19937_64 rng(17);
  std::vector<int64_t> keys = {INT64_MIN, INT64_MAX, 0, -1, -2, INT64_MIN};
  while (keys.size() < n) keys.push_back(static_cast<int64_t>(rng() % (n / 4)) - 50);
  std::shuffle(keys.begin(), keys.end(), rng);
  return keys;
}

TEST(KeyBatchTest, EachPartitionHasItsKeysAndNoOther) {
  const std::vector<int64_t> keys = RandomKeys(2000);
  const KeyBatch batch(keys, kPartitions, SerialFor);
  ASSERT_EQ(batch.partitions(), kPartitions);
  size_t uniques = 0;
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_FALSE(batch.uniques(p).empty());
    for (const KeyBatch::Unique& unique : batch.uniques(p)) {
      EXPECT_EQ(unique.hash, HashKey(unique.key));
      EXPECT_EQ(PartitionOf(unique.hash, kPartitions), p);
    }
    uniques += batch.uniques(p).size();
  }
  EXPECT_EQ(uniques, std::set<int64_t>(keys.begin(), keys.end()).size());
}

TEST(KeyBatchTest, MembersCoverTheBatchInItsOrderAndPointToTheirKey) {
  const std::vector<int64_t> keys = RandomKeys(2000);
  const KeyBatch batch(keys, kPartitions, SerialFor);
  std::vector<int> seen(keys.size());
  for (uint32_t p = 0; p < kPartitions; ++p) {
    int32_t last = -1;
    for (const KeyBatch::Member& member : batch.members(p)) {
      EXPECT_LT(last, member.index);
      last = member.index;
      EXPECT_EQ(batch.uniques(p)[member.unique].key, keys[member.index]);
      ++seen[member.index];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(keys.size(), 1));
}

TEST(KeyBatchTest, UniquesStandInTheOrderOfFirstOccurrence) {
  const std::vector<int64_t> keys = RandomKeys(2000);
  const KeyBatch batch(keys, kPartitions, SerialFor);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    int32_t next = 0;
    for (const KeyBatch::Member& member : batch.members(p)) {
      ASSERT_LE(member.unique, next);
      if (member.unique == next) ++next;
    }
    EXPECT_EQ(next, static_cast<int32_t>(batch.uniques(p).size()));
  }
}

TEST(KeyBatchTest, IsTheSameForAnyNumberOfThreads) {
  const std::vector<int64_t> keys = RandomKeys(5000);
  const KeyBatch serial(keys, kPartitions, SerialFor);
  const KeyBatch parallel(keys, kPartitions, TestThreads(4));
  for (uint32_t p = 0; p < kPartitions; ++p) {
    ASSERT_EQ(serial.uniques(p).size(), parallel.uniques(p).size());
    ASSERT_EQ(serial.members(p).size(), parallel.members(p).size());
    for (size_t i = 0; i < serial.uniques(p).size(); ++i) {
      EXPECT_EQ(serial.uniques(p)[i].key, parallel.uniques(p)[i].key);
    }
    for (size_t i = 0; i < serial.members(p).size(); ++i) {
      EXPECT_EQ(serial.members(p)[i].index, parallel.members(p)[i].index);
      EXPECT_EQ(serial.members(p)[i].unique, parallel.members(p)[i].unique);
    }
  }
}

TEST(KeyBatchTest, UniquesKnowTheirFirstOccurrenceAndTheirNumber) {
  const std::vector<int64_t> keys = RandomKeys(20000);  // several shards
  const KeyBatch batch(keys, kPartitions, TestThreads(4));
  for (uint32_t p = 0; p < kPartitions; ++p) {
    for (const KeyBatch::Unique& unique : batch.uniques(p)) {
      EXPECT_EQ(unique.first, std::find(keys.begin(), keys.end(), unique.key) - keys.begin());
      EXPECT_EQ(unique.count, std::count(keys.begin(), keys.end(), unique.key));
    }
  }
}

TEST(KeyBatchTest, NumbersTellUniquesOfAllPartitionsApart) {
  const std::vector<int64_t> keys = RandomKeys(20000);
  const KeyBatch batch(keys, kPartitions, TestThreads(4));
  ASSERT_EQ(batch.numbers().size(), keys.size());
  for (uint32_t p = 0; p < kPartitions; ++p) {
    for (const KeyBatch::Member& member : batch.members(p)) {
      EXPECT_EQ(batch.numbers()[member.index], batch.begin(p) + member.unique);
    }
    EXPECT_LE(batch.begin(p) + static_cast<int64_t>(batch.uniques(p).size()),
              p + 1 < kPartitions ? batch.begin(p + 1) : batch.size());
  }
}

// The scratch of deduplication is small for small partitions only.
TEST(KeyBatchTest, APartitionMayHaveMoreKeysThanSixteenBitsCount) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 140000; ++i) keys.push_back(i % 70000);
  const KeyBatch batch(keys, 1, SerialFor);
  ASSERT_EQ(batch.uniques(0).size(), 70000);
  for (int64_t i = 0; i < 140000; ++i) ASSERT_EQ(batch.numbers()[i], i % 70000);
}

TEST(KeyBatchTest, KnowsWhichKeysItIsOf) {
  std::vector<int64_t> keys = RandomKeys(100);
  const KeyBatch batch(keys, kPartitions, SerialFor);
  EXPECT_TRUE(batch.IsOf(keys));
  EXPECT_FALSE(batch.IsOf(absl::MakeConstSpan(keys).subspan(1)));
  std::swap(keys[3], keys[4]);
  ASSERT_NE(keys[3], keys[4]);
  EXPECT_FALSE(batch.IsOf(keys));
}

TEST(KeyBatchTest, OneKeyManyTimesIsOneUnique) {
  const KeyBatch batch(std::vector<int64_t>(1000, -7), kPartitions, SerialFor);
  const uint32_t p = PartitionOf(HashKey(-7), kPartitions);
  EXPECT_EQ(batch.uniques(p).size(), 1);
  EXPECT_EQ(batch.members(p).size(), 1000);
}

TEST(KeyBatchTest, NoKeysMakeAnEmptyBatch) {
  const KeyBatch batch({}, kPartitions, SerialFor);
  EXPECT_EQ(batch.size(), 0);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_TRUE(batch.uniques(p).empty());
    EXPECT_TRUE(batch.members(p).empty());
  }
}

}  // namespace
}  // namespace tf_hps
