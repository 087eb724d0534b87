#include "cc_ops/engine/ssd_env.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

class SsdEnvTest : public testing::Test {
 protected:
  std::string WriteFile(const std::string& name, const std::string& data) {
    leveldb::WritableFile* file = nullptr;
    EXPECT_TRUE(env_.env()->NewWritableFile(directory_ / name, &file).ok());
    const std::unique_ptr<leveldb::WritableFile> owned(file);
    EXPECT_TRUE(owned->Append(data).ok());
    EXPECT_TRUE(owned->Close().ok());
    return directory_ / name;
  }

  TestDirectory directory_;
  SsdEnv env_;
};

TEST_F(SsdEnvTest, ReadsAtOffsetsAndStopsAtTheEnd) {
  const std::string path = WriteFile("000001.ldb", "0123456789");
  leveldb::RandomAccessFile* file = nullptr;
  ASSERT_TRUE(env_.env()->NewRandomAccessFile(path, &file).ok());
  const std::unique_ptr<leveldb::RandomAccessFile> owned(file);
  char scratch[16];
  leveldb::Slice result;
  ASSERT_TRUE(owned->Read(3, 4, &result, scratch).ok());
  EXPECT_EQ(result.ToString(), "3456");
  ASSERT_TRUE(owned->Read(8, 10, &result, scratch).ok());
  EXPECT_EQ(result.ToString(), "89");
  ASSERT_TRUE(owned->Read(100, 10, &result, scratch).ok());
  EXPECT_EQ(result.ToString(), "");
}

TEST_F(SsdEnvTest, CountsBytes) {
  const std::string path = WriteFile("000001.ldb", "0123456789");
  EXPECT_EQ(env_.bytes_written(), 10);
  leveldb::RandomAccessFile* file = nullptr;
  ASSERT_TRUE(env_.env()->NewRandomAccessFile(path, &file).ok());
  const std::unique_ptr<leveldb::RandomAccessFile> owned(file);
  char scratch[16];
  leveldb::Slice result;
  ASSERT_TRUE(owned->Read(8, 10, &result, scratch).ok());
  EXPECT_EQ(env_.bytes_read(), 2);
}

TEST_F(SsdEnvTest, WritesNoLogs) {
  WriteFile("000003.log", "a log record");
  EXPECT_FALSE(PathExists(directory_ / "000003.log"));
  leveldb::Logger* logger = nullptr;
  ASSERT_TRUE(env_.env()->NewLogger(directory_ / "LOG", &logger).ok());
  delete logger;
  EXPECT_FALSE(PathExists(directory_ / "LOG"));
  EXPECT_EQ(env_.bytes_written(), 0);
}

// LevelDB takes NotFound from a missing table for "there is no such key".
TEST_F(SsdEnvTest, AMissingTableIsAnIoErrorThatNamesIt) {
  leveldb::RandomAccessFile* file = nullptr;
  const leveldb::Status status = env_.env()->NewRandomAccessFile(directory_ / "000009.ldb", &file);
  EXPECT_TRUE(status.IsIOError()) << status.ToString();
  EXPECT_NE(status.ToString().find(directory_ / "000009.ldb"), std::string::npos);
  EXPECT_EQ(file, nullptr);
}

TEST_F(SsdEnvTest, KnowsWhichFilesAreBeingWritten) {
  leveldb::WritableFile* file = nullptr;
  ASSERT_TRUE(env_.env()->NewWritableFile(directory_ / "000001.ldb", &file).ok());
  EXPECT_EQ(env_.FilesBeingWritten(), std::set<std::string>{directory_ / "000001.ldb"});
  delete file;
  EXPECT_TRUE(env_.FilesBeingWritten().empty());
}

TEST_F(SsdEnvTest, HeldDeletionsHappenAtTheRelease) {
  const std::string before = WriteFile("000001.ldb", "x");
  const std::string during = WriteFile("000002.ldb", "x");
  const std::string after = WriteFile("000003.ldb", "x");
  EXPECT_TRUE(env_.env()->RemoveFile(before).ok());
  EXPECT_FALSE(PathExists(before));
  env_.HoldDeletions();
  EXPECT_TRUE(env_.env()->RemoveFile(during).ok());
  EXPECT_TRUE(PathExists(during));
  env_.ReleaseDeletions();
  EXPECT_FALSE(PathExists(during));
  EXPECT_TRUE(env_.env()->RemoveFile(after).ok());
  EXPECT_FALSE(PathExists(after));
}

// What LevelDB schedules, as it schedules it.
struct Work {
  std::vector<int>* done;
  std::vector<std::thread::id>* threads;
  int number;

  static void Run(void* arg) {
    const std::unique_ptr<Work> work(static_cast<Work*>(arg));
    work->done->push_back(work->number);
    work->threads->push_back(std::this_thread::get_id());
  }
};

TEST_F(SsdEnvTest, BackgroundWorkIsDoneInOrderOnOneOtherThreadBeforeTheEnd) {
  std::vector<int> done;
  std::vector<std::thread::id> threads;
  {
    SsdEnv env;
    for (int i = 0; i < 100; ++i) env.env()->Schedule(Work::Run, new Work{&done, &threads, i});
  }
  ASSERT_EQ(done.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[i], i);
  for (const std::thread::id& thread : threads) {
    EXPECT_EQ(thread, threads[0]);
    EXPECT_NE(thread, std::this_thread::get_id());
  }
}

}  // namespace
}  // namespace tf_hps
