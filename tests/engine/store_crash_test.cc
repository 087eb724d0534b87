// Processes that are killed at random moments. (make crash-test, if there is one, does this for
// longer.)

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "tests/engine/store_fixture.h"

namespace tf_hps {
namespace {

using Rows = std::map<int64_t, float>;

// What happens between commit n - 1 and commit n, a function of n alone.
struct Changes {
  explicit Changes(int64_t n) {
    std::mt19937_64 rng(static_cast<uint64_t>(n));
    const int64_t begin = static_cast<int64_t>(rng() % 2000) - 1000;
    put = KeyRange(begin, begin + 300);
    removed = KeyRange(begin - 40, begin + 20);
    value = static_cast<float>(n);
  }
  std::vector<int64_t> put, removed;
  float value;
};

Rows RowsAt(int64_t commit) {
  Rows rows;
  for (int64_t n = 1; n <= commit; ++n) {
    const Changes changes(n);
    for (const int64_t key : changes.put) rows[key] = changes.value;
    for (const int64_t key : changes.removed) rows.erase(key);
  }
  return rows;
}

class StoreCrashTest : public StoreFixture {
 protected:
  // Trains and commits until it is killed; tells the number of each commit through the pipe.
  [[noreturn]] void TrainForever(int out) {
    auto store = Store::Open(Options(20000));
    if (!store.ok()) ::_exit(2);
    auto table = (*store)->Attach({"t", 8, kZeros, 0, ""});
    if (!table.ok()) ::_exit(3);
    for (int64_t n = static_cast<int64_t>(Stat(store->get(), "store/commit")) + 1;; ++n) {
      const Changes changes(n);
      if (!Put(table->get(), changes.put, changes.value).ok()) ::_exit(4);
      if (!(*table)->Remove(changes.removed, SerialFor).ok()) ::_exit(5);
      const auto commit = (*store)->Commit();
      if (!commit.ok() || *commit != n) ::_exit(6);
      if (::write(out, &n, sizeof(n)) != sizeof(n)) ::_exit(7);
    }
  }

  // A factor of a child's life: sanitizers make it slow to start.
  static int Slowness() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 20;
#else
    return 1;
#endif
  }

  // Runs it for a while, kills it, and returns the last commit that it told of, or 0.
  int64_t TrainAndKill(std::chrono::microseconds life) {
    int pipe_ends[2];
    EXPECT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) TrainForever(pipe_ends[1]);
    ::close(pipe_ends[1]);
    std::this_thread::sleep_for(life);
    ::kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself, with " << WEXITSTATUS(status);
    int64_t last = 0;
    for (int64_t n; ::read(pipe_ends[0], &n, sizeof(n)) == sizeof(n);) last = n;
    ::close(pipe_ends[0]);
    return last;
  }
};

TEST_F(StoreCrashTest, AKilledStoreReopensExactlyAtItsLastCommit) {
  std::mt19937_64 rng(20240611);
  int64_t last = 0;
  int unacknowledged = 0;
  for (int kill = 0; kill < 40; ++kill) {
    const std::chrono::microseconds life(rng() % 40000 * Slowness());
    const int64_t told = std::max(last, TrainAndKill(life));
    Open(20000);
    const int64_t commit = static_cast<int64_t>(StatOf("store/commit"));
    // The one that was being made may have come about.
    ASSERT_GE(commit, told) << "kill " << kill << " after " << life.count() << " us";
    ASSERT_LE(commit, told + 1) << "kill " << kill << " after " << life.count() << " us";
    unacknowledged += commit > told;
    TablePtr table = Attach("t", 8);
    ASSERT_EQ(Values(table), RowsAt(commit)) << "kill " << kill << " after " << life.count();
    store_.reset();
    last = commit;
  }
  EXPECT_GT(last, 2) << "the children had no time to commit";
  RecordProperty("commits", static_cast<int>(last));
  RecordProperty("unacknowledged", unacknowledged);
}

TEST_F(StoreCrashTest, KilledStoresLeaveNoRubbish) {
  for (int kill = 0; kill < 5; ++kill)
    TrainAndKill(std::chrono::milliseconds((10 + 5 * kill) * Slowness()));
  Open(20000);
  const int64_t commit = static_cast<int64_t>(StatOf("store/commit"));
  ASSERT_GT(commit, 0);
  // Only whole ones. A process that died between its commit and removing the former one leaves
  // both, and who only opens a store loses none.
  EXPECT_EQ(ListDirectory(path() + "/commits")->size(), store_->Commits().size());
  TF_HPS_ASSERT_OK(store_->Close(true));
  EXPECT_EQ(ListDirectory(path() + "/commits")->size(), 1);
  EXPECT_EQ(*ListDirectory(path()),
            (std::vector<std::string>{"CURRENT", "FORMAT", "LOCK", "commits"}));
}

}  // namespace
}  // namespace tf_hps
