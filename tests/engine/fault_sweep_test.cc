// Makes the n-th file operation of each kind fail, for every n of a whole
// train-evict-commit-save-reopen cycle. Whatever fails must say which path, must have changed
// nothing, and must work when it is tried again; in the end every row is right.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "absl/strings/match.h"
#include "cc_ops/engine/file_fault.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

constexpr int kDim = 4;
constexpr int kSteps = 6;
constexpr int kBatch = 400;
constexpr int kKeys = 1500;
constexpr char kInitializer[] = "uniform(minval=-1.0,maxval=1.0)";

// The fault to inject: operation number `fail_at` of kind `op`, and the `repeats` ones after it,
// fail with `error`.
struct Fault {
  std::atomic<int> op{-1};
  std::atomic<int64_t> fail_at{0};
  std::atomic<int64_t> repeats{0};
  std::atomic<int> error{0};
  std::atomic<int64_t> seen{0};
  std::atomic<int64_t> injected{0};
};
Fault fault;

int FailNth(FileOp op, const std::string&) {
  if (static_cast<int>(op) != fault.op) return 0;
  const int64_t n = fault.seen++;
  if (n < fault.fail_at || n > fault.fail_at + fault.repeats) return 0;
  ++fault.injected;
  return fault.error;
}

// Every operation with TF_HPS_FAULT_SWEEP=all (`make fault-sweep`), else some thirty of each kind.
int64_t Stride(int64_t operations) {
  const char* sweep = std::getenv("TF_HPS_FAULT_SWEEP");
  if (sweep != nullptr && absl::string_view(sweep) == "all") return 1;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return std::max<int64_t>(1, operations / 5);  // ten times slower
#else
  return std::max<int64_t>(1, operations / 30);
#endif
}

class FaultSweepTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    // In memory where that can be: the sweep syncs a hundred thousand times.
    if (PathExists("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
    file_fault_hook = FailNth;
  }
  void TearDown() override { file_fault_hook = nullptr; }

  static void TearDownTestSuite() {  // reached: nothing crashed
    std::printf(
        "%ld file operations, %ld cycles with %ld faults: %ld errors, 0 crashes, %ld wrong rows\n",
        totals_.operations, totals_.cycles, totals_.faults, totals_.errors, totals_.wrong_rows);
  }

  void Arm(int64_t fail_at, int error, int64_t repeats) {
    fault.fail_at = fail_at;
    fault.repeats = repeats;
    fault.error = error;
    fault.seen = 0;
    fault.injected = 0;
    fault.op = GetParam();
  }
  void Disarm() { fault.op = -1; }

  // Calls `attempt` until it succeeds. What fails must name a path of this test.
  template <typename Attempt>
  void Retry(const char* what, Attempt attempt) {
    absl::Status status;
    for (int tries = 0; tries < 40; ++tries) {
      status = attempt();
      if (status.ok()) return;
      ++errors_;
      ++totals_.errors;
      ASSERT_TRUE(absl::StrContains(status.message(), directory_->path()))
          << what << ": " << status;
    }
    FAIL() << what << " never succeeded: " << status;
  }

  void Open() {
    StoreOptions options;
    options.path = *directory_ / "store";
    options.dram_bytes = 20000;
    options.write_buffer_bytes = 16 << 10;  // so that LevelDB writes and compacts all the time
    Retry("open", [&] {
      auto store = Store::Open(options);
      if (store.ok()) store_ = *store;
      return store.status();
    });
    if (store_ == nullptr) return;
    Retry("attach", [&] {
      auto table = store_->Attach({"t", kDim, kInitializer, 0, ""});
      if (table.ok()) table_ = *table;
      return table.status();
    });
  }

  void Train(std::mt19937_64* rng) {
    std::vector<int64_t> keys(kBatch);
    for (int64_t& key : keys) key = static_cast<int64_t>((*rng)() % kKeys) * 7919;
    std::vector<float> rows(kBatch * kDim);
    Retry("prefetch", [&] { return table_->Prefetch(keys, SerialFor); });
    Retry("lookup", [&] { return table_->LookupOrCreate(keys, rows.data(), SerialFor); });
    Retry("apply", [&] {
      return TieredTable::ApplyGradients(
          {{table_.get(), keys, rows.data()}},
          *OptimizerSpec::Parse("adagrad(initial_accumulator_value=0.1)"), {0.1f, 1e-7f},
          TieredTable::NonFinite::kError, SerialFor);
    });
  }

  // One cycle; `rows` is what it comes to.
  void RunCycle(std::map<int64_t, ExportedRow>* rows) {
    directory_.emplace();
    std::mt19937_64 rng(1);
    ASSERT_NO_FATAL_FAILURE(Open());
    for (int i = 0; i < kSteps; ++i) ASSERT_NO_FATAL_FAILURE(Train(&rng));
    Retry("commit", [&] { return store_->Commit().status(); });
    for (int i = 0; i < kSteps; ++i) ASSERT_NO_FATAL_FAILURE(Train(&rng));
    Retry("save", [&] { return store_->Save(*directory_ / "ckpt", "abcde", {{"t", table_}}); });
    ASSERT_NO_FATAL_FAILURE(Train(&rng));
    Retry("restore", [&] {
      return store_->Restore(*directory_ / "ckpt", "abcde", {{"t", table_}});
    });
    Retry("close", [&] { return store_->Close(true); });
    store_.reset();
    ASSERT_NO_FATAL_FAILURE(Open());
    ASSERT_NO_FATAL_FAILURE(Train(&rng));
    Disarm();
    // LevelDB may have met the fault in the background: that fails no later operation.
    TF_HPS_ASSERT_OK(store_->Commit().status());
    *rows = ExportAll(store_.get(), table_.get());
    TF_HPS_ASSERT_OK(store_->Close(true));
    store_.reset();
    table_.reset();
    directory_.reset();  // while no fault is armed
  }

  std::optional<TestDirectory> directory_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<TieredTable> table_;
  int64_t errors_ = 0;

  struct Totals {
    int64_t operations, cycles, faults, errors, wrong_rows;
  };
  static inline Totals totals_ = {};
};

int64_t CountDifferences(const std::map<int64_t, ExportedRow>& x,
                         const std::map<int64_t, ExportedRow>& y) {
  int64_t differences = 0;
  for (const auto& [key, row] : x) {
    const auto it = y.find(key);
    differences += it == y.end() || !(it->second == row);
  }
  for (const auto& [key, row] : y) differences += x.count(key) == 0;
  return differences;
}

TEST_P(FaultSweepTest, EveryFailureIsAnErrorAndChangesNothing) {
  Arm(INT64_MAX, EIO, 0);
  std::map<int64_t, ExportedRow> expected;
  ASSERT_NO_FATAL_FAILURE(RunCycle(&expected));
  ASSERT_EQ(fault.injected, 0);
  const int64_t operations = fault.seen;
  ASSERT_GT(operations, 0) << "the cycle does no such operation";
  const int64_t stride = Stride(operations);
  totals_.operations += operations;
  for (int64_t n = 0; n < operations; n += stride) {
    for (const auto& [error, repeats] : {std::pair{EIO, 0}, std::pair{ENOSPC, 10}}) {
      SCOPED_TRACE(absl::StrCat("operation ", n, " of ", operations, ", errno ", error));
      Arm(n, error, repeats);
      std::map<int64_t, ExportedRow> rows;
      ASSERT_NO_FATAL_FAILURE(RunCycle(&rows));
      const int64_t wrong_rows = CountDifferences(rows, expected);
      EXPECT_EQ(wrong_rows, 0);
      ++totals_.cycles;
      totals_.faults += fault.injected;
      totals_.wrong_rows += wrong_rows;
    }
  }
  std::printf("%ld operations, failed every %ld: %ld errors\n", operations, stride, errors_);
}

std::string NameOf(const testing::TestParamInfo<int>& info) {
  const char* names[kFileOps] = {"Open", "Read",   "Create", "Write", "Sync",          "Rename",
                                 "Link", "Remove", "List",   "Stat",  "MakeDirectory", "Lock"};
  return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(Kinds, FaultSweepTest, testing::Range(0, kFileOps), NameOf);

}  // namespace
}  // namespace tf_hps
