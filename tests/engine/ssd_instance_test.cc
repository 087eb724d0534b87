#include "cc_ops/engine/ssd_instance.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "cc_ops/engine/file_fault.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

// Makes table files impossible to write while it is set.
std::atomic<bool> disk_full{false};
std::atomic<int> failures{0};
// The operation of the compaction thread that fails, once.
std::atomic<int64_t> fail_background_at{-1};
std::atomic<int64_t> background_operations{0};
// A suffix of the path that the compaction thread cannot read; set while no such thread runs.
std::string unreadable_in_background;
// LevelDB gave itself a new CURRENT: the last step of opening.
std::atomic<bool> opened_anew{false};

bool IsCompactionThread() {
  char name[16];
  return ::pthread_getname_np(::pthread_self(), name, sizeof(name)) == 0 &&
         absl::string_view(name) == "tf_hps_compact";
}

int FailTables(FileOp op, const std::string& path) {
  if (op == FileOp::kRename) opened_anew = true;
  if (IsCompactionThread()) {
    if (background_operations++ == fail_background_at ||
        (op == FileOp::kRead && !unreadable_in_background.empty() &&
         absl::EndsWith(path, unreadable_in_background))) {
      ++failures;
      return EIO;
    }
  }
  const bool writes = op == FileOp::kCreate || op == FileOp::kWrite || op == FileOp::kSync;
  if (!writes || !disk_full || !absl::EndsWith(path, ".ldb")) return 0;
  ++failures;
  return ENOSPC;
}

class SsdInstanceTest : public testing::Test {
 protected:
  void SetUp() override {
    disk_full = false;
    fail_background_at = -1;
    failures = 0;
    file_fault_hook = FailTables;
    Open("ssd-0");
  }
  void TearDown() override {
    instance_.reset();
    unreadable_in_background.clear();
    file_fault_hook = nullptr;
  }

  void Open(const std::string& name) {
    instance_.reset();
    auto instance = SsdInstance::Open(directory_ / name, {8 << 10, 64});
    ASSERT_TRUE(instance.ok()) << instance.status();
    instance_ = *std::move(instance);
  }

  static SsdKey Key(int i) { return {1, i}; }

  absl::Status Put(int begin, int end, const std::string& value) {
    SsdWrites writes;
    for (int i = begin; i < end; ++i) writes.Put(Key(i), value);
    return instance_->Write(&writes);
  }

  // "" when there is no such key.
  absl::StatusOr<std::string> Get(int i) {
    std::string value;
    const absl::Status status =
        instance_->Get({Key(i)}, [&](int64_t, absl::string_view found) -> absl::Status {
          value = std::string(found);
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return value;
  }

  // Writes rows until one fails; all before are in.
  int FillUp(const std::string& value) {
    for (int i = 0; i < 100000; ++i) {
      const absl::Status status = Put(i, i + 1, value);
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), directory_ / "ssd-0")) << status;
      return i;
    }
    ADD_FAILURE() << "never full";
    return 0;
  }

  TestDirectory directory_;
  std::unique_ptr<SsdInstance> instance_;
};

TEST_F(SsdInstanceTest, ABatchIsWrittenWhole) {
  SsdWrites writes;
  writes.Put(Key(1), "a");
  writes.Put(Key(2), "b");
  writes.Remove(Key(1));
  EXPECT_EQ(writes.entries(), 3);
  TF_HPS_ASSERT_OK(instance_->Write(&writes));
  EXPECT_EQ(*Get(1), "");
  EXPECT_EQ(*Get(2), "b");
  writes.Clear();
  EXPECT_TRUE(writes.empty());
}

// LevelDB's own reads would have it compact the upper file after a hundred that had to look below
// it.
TEST_F(SsdInstanceTest, ReadsCauseNoCompaction) {
  TF_HPS_ASSERT_OK(Put(0, 5000, std::string(100, 'a')));
  TF_HPS_ASSERT_OK(instance_->Compact());
  for (int i = 0; i < 5000; i += 100) TF_HPS_ASSERT_OK(Put(i, i + 1, "b"));
  TF_HPS_ASSERT_OK(instance_->Flush());
  const int64_t written = instance_->env()->bytes_written();
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(Get(i)->size(), i % 100 == 0 ? 1u : 100u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(instance_->env()->bytes_written(), written + 1000);  // a note on the flush, no file
  TF_HPS_ASSERT_OK(instance_->Flush());                          // with other work waiting
  TF_HPS_ASSERT_OK(instance_->Compact());
  EXPECT_GT(instance_->env()->bytes_written(), written);
  EXPECT_EQ(Get(4900)->size(), 1u);
}

// A buffer that goes to a file as a whole has what was overwritten in it too, and the file may be
// the only one: there is no level to merge it with.
TEST_F(SsdInstanceTest, CompactionRewritesASingleFile) {
  const auto table_bytes = [&] {
    int64_t bytes = 0;
    for (const auto& level : instance_->env()->files()->levels) {
      for (const auto& file : level) bytes += file->bytes;
    }
    return bytes;
  };
  for (int round = 0; round < 4; ++round) {
    TF_HPS_ASSERT_OK(Put(0, 1000, std::string(100, static_cast<char>('a' + round))));
  }
  TF_HPS_ASSERT_OK(instance_->Flush());
  EXPECT_GT(table_bytes(), 400'000);
  TF_HPS_ASSERT_OK(instance_->Compact());
  EXPECT_LT(table_bytes(), 130'000);
  EXPECT_EQ((*Get(999))[0], 'd');
  TF_HPS_ASSERT_OK(instance_->Compact());
  EXPECT_LT(table_bytes(), 130'000);
}

TEST_F(SsdInstanceTest, ALevelThatIsFullIsCompacted) {
  const auto files = [&](int level) {
    std::string value;
    const absl::Status status = instance_->Read("ask", [&](leveldb::DB* db) {
      db->GetProperty("leveldb.num-files-at-level" + std::to_string(level), &value);
      return leveldb::Status::OK();
    });
    return status.ok() ? std::stoi(value) : -1;
  };
  for (int round = 0; round < 20; ++round) {
    TF_HPS_ASSERT_OK(Put(0, 2000, std::string(100, static_cast<char>('a' + round))));
    TF_HPS_ASSERT_OK(instance_->Flush());
  }
  EXPECT_TRUE(Eventually([&] { return files(0) < 8; })) << files(0);
  EXPECT_GT(files(1), 0);
  EXPECT_EQ((*Get(0))[0], 'a' + 19);
  TF_HPS_ASSERT_OK(Put(0, 100000, std::string(1000, 'z')));  // more than level 1 is to hold
  for (int i = 0; i < 10; ++i) {
    TF_HPS_ASSERT_OK(Put(200000 + i, 200001 + i, "z"));
    TF_HPS_ASSERT_OK(instance_->Flush());
  }
  EXPECT_TRUE(Eventually([&] { return files(2) > 0 && files(0) < 8; }));
}

TEST_F(SsdInstanceTest, FlushedRowsAreThereAfterReopening) {
  TF_HPS_ASSERT_OK(Put(0, 10, "flushed"));
  TF_HPS_ASSERT_OK(instance_->Flush());
  TF_HPS_ASSERT_OK(Put(10, 20, "not flushed"));
  instance_.reset();
  SetUp();
  EXPECT_EQ(*Get(9), "flushed");
  EXPECT_EQ(*Get(10), "");  // there is no log
}

TEST_F(SsdInstanceTest, RowsStayReadableWhileTheDiskIsFull) {
  disk_full = true;
  const int rows = FillUp("value");
  ASSERT_GT(failures, 0);
  ASSERT_GT(rows, 10);
  EXPECT_FALSE(instance_->Flush().ok());
  EXPECT_FALSE(Put(rows, rows + 1, "in memory only").ok());
  EXPECT_FALSE(Put(rows, rows + 1, "in memory only").ok());
  disk_full = false;
  TF_HPS_ASSERT_OK(Put(rows, rows + 1, "after"));
  for (int i = 0; i < rows; ++i) ASSERT_EQ(*Get(i), "value") << i;
  EXPECT_EQ(*Get(rows), "after");
}

TEST_F(SsdInstanceTest, RemovalsSurviveAFullDiskToo) {
  TF_HPS_ASSERT_OK(Put(0, 100, "value"));
  TF_HPS_ASSERT_OK(instance_->Flush());
  SsdWrites removals;
  removals.Remove(Key(7));
  TF_HPS_ASSERT_OK(instance_->Write(&removals));
  disk_full = true;
  EXPECT_FALSE(instance_->Flush().ok());
  ASSERT_GT(failures, 0);
  disk_full = false;
  TF_HPS_ASSERT_OK(instance_->Flush());
  EXPECT_EQ(*Get(7), "");
  EXPECT_EQ(*Get(8), "value");
  instance_.reset();
  SetUp();
  EXPECT_EQ(*Get(7), "");
}

TEST_F(SsdInstanceTest, ABackgroundErrorThatHasGoneByFailsNoWrite) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kStride = 7;  // ten times slower
#else
  constexpr int kStride = 1;
#endif
  constexpr int kRounds = 12;
  const std::string filler(100, 'x');
  int64_t failing = 0;
  for (bool failed = true; failed; failing += kStride) {
    SCOPED_TRACE(absl::StrCat("operation ", failing, " of the compaction thread fails"));
    Open(absl::StrCat("once-", failing));
    background_operations = 0;
    failures = 0;
    fail_background_at = failing;
    for (int round = 0; round < kRounds; ++round) {
      TF_HPS_ASSERT_OK(Put(round, 150, absl::StrCat(round, filler)));
      if (round % 3 != 0) TF_HPS_ASSERT_OK(instance_->Flush());
    }
    TF_HPS_ASSERT_OK(instance_->Compact());
    TF_HPS_ASSERT_OK(instance_->Read("look at", [](leveldb::DB* db) {
      std::string files;
      EXPECT_TRUE(db->GetProperty("leveldb.num-files-at-level0", &files));
      EXPECT_EQ(files, "0") << "not compacted";
      return leveldb::Status::OK();
    }));
    failed = failures > 0;
    fail_background_at = -1;
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(*Get(i), absl::StrCat(std::min(i, kRounds - 1), filler)) << i;
    }
  }
  EXPECT_GT(failing, 50);
}

TEST_F(SsdInstanceTest, ABackgroundErrorThatStaysIsReported) {
  for (int i = 0; i < 3; ++i) {  // the first files go to deeper levels
    TF_HPS_ASSERT_OK(Put(0, 10, "value"));
    TF_HPS_ASSERT_OK(instance_->Flush());
  }
  instance_.reset();
  const std::vector<std::string> files = *ListDirectory(directory_ / "ssd-0");
  for (const std::string& name : files) {
    if (absl::EndsWith(name, ".ldb")) {
      unreadable_in_background = std::max(unreadable_in_background, name);
    }
  }
  ASSERT_FALSE(unreadable_in_background.empty());
  Open("ssd-0");
  absl::Status status;
  std::string written;
  for (int round = 0; status.ok() && round < 100; ++round) {
    const std::string value = absl::StrCat("value ", round);
    status = Put(0, 10, value);
    if (!status.ok()) break;
    written = value;
    status = instance_->Flush();
  }
  EXPECT_TRUE(absl::StrContains(status.message(), unreadable_in_background)) << status;
  EXPECT_GT(failures, 0);
  EXPECT_FALSE(instance_->Compact().ok());
  EXPECT_EQ(*Get(5), written);
}

TEST_F(SsdInstanceTest, NoReaderMissesARowWhileLevelDbIsOpenedAnew) {
  constexpr int kRows = 30000;
  TF_HPS_ASSERT_OK(Put(0, kRows, "value"));
  disk_full = true;
  ASSERT_FALSE(instance_->Flush().ok());
  disk_full = false;
  opened_anew = false;
  std::vector<std::thread> readers;
  for (int r = 0; r < 20; ++r) {
    readers.emplace_back([this, r] {
      while (!opened_anew) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(500) * r);
      for (int i = r; i < kRows; i += 500) ASSERT_EQ(*Get(i), "value") << i;
    });
  }
  TF_HPS_ASSERT_OK(Put(0, 1, "value"));
  for (std::thread& reader : readers) reader.join();
}

TEST_F(SsdInstanceTest, ACursorRefusesAReopeningAndTheRowsStay) {
  TF_HPS_ASSERT_OK(Put(0, 10, "value"));
  auto cursor = *instance_->NewCursor();
  disk_full = true;
  EXPECT_FALSE(instance_->Flush().ok());
  disk_full = false;
  const absl::Status status = Put(10, 11, "value");
  EXPECT_TRUE(absl::StrContains(status.message(), "export")) << status;
  EXPECT_EQ(*Get(3), "value");
  cursor.reset();
  TF_HPS_ASSERT_OK(Put(10, 11, "value"));
  EXPECT_EQ(*Get(3), "value");
  EXPECT_EQ(*Get(10), "value");
}

}  // namespace
}  // namespace tf_hps
