#include "cc_ops/engine/row_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "cc_ops/engine/key_hash.h"

namespace tf_hps {
namespace {

using Position = RowIndex::Position;

// Random operations, of few keys so that they meet, against a map.
class RowIndexTest : public testing::TestWithParam<int64_t> {
 protected:
  void Insert(int64_t key) {
    const auto position = static_cast<Position>(rng_() >> 40);
    index_.Insert(key, HashKey(key), position);
    model_[key] = position;
    if (rng_() % 3 == 0) Mark(key);
  }
  void Mark(int64_t key) {
    index_.Mark(HashKey(key));
    marked_.insert(key);
  }
  void Erase(int64_t key) {
    ASSERT_EQ(index_.Erase(key, HashKey(key)), model_[key]);
    model_.erase(key);
    marked_.erase(key);
  }

  void Check() {
    ASSERT_EQ(index_.size(), static_cast<int64_t>(model_.size()));
    std::map<int64_t, Position> content;
    index_.ForEach([&](int64_t key, Position* position) {
      EXPECT_TRUE(content.emplace(key, *position).second) << "twice: " << key;
    });
    ASSERT_EQ(content, model_);
    std::map<int64_t, Position> swept;
    uint32_t hand = static_cast<uint32_t>(rng_() % 1000);
    index_.Sweep(index_.bucket_count(), &hand, [&](int64_t key, Position position) {
      EXPECT_TRUE(swept.emplace(key, position).second) << "twice: " << key;
    });
    ASSERT_EQ(swept, model_);
    std::set<int64_t> marked;
    index_.ForEachMarked([&](int64_t key, Position position) {
      EXPECT_EQ(position, model_.at(key));
      EXPECT_TRUE(marked.insert(key).second) << "twice: " << key;
    });
    for (const int64_t key : marked_) ASSERT_EQ(marked.count(key), 1) << key;
  }

  RowIndex index_{RowIndex::NewSegments(GetParam())};
  std::map<int64_t, Position> model_;
  std::set<int64_t> marked_;
  std::mt19937_64 rng_{7};
};

TEST_P(RowIndexTest, RandomOperationsEqualAMap) {
  int64_t largest = 0, beyond_home = 0;
  for (int i = 0; i < 60000; ++i) {
    // Grows and shrinks by turns.
    const bool growing = i / 3000 % 2 == 0;
    const int64_t key = static_cast<int64_t>(rng_() % 3000) - 1500;
    const bool present = model_.count(key) > 0;
    ASSERT_EQ(index_.Find(key, HashKey(key)), present ? model_[key] : RowIndex::kNone);
    beyond_home += present && index_.HomeBucket(HashKey(key))->Find(key) == RowIndex::kNone;
    if (present && rng_() % 4 > growing) ASSERT_NO_FATAL_FAILURE(Erase(key));
    if (!present && rng_() % 4 > !growing) Insert(key);
    largest = std::max(largest, index_.size());
    if (i % 1500 == 0) {
      ASSERT_NO_FATAL_FAILURE(Check()) << "operation " << i;
      index_.ShrinkFor(index_.size());
      ASSERT_NO_FATAL_FAILURE(Check()) << "operation " << i;
    }
    if (i % 7000 == 0) {
      index_.ForgetMarks();
      marked_.clear();
    }
  }
  EXPECT_GT(largest, 1000);
  EXPECT_GT(beyond_home, 1000);
}

TEST_P(RowIndexTest, TakesTheBytesThatItSays) {
  for (int64_t key = 0; key < 20000; ++key) {
    index_.Insert(key, HashKey(key), 0);
    if (key < 100) continue;
    const double most = static_cast<double>(key + 1) * RowIndex::BytesPerKey();
    const double rounding = static_cast<double>(std::max<int64_t>(GetParam(), 64)) + 64;
    ASSERT_LT(static_cast<double>(index_.bytes()), most * 1.01 + rounding);
  }
  index_.Clear();
  EXPECT_EQ(index_.bytes(), 0);
  EXPECT_EQ(index_.Find(1, HashKey(1)), RowIndex::kNone);
}

TEST_P(RowIndexTest, NoKeysAreNoBytes) {
  EXPECT_EQ(index_.bytes(), 0);
  EXPECT_EQ(index_.Find(5, HashKey(5)), RowIndex::kNone);
  index_.ForEachMarked([](int64_t, Position) { std::abort(); });
  Insert(5);
  EXPECT_GT(index_.bytes(), 0);
  Erase(5);
  index_.ShrinkFor(0);
  EXPECT_EQ(index_.bytes(), 0);
  EXPECT_EQ(index_.Find(5, HashKey(5)), RowIndex::kNone);
}

INSTANTIATE_TEST_SUITE_P(SegmentBytes, RowIndexTest, testing::Values(1, 256, 65536));

}  // namespace
}  // namespace tf_hps
