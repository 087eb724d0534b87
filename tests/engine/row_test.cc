#include "cc_ops/engine/row.h"

#include <gtest/gtest.h>

#include <vector>

namespace tf_hps {
namespace {

constexpr uint32_t kEpoch = 5;

class RowTest : public testing::TestWithParam<RowLayout> {
 protected:
  // A row of distinct values.
  RowBuffer MakeRow() const {
    RowBuffer row(layout_, 1);
    *row[0].header = {11, 0xfffffffe, 13, 200, kRowDirty | kRowPinned, 0};
    for (int i = 0; i < layout_.floats(); ++i) row[0].weights[i] = 0.5f + static_cast<float>(i);
    return row;
  }

  std::string Encode(RowBuffer row, uint32_t epoch = kEpoch) const {
    std::string value;
    EncodeRow(layout_, epoch, row[0], &value);
    return value;
  }

  const RowLayout layout_ = GetParam();
};

TEST_P(RowTest, RoundTripKeepsWeightsStateAndMetadata) {
  RowBuffer row = MakeRow();
  RowBuffer back(layout_, 1);
  bool fresh_state = true;
  ASSERT_TRUE(DecodeRow(layout_, kEpoch, Encode(row), back[0], &fresh_state).ok());
  EXPECT_FALSE(fresh_state);
  EXPECT_EQ(back[0].header->version, 11);
  EXPECT_EQ(back[0].header->frequency, 0xfffffffe);
  EXPECT_EQ(back[0].header->last_step, 13);
  EXPECT_EQ(std::memcmp(back[0].weights, row[0].weights, 4 * layout_.floats()), 0);
}

TEST_P(RowTest, DecodingLeavesScoreFlagsAndEpochAlone) {
  RowBuffer back(layout_, 1);
  *back[0].header = {0, 0, 0, 9, kRowOccupied, 42};
  bool fresh_state;
  ASSERT_TRUE(DecodeRow(layout_, kEpoch, Encode(MakeRow()), back[0], &fresh_state).ok());
  EXPECT_EQ(back[0].header->epoch, 42);
  EXPECT_EQ(back[0].header->score, 9);
  EXPECT_EQ(back[0].header->flags, kRowOccupied);
}

TEST_P(RowTest, EncodingHasTheDocumentedSizeAndIsAppended) {
  std::string value = "before";
  EncodeRow(layout_, kEpoch, MakeRow()[0], &value);
  EXPECT_EQ(value.substr(0, 6), "before");
  EXPECT_EQ(static_cast<int64_t>(value.size()) - 6, 16 + 4 * layout_.dim * (1 + layout_.slots));
}

TEST_P(RowTest, StateOfAnotherEpochIsFresh) {
  // Another optimizer's row, with more state than this layout has.
  const RowLayout other{layout_.dim, layout_.slots + 2};
  RowBuffer row(other, 1);
  for (int i = 0; i < other.floats(); ++i) row[0].weights[i] = static_cast<float>(i);
  std::string value;
  EncodeRow(other, kEpoch - 1, row[0], &value);
  RowBuffer back(layout_, 1);
  bool fresh_state = false;
  ASSERT_TRUE(DecodeRow(layout_, kEpoch, value, back[0], &fresh_state).ok());
  EXPECT_TRUE(fresh_state);
  EXPECT_EQ(std::memcmp(back[0].weights, row[0].weights, 4 * layout_.dim), 0);
}

TEST_P(RowTest, EverySizeThatIsNoRowIsDataLoss) {
  const std::string value = Encode(MakeRow());
  RowBuffer back(layout_, 1);
  for (size_t size = 0; size < value.size(); ++size) {
    bool fresh_state;
    const absl::Status status =
        DecodeRow(layout_, kEpoch, value.substr(0, size), back[0], &fresh_state);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << " bytes: " << status;
  }
  bool fresh_state;
  EXPECT_EQ(DecodeRow(layout_, kEpoch, value + "x", back[0], &fresh_state).code(),
            absl::StatusCode::kDataLoss);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RowTest,
                         testing::Values(RowLayout{1, 0}, RowLayout{1, 3}, RowLayout{2, 1},
                                         RowLayout{7, 2}, RowLayout{16, 1}, RowLayout{129, 3}),
                         [](const auto& info) {
                           return "dim" + std::to_string(info.param.dim) + "_slots" +
                                  std::to_string(info.param.slots);
                         });

}  // namespace
}  // namespace tf_hps
