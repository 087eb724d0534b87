#include "cc_ops/engine/dram_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "cc_ops/engine/key_hash.h"

namespace tf_hps {
namespace {

using Position = DramPartition::Position;
using Entry = DramPartition::Entry;

std::set<int64_t> KeysOf(const std::vector<Entry>& entries) {
  std::set<int64_t> keys;
  for (const Entry& entry : entries) keys.insert(entry.key);
  return keys;
}

// The inverse of x -> x * odd, and of x -> x ^ (x >> shift).
uint64_t InverseOf(uint64_t odd) {
  uint64_t inverse = odd;
  for (int i = 0; i < 6; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}
uint64_t UndoShift(uint64_t x, int shift) {
  uint64_t result = x;
  for (int i = shift; i < 64; i += shift) result = x ^ (result >> shift);
  return result;
}

// The key with a given hash: HashKey is a bijection.
int64_t KeyOfHash(uint64_t hash) {
  uint64_t x = UndoShift(hash, 31) * InverseOf(0x94d049bb133111ebull);
  x = UndoShift(x, 27) * InverseOf(0xbf58476d1ce4e5b9ull);
  return static_cast<int64_t>(UndoShift(x, 30) - 0x9e3779b97f4a7c15ull);
}

TEST(KeyOfHashTest, InvertsHashKey) {
  for (const int64_t key : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{12345}}) {
    EXPECT_EQ(KeyOfHash(HashKey(key)), key);
  }
}

const EvictionPolicy kLfu(EvictionPolicy::kLfu);
constexpr int64_t kNoLimit = int64_t{1} << 40;

// A partition of rows whose first weight is a stamp.
class Rows {
 public:
  Rows(int dim, int64_t slab_bytes, int64_t budget = kNoLimit,
       int64_t plain_bytes = SlabAllocator::kPlainBytes)
      : budget_(budget),
        partition_(
            RowLayout{dim, 1}, kLfu,
            std::make_shared<SlabAllocator>(RowLayout{dim, 1}.row_bytes(), slab_bytes, plain_bytes),
            RowIndex::NewSegments(slab_bytes), &budget_) {
    partition_.set_limit(budget);
  }

  DramPartition* operator->() { return &partition_; }
  const DramPartition* get() const { return &partition_; }
  MemoryBudget& budget() { return budget_; }

  Position Find(int64_t key) const { return partition_.Find(key, HashKey(key)); }
  Position Insert(int64_t key, float stamp) {
    if (partition_.free_slots() == 0) partition_.Grow(/*overdraw=*/true);
    const Position position = partition_.Insert(key, HashKey(key));
    partition_.RowAt(position).weights[0] = stamp;
    return position;
  }
  void Erase(int64_t key) { partition_.Erase(key, HashKey(key)); }
  float StampAt(Position position) { return partition_.RowAt(position).weights[0]; }

  // The whole content, by ForEach, checked against Find.
  std::map<int64_t, float> Content() {
    std::map<int64_t, float> content;
    partition_.ForEach([&](int64_t key, Position position) {
      EXPECT_EQ(Find(key), position);
      EXPECT_TRUE(content.emplace(key, StampAt(position)).second) << "twice: " << key;
    });
    return content;
  }

 private:
  MemoryBudget budget_;
  DramPartition partition_;
};

// How a fuzzed partition's keys are spread over its index.
enum class Keys { kSpread, kOneDigest, kOneBucket, kOneDigestAndBucket };

class DramPartitionFuzzTest : public testing::TestWithParam<std::tuple<int, int64_t, Keys>> {
 protected:
  int64_t RandomKey() {
    const uint64_t i = rng_() % 400;
    switch (std::get<Keys>(GetParam())) {
      case Keys::kSpread:
        return i == 0 ? INT64_MIN : i == 1 ? INT64_MAX : static_cast<int64_t>(i) - 200;
      case Keys::kOneDigest:
        return KeyOfHash(i * 0x0123456789abcd00ull | 0x42);
      case Keys::kOneBucket:
        return KeyOfHash(i << 48 | (i * 7 & 0xff));
      default:
        return KeyOfHash(i << 48 | 0x42);
    }
  }

  void InsertOrUpdate(int64_t key) {
    const float stamp = static_cast<float>(++stamps_);
    const Position position = rows_.Find(key);
    if (position == DramPartition::kNone) {
      if (rows_->free_slots() == 0 && rng_() % 20 == 0) EvictSome();
      rows_.Insert(key, stamp);
    } else {
      rows_->RowAt(position).weights[0] = stamp;
      rows_->NoteUse(rows_->RowAt(position).header);
    }
    if (rng_() % 2 == 0) MarkDirty(key);
    model_[key] = stamp;
  }

  void MarkDirty(int64_t key) {
    rows_->RowAt(rows_.Find(key)).header->flags |= kRowDirty;
    rows_->NoteDirty(HashKey(key));
  }

  // The index of dirty rows says what the rows say. Cleans them at times.
  void CheckDirty() {
    std::vector<Entry> entries;
    rows_->ListDirty(&entries);
    std::multimap<int64_t, Position> listed, dirty;
    for (const Entry& entry : entries) listed.emplace(entry.key, entry.position);
    const bool clean = rng_() % 10 == 0;
    rows_->ForEach([&](int64_t key, Position position) {
      RowHeader* const header = rows_->RowAt(position).header;
      if (header->flags & kRowDirty) dirty.emplace(key, position);
      if (clean) header->flags &= ~kRowDirty;
    });
    ASSERT_EQ(listed, dirty);
    if (clean) rows_->ForgetDirty();
    dirty_ += static_cast<int64_t>(dirty.size());
  }

  void EvictSome() {
    std::vector<Entry> victims;
    rows_->PickVictims(1 + static_cast<int64_t>(rng_() % 20), &victims);
    for (const Entry& entry : victims) {
      ASSERT_EQ(model_.count(entry.key), 1);
      ASSERT_EQ(model_[entry.key], rows_.StampAt(entry.position));
      model_.erase(entry.key);
      rows_.Erase(entry.key);
      ++evicted_;
    }
  }

  void DoRandomOperation() {
    const int64_t key = RandomKey();
    const Position position = rows_.Find(key);
    ASSERT_EQ(position != DramPartition::kNone, model_.count(key) == 1);
    if (position != DramPartition::kNone) {
      ASSERT_EQ(rows_.StampAt(position), model_[key]);
    }
    const uint64_t kind = rng_() % 1000;
    if (kind < (growing_ ? 800 : 200)) {
      InsertOrUpdate(key);
    } else if (kind < 980) {
      if (position != DramPartition::kNone) rows_.Erase(key);
      model_.erase(key);
    } else if (kind < 985) {
      EvictSome();
    } else if (kind < 998) {
      const int64_t slabs = rows_->free_slots() / rows_->rows_per_slab();
      if (slabs == 0) return;
      rows_->ReleaseSlabs(1 + static_cast<int64_t>(rng_() % slabs));
      ++released_;
    } else if (kind == 998) {
      growing_ = !growing_;
    } else if (rng_() % 10 == 0) {
      rows_->Clear();
      model_.clear();
    }
  }

  Rows rows_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  std::map<int64_t, float> model_;
  std::mt19937_64 rng_{99};
  int64_t stamps_ = 0, evicted_ = 0, released_ = 0, dirty_ = 0, largest_ = 0;
  bool growing_ = true;
};

TEST_P(DramPartitionFuzzTest, RandomOperationsEqualAMap) {
  for (int i = 0; i < 20000; ++i) {
    ASSERT_NO_FATAL_FAILURE(DoRandomOperation()) << "operation " << i;
    ASSERT_EQ(rows_->size(), static_cast<int64_t>(model_.size()));
    ASSERT_EQ(rows_.budget().used(), rows_->bytes());
    largest_ = std::max(largest_, rows_->size());
    if (i % 200 == 0) {
      ASSERT_EQ(rows_.Content(), model_) << "operation " << i;
      ASSERT_NO_FATAL_FAILURE(CheckDirty()) << "operation " << i;
    }
  }
  EXPECT_GT(dirty_, 1000);
  EXPECT_GT(largest_, 200);
  EXPECT_GT(evicted_, 100);
  EXPECT_GT(released_, 20);
}

INSTANTIATE_TEST_SUITE_P(Keys, DramPartitionFuzzTest,
                         testing::Combine(testing::Values(1, 5), testing::Values(1, 2000),
                                          testing::Values(Keys::kSpread, Keys::kOneDigest,
                                                          Keys::kOneBucket,
                                                          Keys::kOneDigestAndBucket)));

TEST(DramPartitionTest, FindsEveryRowThroughGrowthOfItsIndex) {
  Rows rows(3, 4096);
  for (int64_t key = 0; key < 20000; ++key) rows.Insert(key * key, static_cast<float>(key));
  for (int64_t key = 0; key < 20000; ++key) {
    const Position position = rows.Find(key * key);
    ASSERT_NE(position, DramPartition::kNone);
    ASSERT_EQ(rows.StampAt(position), static_cast<float>(key));
  }
  EXPECT_EQ(rows.Find(2), DramPartition::kNone);
}

TEST(DramPartitionTest, KeepsItsRowsWhenSlabsMoveIntoChunks) {
  Rows rows(16, 1 << 16, kNoLimit, /*plain_bytes=*/10 << 16);
  for (int64_t key = 0; key < 20000; ++key) rows.Insert(key, static_cast<float>(key));
  for (int64_t key = 0; key < 20000; ++key) {
    ASSERT_EQ(rows.StampAt(rows.Find(key)), static_cast<float>(key));
  }
}

TEST(DramPartitionTest, WeightsOfWholeCacheLinesBeginOnOne) {
  Rows rows(16, 1 << 16);
  for (int64_t key = 0; key < 2000; ++key) {
    const Row row = rows->RowAt(rows.Insert(key, 0));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(row.weights) % 64, 0u);
  }
}

// What FindAll finds is what Find does, for any number of keys, those without a row among them.
TEST(DramPartitionTest, FindAllEqualsFind) {
  Rows some(3, 4096), none(3, 4096);
  for (int64_t key = 0; key < 5000; key += 2) some.Insert(key, static_cast<float>(key));
  std::mt19937_64 rng(3);
  for (const int64_t n : {0, 1, 15, 16, 17, 31, 32, 33, 64, 1000}) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < n; ++i) keys.push_back(static_cast<int64_t>(rng() % 5100));
    std::vector<Position> found;
    FindAll(
        n / 3, n,
        [&](int64_t i) -> RowSearch {
          return {keys[i], HashKey(keys[i]), i % 7 == 0 ? none.get() : some.get()};
        },
        [](const DramPartition&, Position position) { return position; },
        [&](int64_t i, Position position) {
          ASSERT_EQ(i, n / 3 + static_cast<int64_t>(found.size()));
          found.push_back(position);
        });
    ASSERT_EQ(static_cast<int64_t>(found.size()), n - n / 3);
    for (int64_t i = n / 3; i < n; ++i) {
      EXPECT_EQ(found[i - n / 3], i % 7 == 0 ? DramPartition::kNone : some.Find(keys[i])) << i;
    }
  }
}

// The count of rows that a bucket passed on has 16 bits.
TEST(DramPartitionTest, MoreRowsOfOneHomeBucketThanItsOverflowCounts) {
  constexpr int64_t kRows = 66000;
  const auto key = [](int64_t i) {
    return KeyOfHash(static_cast<uint64_t>(i / 256) << 48 | static_cast<uint64_t>(i % 256));
  };
  Rows rows(1, 1 << 20);
  // Others first, so that the index has its size.
  for (int64_t i = 0; i < kRows; ++i) rows.Insert(i, 0);
  for (int64_t i = 0; i < kRows; ++i) rows.Erase(i);
  for (int64_t i = 0; i < kRows; ++i) rows.Insert(key(i), static_cast<float>(i));
  for (int64_t i = 0; i < kRows; i += 997) {
    ASSERT_NE(rows.Find(key(i)), DramPartition::kNone) << i;
    ASSERT_EQ(rows.StampAt(rows.Find(key(i))), static_cast<float>(i));
  }
  for (int64_t i = 0; i < kRows; i += 2) rows.Erase(key(i));
  for (int64_t i = 1; i < kRows; i += 1996) {
    ASSERT_NE(rows.Find(key(i)), DramPartition::kNone) << i;
  }
  EXPECT_EQ(rows->size(), kRows / 2);
}

TEST(DramPartitionTest, AFreshRowIsOccupiedAndClean) {
  Rows rows(4, 1);
  const RowHeader header = *rows->RowAt(rows.Insert(-5, 0)).header;
  EXPECT_EQ(header.flags, kRowOccupied);
  EXPECT_EQ(header.score, kLfu.Initial(0));
}

TEST(DramPartitionTest, GrowsUpToItsLimitAndThenSaysThatItIsHungry) {
  Rows rows(4, 1000, 10000);
  while (rows->Grow(/*overdraw=*/false)) {
    EXPECT_FALSE(rows->TakeHungry());
  }
  EXPECT_LE(rows->bytes(), 10000);
  EXPECT_GT(rows->bytes(), 9000);
  EXPECT_TRUE(rows->TakeHungry());
  EXPECT_FALSE(rows->TakeHungry());
}

TEST(DramPartitionTest, GrowsNotBeyondABudgetThatOthersUse) {
  Rows rows(4, 1000, 10000);
  ASSERT_TRUE(rows.budget().TryReserve(9500));
  EXPECT_FALSE(rows->Grow(/*overdraw=*/false));
  EXPECT_TRUE(rows->Grow(/*overdraw=*/true));
  EXPECT_GT(rows.budget().used(), 10000);
  rows.budget().Release(9500);
}

TEST(DramPartitionTest, GivesItsMemoryBack) {
  MemoryBudget budget(kNoLimit);
  {
    const RowLayout layout{4, 0};
    DramPartition partition(layout, kLfu, std::make_shared<SlabAllocator>(layout.row_bytes(), 1000),
                            RowIndex::NewSegments(1000), &budget);
    partition.Grow(/*overdraw=*/true);
    partition.Insert(1, HashKey(1));
    EXPECT_GT(budget.used(), 500);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(DramPartitionTest, ReleasingEverySlabLeavesNoBytes) {
  Rows rows(4, 1000);
  for (int64_t key = 0; key < 100; ++key) rows.Insert(key, 0);
  for (int64_t key = 0; key < 100; ++key) rows.Erase(key);
  while (rows->capacity() > 0) rows->ReleaseSlabs(1);
  EXPECT_EQ(rows->bytes(), 0);
  EXPECT_EQ(rows.Find(1), DramPartition::kNone);
}

// A batch that is larger than the budget must not leave an index that takes the budget.
TEST(DramPartitionTest, ReleasingSlabsShrinksTheIndex) {
  Rows rows(1, 1000);
  for (int64_t key = 0; key < 10000; ++key) rows.Insert(key, static_cast<float>(key));
  for (int64_t key = 100; key < 10000; ++key) rows.Erase(key);
  while (rows->free_slots() >= rows->rows_per_slab()) rows->ReleaseSlabs(1);
  EXPECT_LT(rows->bytes(), 2 * 100 * (RowLayout{1, 1}.row_bytes() + RowIndex::BytesPerKey()));
  for (int64_t key = 0; key < 100; ++key) {
    ASSERT_EQ(rows.StampAt(rows.Find(key)), static_cast<float>(key));
  }
}

TEST(DramPartitionTest, VictimsAreTheColdestOfTheWindowAndDistinct) {
  Rows rows(1, 1 << 20);
  for (int64_t key = 0; key < 64; ++key) rows.Insert(key, 0);
  for (int64_t key = 0; key < 64; ++key) {
    for (int i = 0; i < key % 8; ++i) rows->NoteUse(rows->RowAt(rows.Find(key)).header);
  }
  std::vector<Entry> victims;
  rows->PickVictims(8, &victims);  // the window is all rows, 8 of each score
  ASSERT_EQ(victims.size(), 8);
  EXPECT_EQ(KeysOf(victims).size(), 8);
  for (const Entry& entry : victims) {
    EXPECT_LT(entry.key % 8, 1);
  }
}

// The rows of coming batches go last, and are not kept for ever if those do not come.
TEST(DramPartitionTest, AwaitedRowsAreVictimsOnlyAfterTheOthersAndForAWhile) {
  Rows rows(1, 1);
  for (int64_t key = 0; key < 40; ++key) {
    const Position position = rows.Insert(key, 0);
    if (key % 2 == 0) {
      rows->RowAt(position).header->flags |= kRowAwaited;
    } else {
      rows->NoteUse(rows->RowAt(position).header);
    }
  }
  std::vector<Entry> victims;
  rows->PickVictims(25, &victims);
  int64_t awaited = 0;
  for (const Entry& entry : victims) {
    awaited += entry.key % 2 == 0;
  }
  EXPECT_EQ(awaited, 5);
  for (int pass = 1; pass < 15; ++pass) rows->PickVictims(40, &victims);
  victims.clear();
  rows->PickVictims(20, &victims);
  for (const Entry& entry : victims) {
    EXPECT_EQ(entry.key % 2, 0);  // the others were used
  }
}

TEST(DramPartitionTest, PinnedRowsAreNoVictims) {
  Rows rows(1, 1);
  for (int64_t key = 0; key < 40; ++key) {
    const Position position = rows.Insert(key, 0);
    if (key % 2 == 0) rows->RowAt(position).header->flags |= kRowPinned;
  }
  std::vector<Entry> victims;
  rows->PickVictims(1000, &victims);
  EXPECT_EQ(victims.size(), 20);
  for (const Entry& entry : victims) {
    EXPECT_EQ(entry.key % 2, 1);
  }
}

TEST(DramPartitionTest, NoVictimsAmongNoRows) {
  Rows rows(1, 1);
  std::vector<Entry> victims;
  rows->PickVictims(5, &victims);
  rows->Grow(/*overdraw=*/true);
  rows->PickVictims(5, &victims);
  EXPECT_TRUE(victims.empty());
}

TEST(DramPartitionTest, TheHandReachesEveryRow) {
  Rows rows(1, 1);
  for (int64_t key = 0; key < 100; ++key) rows.Insert(key, 0);
  std::set<int64_t> gone;
  while (rows->size() > 0) {
    std::vector<Entry> victims;
    rows->PickVictims(7, &victims);
    ASSERT_FALSE(victims.empty());
    for (const Entry& entry : victims) {
      EXPECT_TRUE(gone.insert(entry.key).second);
      rows.Erase(entry.key);
    }
  }
  EXPECT_EQ(gone.size(), 100);
}

TEST(DramPartitionTest, ASlabHoldsAPowerOfTwoOfRowsAtLeastOne) {
  EXPECT_EQ(Rows(4, 1)->rows_per_slab(), 1);
  const int64_t row_bytes = RowLayout{4, 1}.row_bytes();
  EXPECT_EQ(Rows(4, 8 * row_bytes)->rows_per_slab(), 8);
  EXPECT_EQ(Rows(4, 16 * row_bytes - 1)->rows_per_slab(), 8);
}

}  // namespace
}  // namespace tf_hps
