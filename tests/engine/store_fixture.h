// A store in a directory of its own, and tables whose rows are one number repeated.

#ifndef TF_HPS_TESTS_ENGINE_STORE_FIXTURE_H_
#define TF_HPS_TESTS_ENGINE_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/store.h"
#include "tests/engine/test_util.h"

namespace tf_hps {

inline constexpr char kUniform[] = "uniform(minval=-0.05,maxval=0.05)";
inline constexpr char kZeros[] = "constant(value=0.0)";

using TablePtr = std::shared_ptr<TieredTable>;
using StorePtr = std::shared_ptr<Store>;

// Fails the test unless `status` has the code and contains the text.
inline void ExpectError(const absl::Status& status, absl::StatusCode code,
                        const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status << "\nexpected: " << text;
}

// [begin, end)
inline std::vector<int64_t> KeyRange(int64_t begin, int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = begin; key < end; ++key) keys.push_back(key);
  return keys;
}

// Sets every element of the keys' rows.
inline absl::Status Put(TieredTable* table, const std::vector<int64_t>& keys, float value) {
  const std::vector<float> values(keys.size() * static_cast<size_t>(table->dim()), value);
  return table->Upsert(keys, values.data(), SerialFor);
}

// One step of plain SGD with the same gradient everywhere.
inline absl::Status Step(TieredTable* table, const std::vector<int64_t>& keys, float gradient,
                         const std::string& optimizer = "sgd",
                         const std::vector<float>& hyperparameters = {1.0f}) {
  const std::vector<float> values(keys.size() * static_cast<size_t>(table->dim()), gradient);
  return TieredTable::ApplyGradients({{table, keys, values.data()}},
                                     *OptimizerSpec::Parse(optimizer), hyperparameters,
                                     TieredTable::NonFinite::kError, SerialFor);
}

// The rows of the keys, one after the other.
inline std::vector<float> Read(TieredTable* table, const std::vector<int64_t>& keys) {
  std::vector<float> rows(keys.size() * static_cast<size_t>(table->dim()));
  const absl::Status status = table->Lookup(keys, rows.data(), SerialFor);
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

class StoreFixture : public testing::Test {
 protected:
  std::string path() const { return directory_ / "store"; }

  StoreOptions Options(int64_t dram_bytes = 64 << 10) const {
    StoreOptions options;
    options.path = path();
    options.dram_bytes = dram_bytes;
    return options;
  }

  // Opens, or opens again, the store of this test.
  void Open(int64_t dram_bytes = 64 << 10) { OpenWith(Options(dram_bytes)); }
  void OpenWith(const StoreOptions& options) {
    store_.reset();
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
  }
  // Reopens it at its last commit, as after a crash.
  void Reopen() {
    store_.reset();
    Open();
  }

  TablePtr Attach(const std::string& name, int dim = 4, const std::string& initializer = kZeros) {
    auto table = store_->Attach({name, dim, initializer, 0, ""});
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? *table : nullptr;
  }

  void Commit() { TF_HPS_ASSERT_OK(store_->Commit().status()); }

  // The first element of every row.
  std::map<int64_t, float> Values(const TablePtr& table) {
    std::map<int64_t, float> values;
    for (const auto& [key, row] : ExportAll(store_.get(), table.get())) {
      values[key] = row.weights[0];
      for (const float weight : row.weights) EXPECT_EQ(weight, row.weights[0]) << "key " << key;
    }
    return values;
  }

  static std::map<int64_t, float> Expected(const std::vector<int64_t>& keys, float value) {
    std::map<int64_t, float> values;
    for (const int64_t key : keys) values[key] = value;
    return values;
  }

  double StatOf(const std::string& name) { return Stat(store_.get(), name); }

  TestDirectory directory_;
  StorePtr store_;
};

}  // namespace tf_hps

#endif  // TF_HPS_TESTS_ENGINE_STORE_FIXTURE_H_
