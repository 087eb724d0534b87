// Rows of coming batches are brought up from SSD: all of them, unchanged, and none that is old.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

class TablePrefetchTest : public StoreFixture {
 protected:
  // A table whose rows, of value 1, are all on SSD and nowhere else.
  TablePtr OnSsd(const std::vector<int64_t>& keys, int64_t dram_bytes) {
    Open(dram_bytes);
    TF_HPS_EXPECT_OK(Put(Attach("t").get(), keys, 1));
    Commit();
    store_.reset();
    Open(dram_bytes);
    return Attach("t");
  }

  static double Counter(const TablePtr& table, const std::string& name) {
    std::vector<std::pair<std::string, double>> stats;
    table->AppendStats(&stats);
    for (const auto& [counter, value] : stats) {
      if (counter == name) return value;
    }
    ADD_FAILURE() << "no counter " << name;
    return -1;
  }
};

TEST_F(TablePrefetchTest, RowsComeUpAndStayAsTheyAre) {
  const TablePtr table = OnSsd(KeyRange(0, 1000), 1 << 20);
  std::vector<int64_t> keys = KeyRange(500, 1500);
  keys.push_back(500);
  TF_HPS_ASSERT_OK(table->Prefetch(keys, SerialFor));
  EXPECT_EQ(Counter(table, "dram/prefetched"), 500);
  EXPECT_EQ(Counter(table, "dram/rows"), 500);
  EXPECT_EQ(*table->Size(), 1000);
  TF_HPS_ASSERT_OK(table->Prefetch(keys, SerialFor));
  EXPECT_EQ(Counter(table, "dram/prefetched"), 500);
  std::vector<float> rows(1000 * 4);
  TF_HPS_ASSERT_OK(table->LookupOrCreate(KeyRange(0, 1000), rows.data(), SerialFor));
  EXPECT_EQ(rows, std::vector<float>(1000 * 4, 1));
  EXPECT_EQ(Counter(table, "dram/misses"), 500);
  TF_HPS_ASSERT_OK(table->Prefetch({}, SerialFor));
}

TEST_F(TablePrefetchTest, RowsAreCleanAndCostNoWrite) {
  const TablePtr table = OnSsd(KeyRange(0, 3000), 64 << 10);
  for (int64_t begin = 0; begin < 3000; begin += 100) {
    TF_HPS_ASSERT_OK(table->Prefetch(KeyRange(begin, begin + 100), SerialFor));
  }
  EXPECT_GT(Counter(table, "dram/evictions"), 0);
  EXPECT_EQ(Counter(table, "ssd/writes"), 0);
}

TEST_F(TablePrefetchTest, AClosedStoreIsAnError) {
  const TablePtr table = OnSsd(KeyRange(0, 10), 1 << 20);
  TF_HPS_ASSERT_OK(store_->Close(false));
  ExpectError(table->Prefetch({1}, SerialFor), absl::StatusCode::kFailedPrecondition, "closed");
}

// A row that is read ahead may be brought up, changed and written to SSD again, or removed, before
// it is kept: what was read is old then.
TEST_F(TablePrefetchTest, NothingOldIsBroughtBack) {
  constexpr int kKeys = 4000;
  const TablePtr table = OnSsd(KeyRange(0, kKeys), 64 << 10);  // some tenth of them
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&, i] {
      std::mt19937_64 rng(static_cast<uint64_t>(i));
      while (!done) {
        std::vector<int64_t> keys(200);
        for (int64_t& key : keys) key = static_cast<int64_t>(rng() % kKeys);
        TF_HPS_EXPECT_OK(table->Prefetch(keys, SerialFor));
      }
    });
  }
  std::mt19937_64 rng(7);
  std::map<int64_t, float> model;
  for (const int64_t key : KeyRange(0, kKeys)) model[key] = 1;
  for (int step = 0; step < 1500; ++step) {
    std::vector<int64_t> keys(50);
    for (int64_t& key : keys) key = static_cast<int64_t>(rng() % kKeys);
    std::vector<float> rows(keys.size() * 4);
    if (step % 7 == 6) {
      TF_HPS_ASSERT_OK(table->Remove(keys, SerialFor));
      for (const int64_t key : keys) model.erase(key);
      continue;
    }
    TF_HPS_ASSERT_OK(table->Lookup(keys, rows.data(), SerialFor));
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto it = model.find(keys[i]);
      ASSERT_EQ(rows[i * 4], it == model.end() ? 0 : it->second) << "step " << step;
    }
    const float value = static_cast<float>(step + 2);
    TF_HPS_ASSERT_OK(Put(table.get(), keys, value));
    for (const int64_t key : keys) model[key] = value;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(Counter(table, "dram/prefetched"), 1000);
  EXPECT_GT(Counter(table, "ssd/writes"), 10000);
  EXPECT_EQ(Values(table), model);
}

}  // namespace
}  // namespace tf_hps
