#include "cc_ops/engine/ssd_env.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "cc_ops/engine/background.h"
#include "cc_ops/engine/file_fault.h"
#include "cc_ops/engine/level_files.h"
#include "cc_ops/engine/mutex.h"

namespace tf_hps {
namespace {

leveldb::Status PosixError(const std::string& path, int error_number) {
  if (error_number == ENOENT) return leveldb::Status::NotFound(path, std::strerror(error_number));
  return leveldb::Status::IOError(path, std::strerror(error_number));
}

// Returns the error that a test wants from a file operation.
#define TF_HPS_RETURN_IF_FAULT(op, path) \
  if (const int fault = InjectedFault(op, path)) return PosixError(path, fault)

bool EndsWith(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

class PreadFile : public leveldb::RandomAccessFile {
 public:
  PreadFile(std::string path, int fd, std::atomic<int64_t>* bytes_read)
      : path_(std::move(path)), fd_(fd), bytes_read_(bytes_read) {}
  ~PreadFile() override { ::close(fd_); }

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result,
                       char* scratch) const override {
    TF_HPS_RETURN_IF_FAULT(FileOp::kRead, path_);
    size_t done = 0;
    while (done < n) {
      const ssize_t got = ::pread(fd_, scratch + done, n - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return PosixError(path_, errno);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    bytes_read_->fetch_add(static_cast<int64_t>(done), std::memory_order_relaxed);
    *result = leveldb::Slice(scratch, done);
    return leveldb::Status::OK();
  }

 private:
  const std::string path_;
  const int fd_;
  std::atomic<int64_t>* const bytes_read_;
};

// Swallows a log: see the header.
class DiscardingFile : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice&) override { return leveldb::Status::OK(); }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }
};

class SilentLogger : public leveldb::Logger {
 public:
  void Logv(const char*, std::va_list) override {}
};

// A file that LevelDB writes. Counts the bytes and says when it is closed. Once an operation has
// failed all others do: nobody knows what the file holds, and LevelDB may go on to append to its
// manifest, behind half a record, when a compaction ends after a flush has failed.
class TrackedFile : public leveldb::WritableFile {
 public:
  // Made before the file is, so that no directory listing shows the file without this knowing of
  // it.
  TrackedFile(std::string path, Mutex* mu, std::set<std::string>* open,
              std::atomic<int64_t>* bytes_written)
      : path_(std::move(path)), mu_(mu), open_(open), bytes_written_(bytes_written) {
    MutexLock lock(mu_);
    open_->insert(path_);
  }
  ~TrackedFile() override {
    if (fd_ >= 0) ::close(fd_);
    MutexLock lock(mu_);
    open_->erase(path_);
  }

  leveldb::Status Create() {
    // Never into a file that is there: it may be another name of a commit's.
    if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return PosixError(path_, errno);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd_ < 0) return PosixError(path_, errno);
    return leveldb::Status::OK();
  }

  leveldb::Status Append(const leveldb::Slice& data) override {
    bytes_written_->fetch_add(static_cast<int64_t>(data.size()), std::memory_order_relaxed);
    return Try([&] {
      buffer_.append(data.data(), data.size());
      return buffer_.size() < kBufferBytes ? leveldb::Status::OK()
                                           : WriteBuffer(buffer_.size() / kAlignment * kAlignment);
    });
  }

  // LevelDB asks for it after each block. Nobody reads a table before it is closed, or a MANIFEST
  // before it is synced; and to write parts of pages costs the kernel as much as all the rest of a
  // compaction.
  leveldb::Status Flush() override { return failed_; }

  leveldb::Status Sync() override {  // see ssd_env.h
    return Try([&] { return WriteBuffer(buffer_.size()); });
  }

  leveldb::Status Close() override {
    const leveldb::Status status = Sync();
#ifdef __linux__
    // The disk begins now with what the next commit is to wait for.
    if (status.ok()) ::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
#endif
    const int closing = std::exchange(fd_, -1);
    if (::close(closing) != 0 && status.ok()) return PosixError(path_, errno);
    return status;
  }

 private:
  static constexpr size_t kBufferBytes = 256 << 10;
  static constexpr size_t kAlignment = 64 << 10;  // of writes, in the file

  template <typename Operation>
  leveldb::Status Try(Operation operation) {
    if (failed_.ok()) {
      const int fault = InjectedFault(FileOp::kWrite, path_);
      failed_ = fault != 0 ? PosixError(path_, fault) : operation();
    }
    return failed_;
  }

  leveldb::Status WriteBuffer(size_t bytes) {
    const leveldb::Status status = Write(buffer_.data(), bytes);
    buffer_.erase(0, bytes);
    return status;
  }

  leveldb::Status Write(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t written = ::write(fd_, data, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return PosixError(path_, errno);
      data += written;
      size -= static_cast<size_t>(written);
    }
    return leveldb::Status::OK();
  }

  const std::string path_;
  Mutex* const mu_;
  std::set<std::string>* const open_;
  std::atomic<int64_t>* const bytes_written_;
  int fd_ = -1;
  std::string buffer_;
  leveldb::Status failed_;
};

// LevelDB's MANIFEST: who reads rows learns of its files when LevelDB has noted them, which is when
// it syncs.
class ManifestFile : public TrackedFile {
 public:
  using Published = std::function<void(std::shared_ptr<const LevelFiles>)>;

  template <typename... Args>
  explicit ManifestFile(Published published, Args&&... args)
      : TrackedFile(std::forward<Args>(args)...), published_(std::move(published)) {}

  leveldb::Status Append(const leveldb::Slice& data) override {
    const leveldb::Status status = TrackedFile::Append(data);
    if (status.ok() && understood_) understood_ = reader_.Append({data.data(), data.size()});
    return status;
  }

  leveldb::Status Sync() override {
    const leveldb::Status status = TrackedFile::Sync();
    if (status.ok()) published_(understood_ ? reader_.files() : nullptr);
    return status;
  }

 private:
  const Published published_;
  ManifestReader reader_;
  bool understood_ = true;
};

}  // namespace

class SsdEnv::Impl : public leveldb::EnvWrapper {
 public:
  Impl() : EnvWrapper(leveldb::Env::Default()), background_("tf_hps_compact") {}

  leveldb::Status NewRandomAccessFile(const std::string& path,
                                      leveldb::RandomAccessFile** result) override {
    *result = nullptr;
    TF_HPS_RETURN_IF_FAULT(FileOp::kOpen, path);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    // Not NotFound, which LevelDB would hand on as "there is no such key".
    if (fd < 0) return leveldb::Status::IOError(path, std::strerror(errno));
    *result = new PreadFile(path, fd, &bytes_read_);
    return leveldb::Status::OK();
  }

  leveldb::Status NewWritableFile(const std::string& path,
                                  leveldb::WritableFile** result) override {
    if (EndsWith(path, ".log")) {
      *result = new DiscardingFile;
      return leveldb::Status::OK();
    }
    *result = nullptr;
    TF_HPS_RETURN_IF_FAULT(FileOp::kCreate, path);
    std::unique_ptr<TrackedFile> tracked;
    if (path.find("/MANIFEST-") != path.npos) {
      const auto published = [this](std::shared_ptr<const LevelFiles> files) {
        MutexLock lock(&mu_);
        files_ = std::move(files);
      };
      tracked =
          std::make_unique<ManifestFile>(published, path, &mu_, &being_written_, &bytes_written_);
    } else {
      tracked = std::make_unique<TrackedFile>(path, &mu_, &being_written_, &bytes_written_);
    }
    const leveldb::Status status = tracked->Create();
    if (status.ok()) *result = tracked.release();
    return status;
  }

  leveldb::Status NewSequentialFile(const std::string& path,
                                    leveldb::SequentialFile** result) override {
    *result = nullptr;
    TF_HPS_RETURN_IF_FAULT(FileOp::kOpen, path);
    return target()->NewSequentialFile(path, result);
  }

  leveldb::Status RenameFile(const std::string& from, const std::string& to) override {
    TF_HPS_RETURN_IF_FAULT(FileOp::kRename, to);
    return target()->RenameFile(from, to);
  }

  leveldb::Status GetChildren(const std::string& path, std::vector<std::string>* names) override {
    TF_HPS_RETURN_IF_FAULT(FileOp::kList, path);
    return target()->GetChildren(path, names);
  }

  leveldb::Status GetFileSize(const std::string& path, uint64_t* bytes) override {
    TF_HPS_RETURN_IF_FAULT(FileOp::kStat, path);
    return target()->GetFileSize(path, bytes);
  }

  leveldb::Status LockFile(const std::string& path, leveldb::FileLock** lock) override {
    *lock = nullptr;
    TF_HPS_RETURN_IF_FAULT(FileOp::kLock, path);
    return target()->LockFile(path, lock);
  }

  leveldb::Status RemoveFile(const std::string& path) override {
    TF_HPS_RETURN_IF_FAULT(FileOp::kRemove, path);
    MutexLock lock(&removal_mu_);  // until it is removed: who holds deletions waits
    if (!holding_) return target()->RemoveFile(path);
    held_.push_back(path);
    return leveldb::Status::OK();
  }

  leveldb::Status NewLogger(const std::string&, leveldb::Logger** result) override {
    *result = new SilentLogger;
    return leveldb::Status::OK();
  }

  void Schedule(void (*function)(void*), void* arg) override {
    background_.Schedule([this, function, arg] { RunOrPark({function, arg}); });
  }

  void RunWorkWhen(std::function<bool()> due) { due_ = std::move(due); }

  void ReconsiderWork() {
    std::optional<Work> work;
    {
      MutexLock lock(&mu_);
      ++reconsidered_;
      work.swap(parked_);
    }
    if (work) Schedule(work->function, work->arg);
  }

  void HoldDeletions() {
    MutexLock lock(&removal_mu_);
    holding_ = true;
  }

  void ReleaseDeletions() {
    std::vector<std::string> held;
    {
      MutexLock lock(&removal_mu_);
      holding_ = false;
      held.swap(held_);
    }
    for (const std::string& path : held) target()->RemoveFile(path);
  }

  void HoldWork() { background_.Hold(); }
  void ReleaseWork() { background_.Release(); }

  std::set<std::string> FilesBeingWritten() {
    MutexLock lock(&mu_);
    return being_written_;
  }

  std::shared_ptr<const LevelFiles> files() {
    MutexLock lock(&mu_);
    return files_;
  }

  std::atomic<int64_t>* read_counter() { return &bytes_read_; }
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  int64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }

 private:
  struct Work {
    void (*function)(void*);
    void* arg;
  };

  // LevelDB schedules no further work before this has run.
  void RunOrPark(Work work) {
    for (;;) {
      int64_t reconsidered;
      {
        MutexLock lock(&mu_);
        reconsidered = reconsidered_;
      }
      if (due_ == nullptr || due_()) return work.function(work.arg);
      MutexLock lock(&mu_);
      if (reconsidered != reconsidered_) continue;
      parked_ = work;
      return;
    }
  }

  std::atomic<int64_t> bytes_read_{0};
  std::atomic<int64_t> bytes_written_{0};
  std::function<bool()> due_;

  Mutex removal_mu_;
  bool holding_ ABSL_GUARDED_BY(removal_mu_) = false;
  std::vector<std::string> held_ ABSL_GUARDED_BY(removal_mu_);

  Mutex mu_;
  std::set<std::string> being_written_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const LevelFiles> files_ ABSL_GUARDED_BY(mu_);
  std::optional<Work> parked_ ABSL_GUARDED_BY(mu_);
  int64_t reconsidered_ ABSL_GUARDED_BY(mu_) = 0;

  Background background_;  // last: its work uses the members above
};

SsdEnv::SsdEnv() : impl_(std::make_unique<Impl>()) {}
SsdEnv::~SsdEnv() = default;
leveldb::Env* SsdEnv::env() { return impl_.get(); }
void SsdEnv::HoldDeletions() { impl_->HoldDeletions(); }
void SsdEnv::ReleaseDeletions() { impl_->ReleaseDeletions(); }
void SsdEnv::HoldWork() { impl_->HoldWork(); }
void SsdEnv::ReleaseWork() { impl_->ReleaseWork(); }
void SsdEnv::RunWorkWhen(std::function<bool()> due) { impl_->RunWorkWhen(std::move(due)); }
void SsdEnv::ReconsiderWork() { impl_->ReconsiderWork(); }
std::set<std::string> SsdEnv::FilesBeingWritten() const { return impl_->FilesBeingWritten(); }
std::shared_ptr<const LevelFiles> SsdEnv::files() const { return impl_->files(); }
std::atomic<int64_t>* SsdEnv::read_counter() { return impl_->read_counter(); }
int64_t SsdEnv::bytes_read() const { return impl_->bytes_read(); }
int64_t SsdEnv::bytes_written() const { return impl_->bytes_written(); }

}  // namespace tf_hps
