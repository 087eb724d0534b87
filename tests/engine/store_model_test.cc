// Random operations on a whole store against models: tables come and go, are committed, saved,
// restored under each other's names, and reopened at kept commits. (One table's operations:
// table_model_test.)

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/store_fixture.h"
#include "tests/engine/table_model.h"

namespace tf_hps {
namespace {

constexpr int kDim = 3;
constexpr int kNames = 5;

struct Rule {
  const char* optimizer;
  std::vector<float> hyperparameters;
};

const Rule kRules[] = {
    {"sgd", {0.1f}},
    {"adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}},
    {"momentum(momentum=0.9,nesterov=0)", {0.1f, 0.9f}},
    {"adam(amsgrad=1)", {0.01f, 0.9f, 0.999f, 1e-7f, 3.0f}},
};

class StoreModelTest : public StoreFixture, public testing::WithParamInterface<int> {
 protected:
  using Models = std::map<std::string, TableModel>;

  // A saved checkpoint: models by the names that it gave them.
  struct Checkpoint {
    std::string id;
    Models models;
  };

  uint64_t Random(uint64_t n) { return rng_() % n; }

  void OpenAt(int64_t commit) {
    tables_.clear();
    StoreOptions options = Options(static_cast<int64_t>(Random(3)) * 6000);
    options.keep_commits = 3;
    options.commit = commit;
    ASSERT_NO_FATAL_FAILURE(OpenWith(options));
  }

  // The table of that name, made or attached if need be.
  TablePtr Table(const std::string& name) {
    TablePtr& table = tables_[name];
    if (table == nullptr) {
      table = Attach(name, kDim, kUniform);
      models_.try_emplace(name, kDim, kUniform, 0, name, "");
    }
    return table;
  }
  std::string AnyName() { return absl::StrCat("table ", Random(kNames)); }

  std::vector<int64_t> Keys() {
    std::vector<int64_t> keys(Random(150));
    for (int64_t& key : keys) key = static_cast<int64_t>(Random(400)) - 100;
    return keys;
  }

  void ChangeRows() {
    const std::string name = AnyName();
    TablePtr table = Table(name);
    TableModel& model = models_.at(name);
    const std::vector<int64_t> keys = Keys();
    std::vector<float> values(keys.size() * kDim);
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(rng_);
    switch (Random(4)) {
      case 0:
        TF_HPS_ASSERT_OK(table->Remove(keys, SerialFor));
        for (const int64_t key : keys) model.Remove(key);
        break;
      case 1:
        TF_HPS_ASSERT_OK(table->Upsert(keys, values.data(), SerialFor));
        for (size_t i = 0; i < keys.size(); ++i) model.Upsert(keys[i], values.data() + i * kDim);
        break;
      default: {
        const Rule& rule = kRules[Random(10) == 0 ? Random(4) : name.back() % 4];
        TF_HPS_ASSERT_OK(TieredTable::ApplyGradients(
            {{table.get(), keys, values.data()}}, *OptimizerSpec::Parse(rule.optimizer),
            rule.hyperparameters, TieredTable::NonFinite::kError, SerialFor));
        model.Apply(keys, values, rule.optimizer, rule.hyperparameters);
      }
    }
  }

  void Drop() {
    const std::string name = AnyName();
    TF_HPS_ASSERT_OK(store_->Drop(Table(name).get()));
    tables_.erase(name);
    models_.erase(name);
  }

  void CommitOrReopen() {
    if (Random(2) == 0) {
      const auto number = store_->Commit();
      TF_HPS_ASSERT_OK(number.status());
      commits_[*number] = models_;
      return;
    }
    const std::vector<int64_t> kept = store_->Commits();
    const int64_t commit = kept.empty() || Random(2) == 0 ? 0 : kept[Random(kept.size())];
    ASSERT_NO_FATAL_FAILURE(OpenAt(commit));
    const int64_t at = commit > 0 ? commit : kept.empty() ? 0 : kept.back();
    models_ = at > 0 ? commits_.at(at) : Models();
    ++reopened_;
  }

  // Some tables, or all, under names of the checkpoint's own.
  std::vector<NamedTable> Choose() {
    std::vector<NamedTable> chosen;
    const bool all = Random(2) == 0;
    for (const TableState& state : store_->Tables()) {
      if (all || Random(2) == 0) {
        chosen.push_back({absl::StrCat("saved ", chosen.size()), Table(state.name)});
      }
    }
    return chosen;
  }

  void Save() {
    Checkpoint checkpoint{absl::StrCat(10000 + checkpoints_.size()), {}};
    const std::vector<NamedTable> chosen = Choose();
    for (const NamedTable& named : chosen) {
      checkpoint.models.emplace(named.name, models_.at(named.table->name()));
    }
    TF_HPS_ASSERT_OK(store_->Save(directory_ / "c", checkpoint.id, chosen));
    checkpoints_.push_back(checkpoint);
  }

  void Restore() {
    if (checkpoints_.empty()) return;
    const Checkpoint& checkpoint = checkpoints_[Random(checkpoints_.size())];
    const std::vector<NamedTable> chosen = Choose();
    bool complete = true;
    for (const NamedTable& named : chosen) complete &= checkpoint.models.count(named.name) > 0;
    const absl::Status status = store_->Restore(directory_ / "c", checkpoint.id, chosen);
    if (!complete) {
      ExpectError(status, absl::StatusCode::kNotFound, "saved ");
      return;
    }
    TF_HPS_ASSERT_OK(status);
    ++restored_;
    for (const NamedTable& named : chosen) {
      models_.insert_or_assign(named.table->name(), checkpoint.models.at(named.name));
    }
  }

  void CheckAll() {
    ASSERT_EQ(store_->Tables().size(), models_.size());
    for (const auto& [name, model] : models_) {
      TablePtr table = Table(name);
      ASSERT_EQ(ExportAll(store_.get(), table.get()), model.Rows()) << name;
      const std::vector<int64_t> keys = KeyRange(-110, 310);
      const std::vector<float> rows = Read(table.get(), keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        const std::vector<float> row(rows.begin() + i * kDim, rows.begin() + (i + 1) * kDim);
        ASSERT_EQ(row, model.Read(keys[i])) << name << ", key " << keys[i];
      }
    }
  }

  std::mt19937_64 rng_{static_cast<uint64_t>(GetParam())};
  std::map<std::string, TablePtr> tables_;
  Models models_;
  std::map<int64_t, Models> commits_;
  std::vector<Checkpoint> checkpoints_;
  int reopened_ = 0, restored_ = 0;
};

TEST_P(StoreModelTest, RandomOperationsEqualModels) {
  ASSERT_NO_FATAL_FAILURE(OpenAt(0));
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(absl::StrCat("operation ", i));
    const uint64_t kind = Random(20);
    if (kind < 10) {
      ASSERT_NO_FATAL_FAILURE(ChangeRows());
    } else if (kind < 14) {
      ASSERT_NO_FATAL_FAILURE(CommitOrReopen());
    } else if (kind < 16) {
      ASSERT_NO_FATAL_FAILURE(Save());
    } else if (kind < 19) {
      ASSERT_NO_FATAL_FAILURE(Restore());
    } else {
      ASSERT_NO_FATAL_FAILURE(Drop());
    }
    if (i % 5 == 0) ASSERT_NO_FATAL_FAILURE(CheckAll());
  }
  EXPECT_GT(reopened_, 5);
  EXPECT_GT(restored_, 5);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSeeds = 4;  // ten times slower
#else
constexpr int kSeeds = 8;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, StoreModelTest, testing::Range(0, kSeeds));

}  // namespace
}  // namespace tf_hps
