// Many threads on one store: no torn row, no lost update, no deadlock. Most useful under
// ThreadSanitizer.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <list>
#include <random>
#include <thread>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

constexpr int kDim = 200;
constexpr int64_t kKeys = 400;

// Calls the functions again and again, each from a thread of its own, until it ends.
class Background {
 public:
  template <typename... Functions>
  explicit Background(Functions... functions) {
    (threads_.emplace_back([this, functions] {
      while (!done_) {
        functions();
        ++rounds_;
      }
    }),
     ...);
  }
  ~Background() { Join(); }
  void Join() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int64_t rounds() const { return rounds_; }

 private:
  std::atomic<bool> done_{false};
  std::atomic<int64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

class ConcurrencyTest : public StoreFixture, public testing::WithParamInterface<int64_t> {
 protected:
  void SetUp() override {
    Open(GetParam());
    table_ = Attach("t", kDim);
    TF_HPS_ASSERT_OK(Put(table_.get(), KeyRange(0, kKeys), 0));
  }

  static std::vector<int64_t> RandomKeys(int64_t limit) {
    static thread_local std::mt19937_64 rng(
        std::hash<std::thread::id>()(std::this_thread::get_id()));
    std::vector<int64_t> keys(50);
    for (int64_t& key : keys) key = static_cast<int64_t>(rng() % static_cast<uint64_t>(limit));
    return keys;
  }

  // Every update gives a row's elements the same gradient: they stay equal.
  static void ExpectWhole(const std::vector<float>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i], rows[i / kDim * kDim]) << "a torn row";
    }
  }

  void LookUp() { ExpectWhole(Read(table_.get(), RandomKeys(kKeys + 50))); }

  void LookUpAndCreate() {
    const std::vector<int64_t> keys = RandomKeys(kKeys);
    std::vector<float> rows(keys.size() * kDim);
    TF_HPS_ASSERT_OK(table_->LookupOrCreate(keys, rows.data(), SerialFor));
    ExpectWhole(rows);
  }

  void ExportAndCheck() {
    for (const auto& [key, row] : ExportAll(store_.get(), table_.get())) {
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(row.weights)) << "key " << key;
    }
  }

  static int Rounds() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 30;
#else
    return 150;
#endif
  }

  TablePtr table_;
};

TEST_P(ConcurrencyTest, ReadersSeeWholeRowsDuringUpdates) {
  Background readers([this] { LookUp(); },
                     [this] { TF_HPS_ASSERT_OK(table_->Prefetch(RandomKeys(kKeys), SerialFor)); },
                     [this] {
                       bool present[3];
                       TF_HPS_ASSERT_OK(table_->Contains({0, 1, kKeys}, present, SerialFor));
                       ASSERT_TRUE(present[0] && present[1] && !present[2]);
                     });
  const TestThreads threads(2);
  for (int i = 0; i < Rounds() || readers.rounds() < Rounds(); ++i) {
    const std::vector<int64_t> keys = RandomKeys(kKeys);
    const std::vector<float> gradients(keys.size() * kDim, 1.0f);
    TF_HPS_ASSERT_OK(TieredTable::ApplyGradients({{table_.get(), keys, gradients.data()}},
                                                 *OptimizerSpec::Parse("sgd"), {1.0f},
                                                 TieredTable::NonFinite::kError, threads));
  }
}

// Momentum's rows move while nobody touches them: readers work out where they are.
TEST_P(ConcurrencyTest, ReadersSeeWholeRowsDuringMomentum) {
  Background readers([this] { LookUp(); }, [this] { LookUp(); });
  for (int i = 0; i < Rounds() || readers.rounds() < Rounds(); ++i) {
    TF_HPS_ASSERT_OK(Step(table_.get(), RandomKeys(kKeys), 1, "momentum(momentum=0.9,nesterov=1)",
                          {0.1f, 0.9f}));
  }
}

TEST_P(ConcurrencyTest, NoUpdateIsLost) {
  std::vector<std::thread> trainers;
  for (int t = 0; t < 4; ++t) {
    trainers.emplace_back([&] {
      for (int i = 0; i < Rounds(); ++i) {
        TF_HPS_ASSERT_OK(Step(table_.get(), KeyRange(0, 60), -1));
      }
    });
  }
  {
    Background others([this] { LookUp(); }, [this] { LookUpAndCreate(); });
    for (std::thread& trainer : trainers) trainer.join();
  }
  EXPECT_EQ(Read(table_.get(), KeyRange(0, 60)),
            std::vector<float>(60 * kDim, static_cast<float>(4 * Rounds())));
}

TEST_P(ConcurrencyTest, EverythingAtOnce) {
  TablePtr other = Attach("other", kDim);
  std::atomic<int64_t> commits{0};
  Background all([this] { LookUp(); }, [this] { LookUpAndCreate(); }, [this] { ExportAndCheck(); },
                 [this] { store_->Stats(); },
                 [&] {
                   TF_HPS_ASSERT_OK(store_->Commit().status());
                   ++commits;
                   std::this_thread::sleep_for(std::chrono::milliseconds(2));
                 },
                 [&] {
                   TF_HPS_ASSERT_OK(Put(other.get(), RandomKeys(kKeys), 1));
                   TF_HPS_ASSERT_OK(other->Remove(RandomKeys(kKeys), SerialFor));
                 },
                 [this] {
                   TablePtr passing = Attach("passing", 3);
                   TF_HPS_ASSERT_OK(Put(passing.get(), {1, 2, 3}, 1));
                   TF_HPS_ASSERT_OK(store_->Drop(passing.get()));
                 });
  for (int i = 0; i < Rounds(); ++i) {
    // Two kinds: the table changes its optimizer all the time.
    TF_HPS_ASSERT_OK(i % 20 < 10 ? Step(table_.get(), RandomKeys(kKeys), 1)
                                 : Step(table_.get(), RandomKeys(kKeys), 1,
                                        "adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}));
  }
  all.Join();
  EXPECT_GT(commits, 0);
  ExportAndCheck();
  EXPECT_LE(StatOf("store/dram_bytes"), GetParam());
}

TEST_P(ConcurrencyTest, CheckpointsDuringTrainingAreConsistent) {
  // Both tables get the same number of steps.
  TablePtr twin = Attach("twin", kDim);
  const std::vector<int64_t> keys = KeyRange(0, 100);
  TF_HPS_ASSERT_OK(Put(table_.get(), keys, 0));
  TF_HPS_ASSERT_OK(Put(twin.get(), keys, 0));
  Background training([&] {
    const std::vector<float> gradients(keys.size() * kDim, -1.0f);
    TF_HPS_ASSERT_OK(TieredTable::ApplyGradients(
        {{table_.get(), keys, gradients.data()}, {twin.get(), keys, gradients.data()}},
        *OptimizerSpec::Parse("sgd"), {1.0f}, TieredTable::NonFinite::kError, SerialFor));
  });
  auto copy = Store::Open(StoreOptions());
  TF_HPS_ASSERT_OK(copy.status());
  TablePtr a = *(*copy)->Attach({"a", kDim, kZeros, 0, ""});
  TablePtr b = *(*copy)->Attach({"b", kDim, kZeros, 0, ""});
  for (int i = 0; i < 10; ++i) {
    const std::string id = absl::StrCat("save", i);
    TF_HPS_ASSERT_OK(store_->Save(directory_ / "c", id, {{"a", table_}, {"b", twin}}));
    TF_HPS_ASSERT_OK((*copy)->Restore(directory_ / "c", id, {{"a", a}, {"b", b}}));
    const std::vector<float> rows = Read(a.get(), keys);
    EXPECT_EQ(rows, std::vector<float>(rows.size(), rows[0]));
    EXPECT_EQ(rows, Read(b.get(), keys));
  }
}

TEST_P(ConcurrencyTest, ClosingStopsEverybodyWithAnError) {
  std::list<std::thread> threads;
  std::atomic<int> started{0};
  const auto until_closed = [&](auto operation) {
    threads.emplace_back([&started, operation] {
      ++started;
      for (;;) {
        const absl::Status status = operation();
        if (status.ok()) continue;
        ExpectError(status, absl::StatusCode::kFailedPrecondition, "closed");
        return;
      }
    });
  };
  until_closed([&] { return Step(table_.get(), RandomKeys(kKeys), 1); });
  until_closed([&] { return Put(table_.get(), RandomKeys(kKeys), 1); });
  until_closed([&] { return store_->Commit().status(); });
  until_closed([&] {
    auto rows = store_->Export(table_.get());
    TableExport::Rows part;
    return rows.ok() ? (*rows)->Next(1000, &part) : rows.status();
  });
  until_closed([&] {
    std::vector<float> rows(50 * kDim);
    return table_->Lookup(RandomKeys(kKeys), rows.data(), SerialFor);
  });
  while (started < 5) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  TF_HPS_ASSERT_OK(store_->Close(true));
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Budgets, ConcurrencyTest, testing::Values(1 << 20, 10000, 0));

TEST(CachedReadsConcurrencyTest, ReadersAndAWriterShareACachedTable) {
  TestDirectory directory;
  StoreOptions options;
  options.path = directory / "store";
  options.dram_bytes = 20000;
  options.cache_reads = true;
  StorePtr store = *Store::Open(options);
  TablePtr table = *store->Attach({"t", kDim, kZeros, 0, ""});
  TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, kKeys), 0));
  std::atomic<int> value{0};
  const auto read = [&] {
    const int before = value;
    const std::vector<float> rows = Read(table.get(), KeyRange(100, 150));
    const int after = value + 1;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i], rows[i / kDim * kDim]) << "a torn row";
      ASSERT_GE(rows[i], static_cast<float>(before)) << "a stale row";
      ASSERT_LE(rows[i], static_cast<float>(after));
    }
  };
  Background readers(read, read, [&] { Read(table.get(), KeyRange(0, kKeys)); });
  for (int i = 1; i <= 100 || readers.rounds() < 100; ++i) {
    TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(100, 150), static_cast<float>(i)));
    value = i;
  }
}

}  // namespace
}  // namespace tf_hps
