#include "cc_ops/engine/table_export.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

using absl::StatusCode;

class TableExportTest : public StoreFixture {
 protected:
  std::shared_ptr<TableExport> Begin(const TablePtr& table) {
    auto result = store_->Export(table.get());
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }

  static std::vector<int64_t> Keys(TableExport* rows, int64_t chunk) {
    std::vector<int64_t> keys;
    for (;;) {
      TableExport::Rows part;
      const absl::Status status = rows->Next(chunk, &part);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_LE(static_cast<int64_t>(part.keys.size()), chunk);
      if (part.keys.empty()) return keys;
      keys.insert(keys.end(), part.keys.begin(), part.keys.end());
    }
  }
};

TEST_F(TableExportTest, GoesThroughAscendingKeysInChunks) {
  Open(2000);
  TablePtr table = Attach("t");
  std::vector<int64_t> keys = KeyRange(-100, 100);
  keys.insert(keys.begin(), INT64_MIN);
  keys.push_back(INT64_MAX);
  TF_HPS_ASSERT_OK(Put(table.get(), keys, 1));
  for (const int64_t chunk : {1, 7, 202, 1000}) EXPECT_EQ(Keys(Begin(table).get(), chunk), keys);
}

TEST_F(TableExportTest, AnEmptyTableEndsAtOnceAndStaysAtItsEnd) {
  Open();
  const auto rows = Begin(Attach("t"));
  EXPECT_TRUE(Keys(rows.get(), 10).empty());
  EXPECT_TRUE(Keys(rows.get(), 10).empty());
}

TEST_F(TableExportTest, NoRowsAskedForNoneGiven) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), {1}, 1));
  const auto rows = Begin(table);
  TableExport::Rows part;
  TF_HPS_ASSERT_OK(rows->Next(0, &part));
  EXPECT_TRUE(part.keys.empty());
  EXPECT_EQ(Keys(rows.get(), 10), std::vector<int64_t>{1});
}

TEST_F(TableExportTest, SeesRowsAsTheyWereWhenItBegan) {
  Open(2000);
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 500), 1));
  const auto rows = Begin(table);
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(200, 1000), 2));
  TF_HPS_ASSERT_OK(table->Remove(KeyRange(0, 100), SerialFor));
  Commit();
  TF_HPS_ASSERT_OK(
      Step(table.get(), KeyRange(0, 1000), 1, "momentum(momentum=0.5,nesterov=0)", {1.0f, 0.5f}));
  TableExport::Rows all;
  TF_HPS_ASSERT_OK(rows->Next(10000, &all));
  EXPECT_EQ(all.keys, KeyRange(0, 500));
  EXPECT_EQ(all.weights, std::vector<float>(4 * 500, 1));
  EXPECT_TRUE(all.state.empty());
}

TEST_F(TableExportTest, OutlivesItsDroppedTable) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 5000), 1));
  const auto rows = Begin(table);
  TF_HPS_ASSERT_OK(store_->Drop(table.get()));
  EXPECT_EQ(Keys(rows.get(), 999), KeyRange(0, 5000));
}

TEST_F(TableExportTest, IsCancelledByTheClosingOfItsStore) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 100), 1));
  const auto rows = Begin(table);
  TableExport::Rows part;
  TF_HPS_ASSERT_OK(rows->Next(10, &part));
  TF_HPS_ASSERT_OK(store_->Close(true));
  ExpectError(rows->Next(10, &part), StatusCode::kFailedPrecondition, "\"t\"");
  Open();
  EXPECT_EQ(Values(Attach("t")), Expected(KeyRange(0, 100), 1));
}

TEST_F(TableExportTest, IsCancelledByARestoreThatReplacesTheFiles) {
  Open();
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 100), 1));
  TF_HPS_ASSERT_OK(store_->Save(directory_ / "c", "abcde", {{"t", table}}));
  const auto rows = Begin(table);
  TF_HPS_ASSERT_OK(store_->Restore(directory_ / "c", "abcde", {{"t", table}}));
  TableExport::Rows part;
  ExpectError(rows->Next(10, &part), StatusCode::kFailedPrecondition, "restored");
  EXPECT_EQ(Keys(Begin(table).get(), 100), KeyRange(0, 100));
}

TEST_F(TableExportTest, DoesNotHinderCommits) {
  Open(2000);
  TablePtr table = Attach("t");
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 500), 1));
  const auto rows = Begin(table);  // keeps files that LevelDB needs no more
  for (int n = 2; n < 30; ++n) {
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 500), static_cast<float>(n)));
    Commit();
  }
  TableExport::Rows all;
  TF_HPS_ASSERT_OK(rows->Next(1000, &all));
  EXPECT_EQ(all.weights, std::vector<float>(4 * 500, 1));
  Reopen();
  EXPECT_EQ(Values(Attach("t")), Expected(KeyRange(0, 500), 29));
}

TEST_F(TableExportTest, MayEndInAnotherThreadWhileTheStoreCloses) {
  for (int i = 0; i < 20; ++i) {
    Open();
    TablePtr table = Attach("t");
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 1000), 1));
    auto rows = Begin(table);
    std::thread other([&] {
      TableExport::Rows part;
      for (int i = 0; i < 20 && rows->Next(10, &part).ok(); ++i) {
      }
      rows.reset();
    });
    TF_HPS_ASSERT_OK(store_->Close(false));
    other.join();
  }
}

// Rows that momentum moved while nobody touched them are given as they read.
TEST_F(TableExportTest, GivesRowsAsOfTheTablesStep) {
  Open();
  TablePtr table = Attach("t", 3);
  const std::string momentum = "momentum(momentum=0.5,nesterov=0)";
  TF_HPS_ASSERT_OK(Step(table.get(), {1}, 1, momentum, {1.0f, 0.5f}));
  for (int i = 0; i < 3; ++i) TF_HPS_ASSERT_OK(Step(table.get(), {2}, 1, momentum, {1.0f, 0.5f}));
  TableExport::Rows all;
  TF_HPS_ASSERT_OK(Begin(table)->Next(10, &all));
  ASSERT_EQ(all.keys, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(all.weights, Read(table.get(), {1, 2}));
  EXPECT_EQ(all.weights[0], -1.875f);  // -(1 + 1/2 + 1/4 + 1/8)
  EXPECT_EQ(all.state[0], -0.125f);
}

}  // namespace
}  // namespace tf_hps
