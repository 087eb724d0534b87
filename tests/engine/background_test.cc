#include "cc_ops/engine/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

TEST(BackgroundTest, RunsWorkInOrder) {
  Background background("test");
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) background.Schedule([&ran, i] { ran.push_back(i); });
  background.Wait();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
  background.Wait();  // nothing is left
}

TEST(BackgroundTest, RunsWhatIsLeftWhenItEnds) {
  std::atomic<int> ran{0};
  {
    Background background("test");
    for (int i = 0; i < 100; ++i) background.Schedule([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST(BackgroundTest, BeginsNothingWhileHeld) {
  std::atomic<int> ran{0};
  Background background("test");
  background.Hold();
  background.Schedule([&ran] { ++ran; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ran, 0);
  background.Release();
  background.Wait();
  EXPECT_EQ(ran, 1);
}

TEST(BackgroundTest, WorkMaySchedule) {
  std::atomic<int> ran{0};
  Background background("test");
  background.Schedule([&] { background.Schedule([&ran] { ++ran; }); });
  background.Wait();
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace tf_hps
