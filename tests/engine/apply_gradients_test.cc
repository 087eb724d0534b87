// One step over several tables: duplicates, order, and what happens to gradients that are not
// finite. (Random steps against a model: table_model_test.)

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

using absl::StatusCode;
using NonFinite = TieredTable::NonFinite;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kDim = 2;

class ApplyGradientsTest : public StoreFixture, public testing::WithParamInterface<int64_t> {
 protected:
  // Keys and a gradient for each, the same for all elements but the last, which is one more.
  struct Entry {
    TablePtr table;
    std::vector<int64_t> keys;
    std::vector<float> gradients;
  };

  void SetUp() override {
    Open(GetParam());
    a_ = Attach("a", kDim);
    b_ = Attach("b", kDim);
    // More rows than the small budget holds.
    for (const TablePtr& table : {a_, b_}) {
      TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(0, 500), 0));
    }
  }

  static absl::Status Apply(const std::vector<Entry>& entries, NonFinite non_finite,
                            float learning_rate = 1) {
    std::vector<std::vector<float>> values;
    std::vector<TieredTable::Gradients> gradients;
    for (const Entry& entry : entries) {
      std::vector<float>& v = values.emplace_back();
      for (const float g : entry.gradients) v.insert(v.end(), {g, g + 1});
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      gradients.push_back({entries[i].table.get(), entries[i].keys, values[i].data()});
    }
    return TieredTable::ApplyGradients(gradients, *OptimizerSpec::Parse("sgd"), {learning_rate},
                                       non_finite, SerialFor);
  }

  std::map<int64_t, ExportedRow> Rows(const TablePtr& table) {
    return ExportAll(store_.get(), table.get());
  }

  TablePtr a_, b_;
};

TEST_P(ApplyGradientsTest, SumsDuplicatesOverAllEntriesOfATable) {
  TF_HPS_ASSERT_OK(Apply({{a_, {1, 2, 1}, {1, 10, 2}}, {b_, {1}, {100}}, {a_, {2, 1}, {20, 4}}},
                         NonFinite::kError));
  EXPECT_EQ(Read(a_.get(), {1, 2}), (std::vector<float>{-7, -10, -30, -32}));
  EXPECT_EQ(Read(b_.get(), {1}), (std::vector<float>{-100, -101}));
}

// 1e8 + 1 is 1e8 in float32: the order shows.
TEST_P(ApplyGradientsTest, SumsDuplicatesInTheirOrder) {
  TF_HPS_ASSERT_OK(Apply({{a_, {1, 1, 1}, {1, 1e8f, -1e8f}}}, NonFinite::kError));
  TF_HPS_ASSERT_OK(Apply({{a_, {2}, {1e8f}}, {a_, {2, 2}, {-1e8f, 1}}}, NonFinite::kError));
  EXPECT_EQ(Read(a_.get(), {1, 2})[0], 0);
  EXPECT_EQ(Read(a_.get(), {1, 2})[2], -1);
}

// A step usually follows the lookup of its keys, and takes over what that found; whatever happened
// in between, it does what it would have done without.
TEST_P(ApplyGradientsTest, IsTheSameAfterALookupOfItsKeys) {
  const std::vector<int64_t> keys = {7, 8, 9, 7, 1000, 1001, 7, 499};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8};
  using Between = std::function<void(const TablePtr& table)>;
  const Between betweens[] = {
      [](const TablePtr&) {},
      [](const TablePtr& table) {
        TF_HPS_ASSERT_OK(table->Remove({8, 1000, 499, 499}, SerialFor));
      },
      [](const TablePtr& table) {  // they move all others out of a small budget
        TF_HPS_ASSERT_OK(Put(table.get(), KeyRange(2000, 2500), 1));
      },
      [](const TablePtr& table) {
        TF_HPS_ASSERT_OK(Put(table.get(), {9, 1001}, 17));
      },
      [](const TablePtr& table) {
        EXPECT_EQ(Read(table.get(), {7, 3000}).size(), 2 * kDim);
      },
      [this](const TablePtr&) { TF_HPS_ASSERT_OK(store_->Commit().status()); },
  };
  for (const Between& between : betweens) {
    for (const TablePtr& table : {a_, b_}) {
      if (table == a_) {
        std::vector<float> out(keys.size() * kDim);
        TF_HPS_ASSERT_OK(table->LookupOrCreate(keys, out.data(), SerialFor));
      }
      between(table);
      TF_HPS_ASSERT_OK(Apply({{table, keys, gradients}}, NonFinite::kError));
    }
    const auto a = Rows(a_), b = Rows(b_);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [key, row] : a) ASSERT_EQ(row.weights, b.at(key).weights) << key;
  }
}

TEST_P(ApplyGradientsTest, CreatesRowsThatWereNotThere) {
  TF_HPS_ASSERT_OK(Apply({{a_, {INT64_MIN, INT64_MAX}, {1, 2}}}, NonFinite::kError));
  EXPECT_EQ(*a_->Size(), 502);
  EXPECT_EQ(Read(a_.get(), {INT64_MIN, INT64_MAX}), (std::vector<float>{-1, -2, -2, -3}));
}

TEST_P(ApplyGradientsTest, NoTablesAndNoKeysAreSteps) {
  TF_HPS_ASSERT_OK(Apply({}, NonFinite::kError));
  const auto before = Rows(a_);
  TF_HPS_ASSERT_OK(Apply({{a_, {}, {}}, {b_, {}, {}}}, NonFinite::kError));
  EXPECT_EQ(Rows(a_), before);
}

TEST_P(ApplyGradientsTest, ANonFiniteGradientChangesNoTable) {
  TF_HPS_ASSERT_OK(Apply({{a_, {1}, {1}}, {b_, {1}, {1}}}, NonFinite::kError));
  const auto a = Rows(a_), b = Rows(b_);
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    for (const bool first : {true, false}) {
      std::vector<float> good(300, 1), last_bad(300, 1);
      last_bad[299] = bad;
      const absl::Status status = Apply({{a_, KeyRange(300, 600), first ? last_bad : good},
                                         {b_, KeyRange(300, 600), first ? good : last_bad}},
                                        NonFinite::kError);
      ExpectError(status, StatusCode::kInvalidArgument, "key 599");
      ExpectError(status, StatusCode::kInvalidArgument, first ? "\"a\"" : "\"b\"");
      EXPECT_EQ(Rows(a_), a);
      EXPECT_EQ(Rows(b_), b);
      EXPECT_EQ(*a_->Size(), 500);
    }
  }
}

TEST_P(ApplyGradientsTest, ASumThatOverflowsIsNotFinite) {
  const float most = std::numeric_limits<float>::max();
  ExpectError(Apply({{a_, {1, 1}, {most, most}}}, NonFinite::kError), StatusCode::kInvalidArgument,
              "key 1");
  // Finite terms whose sum is finite again are fine, however they come.
  TF_HPS_ASSERT_OK(Apply({{a_, {1, 1}, {most, -most}}}, NonFinite::kError));
}

TEST_P(ApplyGradientsTest, SkipLeavesOnlySuchRowsAsTheyAre) {
  TF_HPS_ASSERT_OK(
      Apply({{a_, {1, 2, 3, 1}, {5, kInf, 5, kInf}}, {b_, {1}, {5}}}, NonFinite::kSkip));
  EXPECT_EQ(Read(a_.get(), {1, 2, 3}), (std::vector<float>{0, 0, 0, 0, -5, -6}));
  EXPECT_EQ(Read(b_.get(), {1}), (std::vector<float>{-5, -6}));
}

TEST_P(ApplyGradientsTest, PropagateDoesAsTold) {
  TF_HPS_ASSERT_OK(Apply({{a_, {1, 2}, {kInf, 5}}}, NonFinite::kPropagate));
  EXPECT_EQ(Read(a_.get(), {1, 2}), (std::vector<float>{-kInf, -kInf, -5, -6}));
}

TEST_P(ApplyGradientsTest, AClosedOrDroppedTableStopsTheStepOfAll) {
  TF_HPS_ASSERT_OK(store_->Drop(b_.get()));
  const auto a = Rows(a_);
  ExpectError(Apply({{a_, {1}, {1}}, {b_, {1}, {1}}}, NonFinite::kError),
              StatusCode::kFailedPrecondition, "\"b\"");
  EXPECT_EQ(Rows(a_), a);
}

TEST_P(ApplyGradientsTest, TablesOfTwoStoresTakeOneStep) {
  auto other = Store::Open(StoreOptions());
  TF_HPS_ASSERT_OK(other.status());
  TablePtr c = *(*other)->Attach({"a", kDim, kZeros, 0, ""});
  TF_HPS_ASSERT_OK(Apply({{a_, {1}, {1}}, {c, {1}, {2}}}, NonFinite::kError));
  EXPECT_EQ(Read(a_.get(), {1})[0], -1);
  EXPECT_EQ(Read(c.get(), {1})[0], -2);
  ExpectError(Apply({{a_, {1}, {1}}, {c, {1}, {kInf}}}, NonFinite::kError),
              StatusCode::kInvalidArgument, "key 1");
  EXPECT_EQ(Read(a_.get(), {1})[0], -1);
}

INSTANTIATE_TEST_SUITE_P(Budgets, ApplyGradientsTest, testing::Values(1 << 20, 4000, 0));

}  // namespace
}  // namespace tf_hps
