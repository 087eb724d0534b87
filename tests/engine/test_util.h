// What engine tests share.

#ifndef TF_HPS_TESTS_ENGINE_TEST_UTIL_H_
#define TF_HPS_TESTS_ENGINE_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/parallel.h"
#include "cc_ops/engine/store.h"
#include "tests/engine/table_model.h"

#define TF_HPS_ASSERT_OK(expr)                                  \
  do {                                                          \
    const absl::Status tf_hps_test_status = (expr);             \
    ASSERT_TRUE(tf_hps_test_status.ok()) << tf_hps_test_status; \
  } while (false)

#define TF_HPS_EXPECT_OK(expr)                                  \
  do {                                                          \
    const absl::Status tf_hps_test_status = (expr);             \
    EXPECT_TRUE(tf_hps_test_status.ok()) << tf_hps_test_status; \
  } while (false)

namespace tf_hps {

// A directory that goes away with it. In memory where that is possible: tests sync a lot.
class TestDirectory {
 public:
  TestDirectory() {
    char in_memory[] = "/dev/shm/tf_hps_test-XXXXXX";
    path_ = ::mkdtemp(in_memory) != nullptr ? in_memory : *MakeTemporaryDirectory();
  }
  ~TestDirectory() { RemoveTree(path_).IgnoreError(); }
  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

// A ParallelFor that really uses `threads` threads.
class TestThreads {
 public:
  explicit TestThreads(int threads) : threads_(threads) {}

  void operator()(int64_t n, absl::FunctionRef<void(int64_t)> task) const {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i = next++; i < n; i = next++) task(i);
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads_; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
  }

 private:
  const int threads_;
};

// All rows of a table by key.
inline std::map<int64_t, ExportedRow> ExportAll(Store* store, TieredTable* table,
                                                int64_t chunk = 100) {
  std::map<int64_t, ExportedRow> rows;
  const auto table_export = store->Export(table);
  EXPECT_TRUE(table_export.ok()) << table_export.status();
  if (!table_export.ok()) return rows;
  const size_t dim = static_cast<size_t>((*table_export)->dim());
  const size_t state = dim * static_cast<size_t>((*table_export)->slots());
  for (;;) {
    TableExport::Rows part;
    const absl::Status status = (*table_export)->Next(chunk, &part);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok() || part.keys.empty()) return rows;
    for (size_t i = 0; i < part.keys.size(); ++i) {
      EXPECT_TRUE(rows.empty() || rows.rbegin()->first < part.keys[i]) << "keys must ascend";
      rows[part.keys[i]] = {{part.weights.begin() + i * dim, part.weights.begin() + (i + 1) * dim},
                            {part.state.begin() + i * state, part.state.begin() + (i + 1) * state}};
    }
  }
}

// Whether `condition` comes true within ten seconds: for what happens in the background.
inline bool Eventually(absl::FunctionRef<bool()> condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// The value of one counter of Store::Stats(); fails the test when there is none.
inline double Stat(Store* store, const std::string& name) {
  for (const auto& [key, value] : store->Stats()) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

}  // namespace tf_hps

#endif  // TF_HPS_TESTS_ENGINE_TEST_UTIL_H_
