// A table that is given another optimizer: its rows keep their weights and start with fresh state,
// wherever they are.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

struct Kind {
  const char* name;
  const char* spec;
  std::vector<float> hyperparameters;
  std::vector<float> fresh_state;  // of one weight, slot by slot
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

const Kind kKinds[] = {
    {"Sgd", "sgd", {0.1f}, {}},
    {"Momentum", "momentum(momentum=0.9,nesterov=0)", {0.1f, 0.9f}, {0}},
    {"Nesterov", "momentum(momentum=0.9,nesterov=1)", {0.1f, 0.9f}, {0}},
    {"Adagrad", "adagrad(initial_accumulator_value=0.25)", {0.1f, 1e-7f}, {0.25f}},
    {"OtherAdagrad", "adagrad(initial_accumulator_value=0.5)", {0.1f, 1e-7f}, {0.5f}},
    {"Adam", "adam(amsgrad=0)", {0.1f, 0.9f, 0.999f, 1e-7f, 1}, {0, 0}},
    {"Amsgrad", "adam(amsgrad=1)", {0.1f, 0.9f, 0.999f, 1e-7f, 1}, {0, 0, 0}},
};

constexpr int kDim = 3;
constexpr int64_t kRows = 600;

class OptimizerSwitchTest
    : public StoreFixture,
      public testing::WithParamInterface<std::tuple<Kind, Kind, int64_t /*dram_bytes*/>> {
 protected:
  void SetUp() override {
    Open(std::get<int64_t>(GetParam()));
    table_ = Attach("t", kDim, kUniform);
  }

  absl::Status StepWith(const Kind& kind, const std::vector<int64_t>& keys, float gradient) {
    return Step(table_.get(), keys, gradient, kind.spec, kind.hyperparameters);
  }

  // Some steps that leave every row with state, the later ones on few rows.
  void TrainWith(const Kind& kind) {
    TF_HPS_ASSERT_OK(StepWith(kind, KeyRange(0, kRows), 1));
    TF_HPS_ASSERT_OK(StepWith(kind, KeyRange(0, kRows / 2), -2));
    TF_HPS_ASSERT_OK(StepWith(kind, KeyRange(0, 10), 3));
  }

  std::map<int64_t, ExportedRow> Rows() { return ExportAll(store_.get(), table_.get()); }

  const Kind& from_ = std::get<0>(GetParam());
  const Kind& to_ = std::get<1>(GetParam());
  TablePtr table_;
};

TEST_P(OptimizerSwitchTest, KeepsWeightsAndStartsWithFreshState) {
  ASSERT_NO_FATAL_FAILURE(TrainWith(from_));
  const auto before = Rows();
  const std::vector<float> read = Read(table_.get(), KeyRange(0, kRows));
  TF_HPS_ASSERT_OK(StepWith(to_, {}, 0));
  for (int reopened = 0; reopened < 2; ++reopened) {
    EXPECT_EQ(Read(table_.get(), KeyRange(0, kRows)), read);
    const auto after = Rows();
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [key, row] : after) {
      ASSERT_EQ(row.weights, before.at(key).weights) << key;
      std::vector<float> state;
      for (const float value : to_.fresh_state) state.insert(state.end(), kDim, value);
      ASSERT_EQ(row.state, state) << key;
    }
    Commit();
    SetUp();
  }
}

// The rows of a table that was switched train like those of one that had the weights from the
// start.
TEST_P(OptimizerSwitchTest, TrainsOnAsFromTheWeights) {
  ASSERT_NO_FATAL_FAILURE(TrainWith(from_));
  const std::vector<int64_t> keys = KeyRange(0, kRows);
  TablePtr other = Attach("other", kDim, kUniform);
  const std::vector<float> weights = Read(table_.get(), keys);
  TF_HPS_ASSERT_OK(other->Upsert(keys, weights.data(), SerialFor));
  for (int i = 0; i < 3; ++i) {
    const std::vector<int64_t> touched = KeyRange(0, kRows >> i);
    TF_HPS_ASSERT_OK(StepWith(to_, touched, 1));
    TF_HPS_ASSERT_OK(Step(other.get(), touched, 1, to_.spec, to_.hyperparameters));
  }
  EXPECT_EQ(Rows(), ExportAll(store_.get(), other.get()));
}

TEST_P(OptimizerSwitchTest, AStepThatFailsSwitchesNothing) {
  ASSERT_NO_FATAL_FAILURE(TrainWith(from_));
  const auto before = Rows();
  const absl::Status status = StepWith(to_, {1, kRows + 1}, std::numeric_limits<float>::infinity());
  ExpectError(status, absl::StatusCode::kInvalidArgument, "not finite");
  EXPECT_EQ(Rows(), before);
  TF_HPS_ASSERT_OK(StepWith(from_, {}, 0));  // moves by momentum alone
  EXPECT_EQ(Rows().size(), before.size());
}

std::string NameOf(const testing::TestParamInfo<OptimizerSwitchTest::ParamType>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "To", std::get<1>(info.param).name, "_",
                      std::get<2>(info.param));
}

std::vector<OptimizerSwitchTest::ParamType> AllSwitches() {
  std::vector<OptimizerSwitchTest::ParamType> switches;
  for (const Kind& from : kKinds) {
    for (const Kind& to : kKinds) {
      if (std::string(from.spec) == to.spec) continue;
      for (const int64_t dram_bytes : {1 << 20, 4000}) switches.emplace_back(from, to, dram_bytes);
    }
  }
  return switches;
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerSwitchTest, testing::ValuesIn(AllSwitches()), NameOf);

class OptimizerTest : public StoreFixture {};

TEST_F(OptimizerTest, RowsMadeBeforeTheFirstStepGetItsState) {
  Open();
  TablePtr table = Attach("t", kDim, kUniform);
  std::vector<float> rows(3 * kDim);
  TF_HPS_ASSERT_OK(table->LookupOrCreate({1, 2, 3}, rows.data(), SerialFor));
  TF_HPS_ASSERT_OK(
      Step(table.get(), {4}, 1, "adagrad(initial_accumulator_value=0.25)", {0.1f, 1e-7f}));
  const auto exported = ExportAll(store_.get(), table.get());
  EXPECT_EQ(exported.at(1).state, std::vector<float>(kDim, 0.25f));
  EXPECT_EQ(exported.at(4).state, std::vector<float>(kDim, 1.25f));
}

TEST_F(OptimizerTest, BadHyperparametersChangeNothing) {
  Open();
  TablePtr table = Attach("t", kDim);
  TF_HPS_ASSERT_OK(Step(table.get(), {1}, 1));
  const auto before = ExportAll(store_.get(), table.get());
  ExpectError(Step(table.get(), {1}, 1, "adagrad(initial_accumulator_value=0.1)", {0.1f}),
              absl::StatusCode::kInvalidArgument, "epsilon");
  ExpectError(Step(table.get(), {1}, 1, "sgd", {std::nanf("")}), absl::StatusCode::kInvalidArgument,
              "learning_rate");
  EXPECT_EQ(ExportAll(store_.get(), table.get()), before);
}

TEST_F(OptimizerTest, ARowThatComesBackHasFreshState) {
  Open(4000);
  TablePtr table = Attach("t", kDim, kUniform);
  const std::string adagrad = "adagrad(initial_accumulator_value=0.25)";
  const std::vector<int64_t> keys = KeyRange(0, kRows);
  TF_HPS_ASSERT_OK(Step(table.get(), keys, 1, adagrad, {0.1f, 1e-7f}));
  const auto once = ExportAll(store_.get(), table.get());
  TF_HPS_ASSERT_OK(table->Remove(keys, SerialFor));
  EXPECT_EQ(*table->Size(), 0);
  TF_HPS_ASSERT_OK(Step(table.get(), keys, 1, adagrad, {0.1f, 1e-7f}));
  EXPECT_EQ(ExportAll(store_.get(), table.get()), once);
}

}  // namespace
}  // namespace tf_hps
