// The budget of a store: divided among its tables, and not exceeded once an operation has ended.

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

class StoreBudgetTest : public StoreFixture {
 protected:
  void ExpectWithinBudget() {
    ASSERT_LE(StatOf("store/dram_bytes"), StatOf("store/dram_budget_bytes"));
  }

  // LookupOrCreate, as training does.
  static void Touch(const TablePtr& table, const std::vector<int64_t>& keys) {
    std::vector<float> rows(keys.size() * static_cast<size_t>(table->dim()));
    TF_HPS_ASSERT_OK(table->LookupOrCreate(keys, rows.data(), SerialFor));
  }

  double Dram(const std::string& table) { return StatOf("tables/" + table + "/dram/bytes"); }
};

class EveryBudgetTest : public StoreBudgetTest, public testing::WithParamInterface<int64_t> {};

TEST_P(EveryBudgetTest, IsKeptAfterEveryOperationOfManyTables) {
  constexpr int kTables = 12;
  Open(GetParam());
  std::vector<TablePtr> tables;
  std::mt19937_64 rng(3);
  std::vector<std::map<int64_t, float>> expected(kTables);
  for (int i = 0; i < 400; ++i) {
    if (i % 20 == 0 && tables.size() < kTables) {
      tables.push_back(Attach(absl::StrCat("t", tables.size()), 1 + static_cast<int>(rng() % 30)));
      ASSERT_NO_FATAL_FAILURE(ExpectWithinBudget());
    }
    const size_t t = rng() % tables.size();
    const int64_t begin = static_cast<int64_t>(rng() % 500);
    const std::vector<int64_t> keys = KeyRange(begin, begin + static_cast<int64_t>(rng() % 60));
    switch (rng() % 4) {
      case 0:
        TF_HPS_ASSERT_OK(Put(tables[t].get(), keys, static_cast<float>(i)));
        for (const int64_t key : keys) expected[t][key] = static_cast<float>(i);
        break;
      case 1:
        TF_HPS_ASSERT_OK(Step(tables[t].get(), keys, 1));
        for (const int64_t key : keys) expected[t][key] -= 1;
        break;
      case 2:
        Touch(tables[t], keys);
        for (const int64_t key : keys) expected[t][key];
        break;
      default:
        TF_HPS_ASSERT_OK(tables[t]->Remove(keys, SerialFor));
        for (const int64_t key : keys) expected[t].erase(key);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWithinBudget()) << "operation " << i;
  }
  for (int t = 0; t < kTables; ++t) EXPECT_EQ(Values(tables[t]), expected[t]);
  EXPECT_GT(StatOf("tables/t0/dram/evictions"), 0);
}

INSTANTIATE_TEST_SUITE_P(Budgets, EveryBudgetTest, testing::Values(0, 1, 1000, 20000, 100000));

TEST_F(StoreBudgetTest, OneTableMayHaveItAll) {
  Open(100000);
  Touch(Attach("t"), KeyRange(0, 10000));
  EXPECT_GT(Dram("t"), 80000);
}

TEST_F(StoreBudgetTest, ATableMadeLateGetsItsShare) {
  Open(100000);
  TablePtr early = Attach("early");
  Touch(early, KeyRange(0, 10000));
  TablePtr late = Attach("late");
  EXPECT_LE(Dram("early"), 55000);
  Touch(late, KeyRange(0, 10000));
  EXPECT_GT(Dram("late"), 40000);
  ExpectWithinBudget();
}

TEST_F(StoreBudgetTest, WhatASmallTableDoesNotNeedTheLargeOneGets) {
  Open(200000);
  TablePtr large = Attach("large"), small = Attach("small");
  for (int i = 0; i < 100; ++i) {
    Touch(small, KeyRange(0, 10));
    Touch(large, KeyRange(100 * i, 100 * i + 100));
  }
  EXPECT_GT(Dram("large"), 150000);
  Touch(small, KeyRange(0, 10));
  EXPECT_EQ(StatOf("tables/small/dram/evictions"), 0);
}

TEST_F(StoreBudgetTest, ADroppedTableGivesItsShareBack) {
  Open(100000);
  TablePtr kept = Attach("kept"), dropped = Attach("dropped");
  Touch(dropped, KeyRange(0, 10000));
  TF_HPS_ASSERT_OK(store_->Drop(dropped.get()));  // the handle stays
  for (int i = 0; i < 50; ++i) Touch(kept, KeyRange(100 * i, 100 * i + 100));
  EXPECT_GT(Dram("kept"), 80000);
}

TEST_F(StoreBudgetTest, ATableThatNobodyAttachedTakesNothing) {
  Open(100000);
  Touch(Attach("forgotten"), KeyRange(0, 10000));
  Commit();
  store_.reset();
  Open(100000);
  Touch(Attach("t"), KeyRange(0, 10000));
  EXPECT_GT(Dram("t"), 80000);
}

TEST_F(StoreBudgetTest, ClosingFreesEverything) {
  Open(100000);
  TablePtr table = Attach("t");
  Touch(table, KeyRange(0, 10000));
  TF_HPS_ASSERT_OK(store_->Close(false));
  EXPECT_EQ(StatOf("store/dram_bytes"), 0);
}

TEST_F(StoreBudgetTest, ABatchLargerThanTheBudgetIsOneBatch) {
  Open(5000);
  TablePtr table = Attach("t", 16);
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 5000), 1));
  TF_HPS_ASSERT_OK(Step(table.get(), KeyRange(0, 5000), 1));
  ExpectWithinBudget();
  EXPECT_EQ(Values(table), Expected(KeyRange(0, 5000), 0));
}

class HotRowsTest : public StoreBudgetTest, public testing::WithParamInterface<const char*> {
 protected:
  // Steps on the same 100 rows, from `hot` on, and between them steps on 30 rows never used before.
  // Returns how often the former were not in DRAM.
  double Train(const TablePtr& table, int64_t hot, int steps) {
    const double before = StatOf("tables/t/dram/misses");
    for (int i = 0; i < steps; ++i, cold_ += 30) {
      Touch(table, KeyRange(hot, hot + 100));
      Touch(table, KeyRange(cold_, cold_ + 30));
    }
    return StatOf("tables/t/dram/misses") - before - 30.0 * steps;
  }

  void SetUp() override {
    StoreOptions options = Options(11000);  // some 150 rows
    options.eviction = GetParam();
    OpenWith(options);
  }

  int64_t cold_ = 10000;
};

TEST_P(HotRowsTest, StayWhileColdOnesPass) {
  TablePtr table = Attach("t", 8);
  EXPECT_LT(Train(table, 0, 200), 1500);  // of 20000
  EXPECT_GT(StatOf("tables/t/dram/evictions"), 5000);
}

TEST_P(HotRowsTest, OfLongAgoMakeRoomForOthers) {
  TablePtr table = Attach("t", 8);
  Train(table, 0, 300);
  Train(table, 200, 100);
  EXPECT_LT(Train(table, 200, 200), 1000);
}

INSTANTIATE_TEST_SUITE_P(Policies, HotRowsTest, testing::Values("lfu", "lru"));

class CachedReadsTest : public StoreBudgetTest {
 protected:
  // A store of two tables of 1000 rows, opened for serving.
  void OpenForServing(int64_t dram_bytes) {
    Open();
    for (const char* name : {"a", "b"}) {
      TF_HPS_ASSERT_OK(Put(Attach(name, 8, kUniform).get(), KeyRange(0, 1000), 1));
    }
    TF_HPS_ASSERT_OK(store_->Close(true));
    StoreOptions options = Options(dram_bytes);
    options.cache_reads = true;
    OpenWith(options);
    a_ = Attach("a", 8, kUniform);
  }

  TablePtr a_;
};

TEST_F(CachedReadsTest, ReadRowsComeFromDramTheNextTime) {
  OpenForServing(1 << 20);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Read(a_.get(), KeyRange(0, 1000)), std::vector<float>(8000, 1));
  }
  EXPECT_EQ(StatOf("tables/a/ssd/hits"), 1000);
  EXPECT_EQ(StatOf("tables/a/dram/hits"), 1000);
}

TEST_F(CachedReadsTest, StayWithinTheBudget) {
  for (const int64_t budget : {0, 1000, 3000, 10000, 30000}) {
    OpenForServing(budget);
    TablePtr b = Attach("b", 8, kUniform);
    for (int64_t i = 0; i < 100; ++i) {
      const std::vector<int64_t> keys = KeyRange(10 * i % 970, 10 * i % 970 + 30);
      EXPECT_EQ(Read((i % 2 ? a_ : b).get(), keys), std::vector<float>(240, 1));
      ASSERT_NO_FATAL_FAILURE(ExpectWithinBudget()) << "budget " << budget << ", lookup " << i;
    }
  }
}

TEST_F(CachedReadsTest, UnseenKeysAreNotKeptAndDriveNothingOut) {
  OpenForServing(100000);
  Read(a_.get(), KeyRange(0, 500));
  const double evictions = StatOf("tables/a/dram/evictions");
  const double rows = StatOf("tables/a/dram/rows");
  ASSERT_GT(rows, 400);
  Read(a_.get(), KeyRange(10000, 20000));
  EXPECT_EQ(StatOf("tables/a/dram/rows"), rows);
  EXPECT_EQ(StatOf("tables/a/dram/evictions"), evictions);
  EXPECT_EQ(*a_->Size(), 1000);
}

TEST_F(CachedReadsTest, TheTableThatIsReadGetsTheOthersShare) {
  OpenForServing(100000);
  TablePtr b = Attach("b", 8, kUniform);
  Read(b.get(), {0});
  for (int i = 0; i < 50; ++i) Read(a_.get(), KeyRange(20 * i, 20 * i + 20));
  EXPECT_GT(StatOf("tables/a/dram/rows"), 950);
}

}  // namespace
}  // namespace tf_hps
