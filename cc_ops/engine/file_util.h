// Files and directories of a store: durable writes, hard links with a fallback, locks. Every error
// names the path.

#ifndef TF_HPS_CC_OPS_ENGINE_FILE_UTIL_H_
#define TF_HPS_CC_OPS_ENGINE_FILE_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tf_hps {

// The status that fits an errno, "cannot <action> <path>: <reason>".
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

std::string JoinPath(absl::string_view directory, absl::string_view name);

bool PathExists(const std::string& path);

// Creates the directory and its parents. OK when it is there already.
absl::Status CreateDirectories(const std::string& path);

// Removes a file or a whole tree. OK when there is none.
absl::Status RemoveTree(const std::string& path);

// Names in a directory, without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::StatusOr<int64_t> FileSize(const std::string& path);

// Writes `data` so that after a crash `path` holds either what it held before or all of `data`: a
// temporary file beside it, synced, renamed over it, and the directory synced.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view data);

absl::Status Rename(const std::string& from, const std::string& to);
absl::Status SyncFile(const std::string& path);
absl::Status SyncDirectory(const std::string& path);

// Copies the first `bytes` bytes into a new file, in place of one that may be there. DataLoss when
// the source is shorter.
absl::Status CopyFile(const std::string& from, const std::string& to, int64_t bytes);

// Hard-links, or copies where the file system cannot link (another device, no permission, too many
// links).
absl::Status LinkOrCopyFile(const std::string& from, const std::string& to, int64_t bytes);

// TMPDIR, or /tmp.
std::string TemporaryParent();

// A new directory there, whose name begins with kTemporaryPrefix.
inline constexpr absl::string_view kTemporaryPrefix = "tf_hps-";
absl::StatusOr<std::string> MakeTemporaryDirectory();

// The path with symbolic links resolved, for a path that exists.
absl::StatusOr<std::string> CanonicalPath(const std::string& path);

// An exclusive lock on a file, held until destroyed or until the process ends in any way.
class FileLock {
 public:
  // FailedPrecondition when another process holds it, naming that process where known.
  static absl::StatusOr<std::unique_ptr<FileLock>> Acquire(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_FILE_UTIL_H_
