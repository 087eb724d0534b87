// Random operations on a table against a plain map, over budgets, dims, optimizers, policies and
// thread counts.

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "cc_ops/engine/optimizer.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

constexpr char kInitializer[] = "uniform(minval=-0.05,maxval=0.05)";
constexpr int64_t kSeed = 7;

struct Config {
  int64_t dram_bytes;
  int dim;
  const char* optimizer;
  std::vector<float> hyperparameters;
  const char* eviction;
  int threads;
};

std::ostream& operator<<(std::ostream& out, const Config& c) {
  return out << c.dram_bytes << " bytes, dim " << c.dim << ", " << c.optimizer;
}

std::string NameOf(const testing::TestParamInfo<Config>& info) {
  const Config& c = info.param;
  std::string name = absl::StrCat(c.dram_bytes, "_dim", c.dim, "_", c.optimizer, "_", c.eviction,
                                  "_threads", c.threads);
  for (char& ch : name) {
    if (!isalnum(ch)) ch = '_';
  }
  return name;
}

class TableModelTest : public testing::TestWithParam<Config> {
 protected:
  void Open(int64_t dram_bytes) {
    StoreOptions options;
    options.path = directory_ / "store";
    options.dram_bytes = dram_bytes;
    dram_bytes_ = dram_bytes;
    options.eviction = GetParam().eviction;
    auto store = Store::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
    auto table = store_->Attach({"t", GetParam().dim, kInitializer, kSeed, ""});
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = *table;
  }

  std::vector<int64_t> RandomKeys() {
    std::vector<int64_t> keys(rng_() % 300);
    for (int64_t& key : keys) {
      const int64_t extremes[] = {0, -1, -2, INT64_MIN, INT64_MAX, 1};
      const uint64_t kind = rng_() % 20;
      key = kind == 0
                ? extremes[rng_() % 6]
                : static_cast<int64_t>((rng_() % (kind < 10 ? 50 : 3000)) * 0x9e3779b97f4a7c15ull);
    }
    return keys;
  }

  std::vector<float> RandomValues(size_t n) {
    std::vector<float> values(n * GetParam().dim);
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(rng_);
    return values;
  }

  void CheckLookup(const std::vector<int64_t>& keys, const std::vector<float>& rows) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> expected = model_.Read(keys[i]);
      for (int j = 0; j < GetParam().dim; ++j) {
        ASSERT_EQ(rows[i * GetParam().dim + j], expected[j])
            << "key " << keys[i] << " [" << j << "]";
      }
    }
  }

  void DoRandomOperation() {
    const TestThreads threads(GetParam().threads);
    const std::vector<int64_t> keys = RandomKeys();
    std::vector<float> rows(keys.size() * GetParam().dim);
    switch (rng_() % 10) {
      case 0:
        TF_HPS_ASSERT_OK(table_->Prefetch(keys, threads));
        [[fallthrough]];
      case 1:
        TF_HPS_ASSERT_OK(table_->Lookup(keys, rows.data(), threads));
        CheckLookup(keys, rows);
        break;
      case 2:
      case 3:
        TF_HPS_ASSERT_OK(table_->LookupOrCreate(keys, rows.data(), threads));
        CheckLookup(keys, rows);
        for (const int64_t key : keys) model_.Create(key);
        break;
      case 4: {
        const std::vector<float> values = RandomValues(keys.size());
        TF_HPS_ASSERT_OK(table_->Upsert(keys, values.data(), threads));
        for (size_t i = 0; i < keys.size(); ++i) {
          model_.Upsert(keys[i], values.data() + i * GetParam().dim);
        }
        break;
      }
      case 5: {
        const std::vector<int64_t> few(keys.begin(), keys.begin() + keys.size() / 4);
        TF_HPS_ASSERT_OK(table_->Remove(few, threads));
        for (const int64_t key : few) model_.Remove(key);
        break;
      }
      default: {
        const std::vector<float> gradients = RandomValues(keys.size());
        TF_HPS_ASSERT_OK(TieredTable::ApplyGradients(
            {{table_.get(), keys, gradients.data()}}, *OptimizerSpec::Parse(GetParam().optimizer),
            GetParam().hyperparameters, TieredTable::NonFinite::kError, threads));
        model_.Apply(keys, gradients, GetParam().optimizer, GetParam().hyperparameters);
      }
    }
  }

  void CheckAll() {
    const auto expected = model_.Rows();
    const auto rows = ExportAll(store_.get(), table_.get());
    ASSERT_EQ(rows.size(), expected.size());
    ASSERT_EQ(*table_->Size(), static_cast<int64_t>(expected.size()));
    ASSERT_TRUE(rows == expected);
  }

  TestDirectory directory_;
  int64_t dram_bytes_ = 0;  // of the open store
  std::shared_ptr<Store> store_;
  std::shared_ptr<TieredTable> table_;
  TableModel model_{GetParam().dim, kInitializer, kSeed, "t", GetParam().optimizer};
  std::mt19937_64 rng_{20240607};
};

TEST_P(TableModelTest, RandomOperationsEqualAMap) {
  Open(GetParam().dram_bytes);
  // Bind the optimizer before the model relies on its state.
  TF_HPS_ASSERT_OK(TieredTable::ApplyGradients(
      {{table_.get(), {}, nullptr}}, *OptimizerSpec::Parse(GetParam().optimizer),
      GetParam().hyperparameters, TieredTable::NonFinite::kError, SerialFor));
  model_.Apply({}, {}, GetParam().optimizer, GetParam().hyperparameters);
  for (int i = 0; i < 300; ++i) {
    ASSERT_NO_FATAL_FAILURE(DoRandomOperation()) << "operation " << i;
    ASSERT_LE(Stat(store_.get(), "store/dram_bytes"), dram_bytes_) << "operation " << i;
    if (i % 50 == 49) {
      ASSERT_NO_FATAL_FAILURE(CheckAll()) << "operation " << i;
    }
    if (i % 100 == 99) {
      if (GetParam().dram_bytes < 100000) {
        EXPECT_GT(Stat(store_.get(), "tables/t/dram/evictions"), 0);
        EXPECT_GT(Stat(store_.get(), "tables/t/ssd/hits"), 0);
      }
      ASSERT_TRUE(store_->Commit().ok());
      store_.reset();
      table_.reset();
      Open(i == 99 ? GetParam().dram_bytes * 2 + 1000 : GetParam().dram_bytes);
      ASSERT_NO_FATAL_FAILURE(CheckAll()) << "after reopening";
    }
  }
}

const std::vector<float> kAdam = {0.01f, 0.9f, 0.999f, 1e-7f, 3.0f};

INSTANTIATE_TEST_SUITE_P(
    Configs, TableModelTest,
    testing::Values(
        Config{64 << 20, 16, "adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}, "lfu", 1},
        Config{64 << 20, 3, "adam(amsgrad=1)", kAdam, "lfu", 4},
        Config{60000, 16, "adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}, "lfu", 2},
        Config{20000, 1, "sgd", {0.1f}, "lru", 3},
        Config{20000, 7, "adam(amsgrad=0)", kAdam, "lru", 2},
        Config{20000, 4, "momentum(momentum=0.9,nesterov=1)", {0.1f, 0.9f}, "lfu", 2},
        Config{5000, 129, "momentum(momentum=0.9,nesterov=0)", {0.1f, 0.9f}, "lru", 2},
        Config{0, 16, "adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}, "lfu", 2},
        Config{1000, 5, "adam(amsgrad=1)", kAdam, "lfu", 2}),
    NameOf);

}  // namespace
}  // namespace tf_hps
