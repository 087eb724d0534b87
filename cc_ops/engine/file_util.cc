#include "cc_ops/engine/file_util.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_fault.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

namespace fs = std::filesystem;

// Closes a descriptor when it goes out of scope.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0644) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Returns the error that a test wants from a file operation.
#define TF_HPS_RETURN_IF_FAULT(op, action, path)   \
  if (const int fault = InjectedFault(op, path)) { \
    return ErrnoStatus(fault, action, path);       \
  }

absl::Status WriteAll(int fd, const char* data, size_t size, const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kWrite, "write", path);
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", path);
    data += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status SyncFd(int fd, const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kSync, "sync", path);
  if (::fsync(fd) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status WriteAndSync(const std::string& path, absl::string_view data) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kCreate, "create", path);
  const ScopedFd fd(OpenRetrying(path, O_WRONLY | O_CREAT | O_TRUNC));
  if (fd.get() < 0) return ErrnoStatus(errno, "create", path);
  TF_HPS_RETURN_IF_ERROR(WriteAll(fd.get(), data.data(), data.size(), path));
  return SyncFd(fd.get(), path);
}

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  const std::string message = absl::StrCat("cannot ", action, " ", path, ": ",
                                           std::generic_category().message(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(absl::StripSuffix(directory, "/"), "/", name);
}

bool PathExists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

absl::Status CreateDirectories(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kMakeDirectory, "create directory", path);
  // Each new one is made durable, so that nothing that is synced below it goes with its name.
  if (::mkdir(path.c_str(), 0777) == 0) return SyncDirectory(ParentOf(path));
  if (errno == ENOENT) {
    const std::string parent = ParentOf(path);
    if (parent == path) return ErrnoStatus(ENOENT, "create directory", path);
    TF_HPS_RETURN_IF_ERROR(CreateDirectories(parent));
    if (::mkdir(path.c_str(), 0777) == 0) return SyncDirectory(parent);
  }
  std::error_code error;
  if (errno == EEXIST && fs::is_directory(path, error)) return absl::OkStatus();
  if (errno != EEXIST && errno != ENOTDIR) return ErrnoStatus(errno, "create directory", path);
  std::string file = path;
  while (!PathExists(file) && ParentOf(file) != file) file = ParentOf(file);
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot create directory ", path, ": ", file,
      " is there already and is no directory. Give another path, or move that out of the way"));
}

absl::Status RemoveTree(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kRemove, "remove", path);
  std::error_code error;
  fs::remove_all(path, error);
  return error ? ErrnoStatus(error.value(), "remove", path) : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kList, "list", path);
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kRead, "read", path);
  const ScopedFd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  std::string data;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path);
    if (got == 0) return data;
    data.append(buffer, static_cast<size_t>(got));
  }
}

absl::StatusOr<int64_t> FileSize(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kStat, "stat", path);
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat", path);
  return static_cast<int64_t>(info.st_size);
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view data) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status = WriteAndSync(temporary, data);
  if (status.ok()) status = Rename(temporary, path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(ParentOf(path));
}

absl::Status Rename(const std::string& from, const std::string& to) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kRename, "rename to", to);
  if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "rename to", to);
  return absl::OkStatus();
}

absl::Status SyncFile(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kOpen, "open", path);
  const ScopedFd fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  return SyncFd(fd.get(), path);
}

absl::Status SyncDirectory(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kOpen, "open", path);
  const ScopedFd fd(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  return SyncFd(fd.get(), path);
}

absl::Status CopyFile(const std::string& from, const std::string& to, int64_t bytes) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kOpen, "open", from);
  TF_HPS_RETURN_IF_FAULT(FileOp::kCreate, "create", to);
  const ScopedFd in(OpenRetrying(from, O_RDONLY));
  if (in.get() < 0) return ErrnoStatus(errno, "open", from);
  // Not into a file that is there: it may be another name of one that must not change.
  if (::unlink(to.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "replace", to);
  const ScopedFd out(OpenRetrying(to, O_WRONLY | O_CREAT | O_EXCL));
  if (out.get() < 0) return ErrnoStatus(errno, "create", to);
  std::vector<char> buffer(1 << 20);
  while (bytes > 0) {
    const size_t want = static_cast<size_t>(std::min<int64_t>(bytes, buffer.size()));
    const ssize_t got = ::read(in.get(), buffer.data(), want);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", from);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(from, " is ", bytes, " bytes shorter than expected"));
    }
    TF_HPS_RETURN_IF_ERROR(WriteAll(out.get(), buffer.data(), static_cast<size_t>(got), to));
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::Status LinkOrCopyFile(const std::string& from, const std::string& to, int64_t bytes) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kLink, absl::StrCat("link ", from, " to"), to);
  if (::link(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  switch (errno) {
    case EXDEV:
    case EPERM:
    case EACCES:
    case EMLINK:
    case EROFS:
    case EOPNOTSUPP:
      return CopyFile(from, to, bytes);
    default:
      return ErrnoStatus(errno, absl::StrCat("link ", from, " to"), to);
  }
}

std::string TemporaryParent() {
  const char* parent = std::getenv("TMPDIR");
  return parent != nullptr && *parent != '\0' ? parent : "/tmp";
}

absl::StatusOr<std::string> MakeTemporaryDirectory() {
  std::string path = JoinPath(TemporaryParent(), absl::StrCat(kTemporaryPrefix, "XXXXXX"));
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, "create directory", path);
  return path;
}

absl::StatusOr<std::string> CanonicalPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return ErrnoStatus(errno, "resolve", path);
  return std::string(resolved);
}

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Acquire(const std::string& path) {
  TF_HPS_RETURN_IF_FAULT(FileOp::kLock, "lock", path);
  const int fd = OpenRetrying(path, O_RDWR | O_CREAT);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  auto lock = std::unique_ptr<FileLock>(new FileLock(fd));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    char owner[32] = {};
    const bool known = ::pread(fd, owner, sizeof(owner) - 1, 0) > 0;
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is locked by ", known ? absl::StrCat("process ", owner) : "another process"));
  }
  const std::string pid = absl::StrCat(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return ErrnoStatus(errno, "write", path);
  }
  return lock;
}

FileLock::~FileLock() {
  ::flock(fd_, LOCK_UN);  // also for forks, which have the descriptor too
  ::close(fd_);
}

}  // namespace tf_hps
