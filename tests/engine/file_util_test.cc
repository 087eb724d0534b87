#include "cc_ops/engine/file_util.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

using absl::StatusCode;

ino_t InodeOf(const std::string& path) {
  struct stat info;
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_ino;
}

// Fails the test unless `status` has the code and names the path.
void ExpectError(const absl::Status& status, StatusCode code, const std::string& path) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
}

class FileUtilTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& data) {
    const std::string path = directory_ / name;
    std::ofstream(path) << data;
    return path;
  }

  TestDirectory directory_;
};

TEST_F(FileUtilTest, ErrnosBecomeCodesThatNameThePath) {
  for (const auto& [number, code] :
       {std::pair(ENOENT, StatusCode::kNotFound), std::pair(EACCES, StatusCode::kPermissionDenied),
        std::pair(EROFS, StatusCode::kPermissionDenied),
        std::pair(ENOSPC, StatusCode::kResourceExhausted),
        std::pair(EMFILE, StatusCode::kResourceExhausted),
        std::pair(EIO, StatusCode::kUnavailable)}) {
    ExpectError(ErrnoStatus(number, "open", "/some/path"), code, "cannot open /some/path: ");
  }
}

TEST_F(FileUtilTest, JoinPathHasOneSlash) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
}

TEST_F(FileUtilTest, ADanglingLinkExists) {
  ASSERT_EQ(::symlink("nowhere", (directory_ / "link").c_str()), 0);
  EXPECT_TRUE(PathExists(directory_ / "link"));
  EXPECT_FALSE(PathExists(directory_ / "nowhere"));
}

TEST_F(FileUtilTest, CreatesDirectoriesWithTheirParentsTwice) {
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "a/b/c"));
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "a/b/c"));
  EXPECT_TRUE(PathExists(directory_ / "a/b/c"));
}

TEST_F(FileUtilTest, AFileIsNoDirectory) {
  const std::string file = Write("file", "");
  ExpectError(CreateDirectories(file), StatusCode::kFailedPrecondition, file);
  ExpectError(CreateDirectories(file + "/child"), StatusCode::kFailedPrecondition, file);
}

TEST_F(FileUtilTest, AProcDirectoryCannotBeMade) {
  EXPECT_FALSE(CreateDirectories("/proc/tf_hps").ok());
}

TEST_F(FileUtilTest, RemovesTreesAndWhatIsNotThere) {
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "a/b"));
  Write("a/b/file", "x");
  TF_HPS_ASSERT_OK(RemoveTree(directory_ / "a"));
  EXPECT_FALSE(PathExists(directory_ / "a"));
  TF_HPS_ASSERT_OK(RemoveTree(directory_ / "a"));
}

TEST_F(FileUtilTest, RemovingALinkToADirectoryKeepsTheDirectory) {
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "a"));
  Write("a/file", "x");
  ASSERT_EQ(::symlink((directory_ / "a").c_str(), (directory_ / "link").c_str()), 0);
  TF_HPS_ASSERT_OK(RemoveTree(directory_ / "link"));
  EXPECT_TRUE(PathExists(directory_ / "a/file"));
}

TEST_F(FileUtilTest, ListsSortedNames) {
  for (const char* name : {"c", "a", ".hidden", "b"}) Write(name, "");
  EXPECT_EQ(*ListDirectory(directory_.path()),
            (std::vector<std::string>{".hidden", "a", "b", "c"}));
  ExpectError(ListDirectory(directory_ / "none").status(), StatusCode::kNotFound,
              directory_ / "none");
}

TEST_F(FileUtilTest, ReadsBytesOfAnyKindAndLength) {
  std::string data(200000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  const std::string path = Write("file", data);
  EXPECT_EQ(*ReadFile(path), data);
  EXPECT_EQ(*FileSize(path), 200000);
  EXPECT_EQ(*ReadFile(Write("empty", "")), "");
}

TEST_F(FileUtilTest, ReadingWhatIsNotThereNamesIt) {
  ExpectError(ReadFile(directory_ / "none").status(), StatusCode::kNotFound, directory_ / "none");
  ExpectError(FileSize(directory_ / "none").status(), StatusCode::kNotFound, directory_ / "none");
  ExpectError(ReadFile(directory_.path()).status(), StatusCode::kUnavailable, directory_.path());
}

TEST_F(FileUtilTest, AtomicWriteReplacesAndLeavesNothingElse) {
  const std::string path = Write("file", "before, and longer than after");
  TF_HPS_ASSERT_OK(WriteFileAtomically(path, "after"));
  EXPECT_EQ(*ReadFile(path), "after");
  EXPECT_EQ(*ListDirectory(directory_.path()), std::vector<std::string>{"file"});
}

TEST_F(FileUtilTest, AtomicWriteGivesTheFileANewInode) {
  const std::string path = Write("file", "before");
  ASSERT_EQ(::link(path.c_str(), (directory_ / "other").c_str()), 0);
  TF_HPS_ASSERT_OK(WriteFileAtomically(path, "after"));
  EXPECT_EQ(*ReadFile(directory_ / "other"), "before");
}

TEST_F(FileUtilTest, FailedAtomicWriteKeepsTheOldFileAndLeavesNothingElse) {
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "directory/child"));
  EXPECT_FALSE(WriteFileAtomically(directory_ / "directory", "data").ok());
  EXPECT_TRUE(PathExists(directory_ / "directory/child"));
  EXPECT_EQ(*ListDirectory(directory_.path()), std::vector<std::string>{"directory"});
}

TEST_F(FileUtilTest, AFullDiskIsResourceExhausted) {
  if (!PathExists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  ASSERT_EQ(::symlink("/dev/full", (directory_ / "full.tmp").c_str()), 0);
  ExpectError(WriteFileAtomically(directory_ / "full", "data"), StatusCode::kResourceExhausted,
              directory_ / "full");
}

TEST_F(FileUtilTest, CopyTakesTheBytesAskedFor) {
  const std::string from = Write("from", "0123456789");
  TF_HPS_ASSERT_OK(CopyFile(from, directory_ / "to", 4));
  EXPECT_EQ(*ReadFile(directory_ / "to"), "0123");
  TF_HPS_ASSERT_OK(CopyFile(from, directory_ / "nothing", 0));
  EXPECT_EQ(*ReadFile(directory_ / "nothing"), "");
}

TEST_F(FileUtilTest, CopyOfAShortFileIsDataLossThatNamesIt) {
  const std::string from = Write("from", "0123456789");
  ExpectError(CopyFile(from, directory_ / "to", 11), StatusCode::kDataLoss, from);
  ExpectError(CopyFile(directory_ / "none", directory_ / "to", 1), StatusCode::kNotFound,
              directory_ / "none");
}

// The target may be another name of a file that must never change.
TEST_F(FileUtilTest, CopyDoesNotWriteThroughAnotherNameOfItsTarget) {
  const std::string precious = Write("precious", "precious");
  ASSERT_EQ(::link(precious.c_str(), (directory_ / "to").c_str()), 0);
  TF_HPS_ASSERT_OK(CopyFile(Write("from", "new"), directory_ / "to", 3));
  EXPECT_EQ(*ReadFile(precious), "precious");
  EXPECT_EQ(*ReadFile(directory_ / "to"), "new");
}

TEST_F(FileUtilTest, LinksOnOneFileSystem) {
  const std::string from = Write("from", "data");
  TF_HPS_ASSERT_OK(LinkOrCopyFile(from, directory_ / "to", 4));
  EXPECT_EQ(InodeOf(from), InodeOf(directory_ / "to"));
}

TEST_F(FileUtilTest, CopiesToAnotherFileSystem) {
  const std::string other = *MakeTemporaryDirectory();
  const auto remove = absl::MakeCleanup([&] { RemoveTree(other).IgnoreError(); });
  const std::string from = Write("from", "data");
  const std::string to = JoinPath(other, "to");
  if (::link(from.c_str(), to.c_str()) == 0) GTEST_SKIP() << "there is no other file system";
  TF_HPS_ASSERT_OK(LinkOrCopyFile(from, to, 4));
  EXPECT_EQ(*ReadFile(to), "data");
}

TEST_F(FileUtilTest, LinkingWhatIsNotThereNamesBothPaths) {
  const absl::Status status = LinkOrCopyFile(directory_ / "none", directory_ / "to", 4);
  ExpectError(status, StatusCode::kNotFound, directory_ / "none");
  ExpectError(status, StatusCode::kNotFound, directory_ / "to");
}

TEST_F(FileUtilTest, CanonicalPathFollowsLinks) {
  TF_HPS_ASSERT_OK(CreateDirectories(directory_ / "a"));
  ASSERT_EQ(::symlink("a", (directory_ / "link").c_str()), 0);
  EXPECT_EQ(*CanonicalPath(directory_ / "link/../link"), *CanonicalPath(directory_ / "a"));
  ExpectError(CanonicalPath(directory_ / "none").status(), StatusCode::kNotFound,
              directory_ / "none");
}

TEST_F(FileUtilTest, TemporaryDirectoriesAreNewAndBelowTmpdir) {
  const std::string before = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "";
  ::setenv("TMPDIR", directory_.path().c_str(), 1);
  const std::string first = *MakeTemporaryDirectory();
  const std::string second = *MakeTemporaryDirectory();
  ::setenv("TMPDIR", (directory_ / "none").c_str(), 1);
  ExpectError(MakeTemporaryDirectory().status(), StatusCode::kNotFound, directory_ / "none");
  ::setenv("TMPDIR", before.c_str(), 1);
  if (before.empty()) ::unsetenv("TMPDIR");
  EXPECT_NE(first, second);
  EXPECT_EQ(first.find(directory_.path()), 0);
}

TEST_F(FileUtilTest, ALockIsHeldOnceAndFreeAfterwards) {
  const std::string path = directory_ / "LOCK";
  {
    const auto lock = FileLock::Acquire(path);
    TF_HPS_ASSERT_OK(lock.status());
    ExpectError(FileLock::Acquire(path).status(), StatusCode::kFailedPrecondition, path);
    EXPECT_NE(FileLock::Acquire(path).status().message().find(absl::StrCat("process ", ::getpid())),
              std::string::npos);
  }
  TF_HPS_ASSERT_OK(FileLock::Acquire(path).status());
}

TEST_F(FileUtilTest, AProcessThatDiesLosesItsLock) {
  const std::string path = directory_ / "LOCK";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::Acquire(path);
    if (::write(ready[1], lock.ok() ? "y" : "n", 1) == 1) ::pause();
    ::_exit(1);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const absl::Status held = FileLock::Acquire(path).status();
  ExpectError(held, StatusCode::kFailedPrecondition, path);
  ExpectError(held, StatusCode::kFailedPrecondition, absl::StrCat("process ", child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  TF_HPS_ASSERT_OK(FileLock::Acquire(path).status());
}

}  // namespace
}  // namespace tf_hps
