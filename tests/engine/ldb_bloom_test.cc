// LevelDB's own filters are the oracle.

#include "cc_ops/engine/ldb_bloom.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "leveldb/filter_policy.h"
#include "leveldb/slice.h"

namespace tf_hps {
namespace {

TEST(LdbBloomTest, AnswersAsLevelDbDoes) {
  std::mt19937_64 rng(3);
  for (const int bits : {1, 4, 10, 20, 60}) {
    const std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(bits));
    for (const int keys : {0, 1, 2, 13, 100, 3000}) {
      std::vector<std::string> entries;
      std::vector<leveldb::Slice> slices;
      for (int i = 0; i < keys; ++i) {
        entries.push_back(
            EncodeSsdKey(static_cast<uint32_t>(rng() % 3), static_cast<int64_t>(rng())));
      }
      for (const std::string& entry : entries) slices.push_back(entry);
      std::string filter;
      policy->CreateFilter(slices.data(), keys, &filter);
      int matches = 0;
      for (int i = 0; i < 2000; ++i) {
        SsdKey key = {static_cast<uint32_t>(rng() % 3), static_cast<int64_t>(rng())};
        if (i < keys) ASSERT_TRUE(ParseSsdKey(entries[i], &key.table_id, &key.key));
        const std::string entry = EncodeSsdKey(key.table_id, key.key);
        const bool expected = policy->KeyMayMatch(entry, filter);
        ASSERT_EQ(BloomMayMatch(BloomHash(key), filter), expected) << bits << " " << keys;
        if (i < keys) ASSERT_TRUE(expected);
        matches += expected;
      }
      EXPECT_TRUE(keys == 0 || matches > 0);
    }
  }
}

TEST(LdbBloomTest, TooShortAndUnknownFiltersAnswerAsLevelDbsDo) {
  EXPECT_FALSE(BloomMayMatch(1, ""));
  EXPECT_FALSE(BloomMayMatch(1, "x"));
  EXPECT_TRUE(BloomMayMatch(1, std::string("\0\0\0\x1f", 4)));
  EXPECT_FALSE(BloomMayMatch(1, std::string("\0\0\0\x06", 4)));
}

}  // namespace
}  // namespace tf_hps
