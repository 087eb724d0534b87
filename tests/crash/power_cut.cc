#include "tests/crash/power_cut.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <vector>

namespace fs = std::filesystem;

namespace tf_hps {
namespace {

int journal = -1;  // where this process notes its syncs, or -1
int shadow_directory = -1;

// Held while a directory is made, or listed, and while that is noted: the journal has both in the
// order in which they happened.
std::mutex directories;

void Require(bool condition, const char* what, const std::string& path) {
  if (condition) return;
  std::perror((std::string(what) + " " + path).c_str());
  std::abort();
}

// One write, so that a killed process leaves whole records but for a last one without its end.
void Note(const std::string& record) {
  const std::string line = record + " .\n";
  Require(::write(journal, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "write",
          "journal");
}

// Journal: "F inode bytes", "D inode (type inode name)*", "M inode" for a new directory. Names have
// no blanks.
void NoteSynced(int fd, const struct stat& info) {
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  std::ostringstream record;
  if (S_ISREG(info.st_mode)) {
    const std::string name = std::to_string(info.st_ino);
    // Fails where it has been linked before, or where nobody can find the file any more.
    ::linkat(AT_FDCWD, self.c_str(), shadow_directory, name.c_str(), AT_SYMLINK_FOLLOW);
    record << "F " << info.st_ino << " " << info.st_size;
  } else {
    const std::lock_guard<std::mutex> lock(directories);
    record << "D " << info.st_ino;
    DIR* const directory = ::opendir(self.c_str());
    Require(directory != nullptr, "open", self);
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      struct stat of;
      // Not d_type and d_ino, which some file systems do not fill, or fill otherwise.
      if (name == "." || name == ".." ||
          ::fstatat(::dirfd(directory), entry->d_name, &of, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      record << (S_ISDIR(of.st_mode) ? " d " : " f ") << of.st_ino << " " << name;
    }
    ::closedir(directory);
    return Note(record.str());
  }
  Note(record.str());
}

int SyncAndNote(int fd, long call) {
  struct stat info;
  if (journal < 0 || ::fstat(fd, &info) != 0) return static_cast<int>(::syscall(call, fd));
  const int result = static_cast<int>(::syscall(call, fd));
  if (result == 0) NoteSynced(fd, info);
  return result;
}

// The id of a directory that the journal does not have: none of its names is durable.
constexpr uint64_t kNotNoted = std::numeric_limits<uint64_t>::max();

uint64_t InodeOf(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace
}  // namespace tf_hps

// In the place of the C library's, for this whole program and the libraries that it uses.
extern "C" {
__attribute__((visibility("default"))) int fsync(int fd) {
  return tf_hps::SyncAndNote(fd, SYS_fsync);
}
__attribute__((visibility("default"))) int fdatasync(int fd) {
  return tf_hps::SyncAndNote(fd, SYS_fdatasync);
}
// A new directory may have the inode number of one that was removed: it starts without names.
__attribute__((visibility("default"))) int mkdir(const char* path, mode_t mode) {
  const std::lock_guard<std::mutex> lock(tf_hps::directories);
  const int result = static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  const int error = errno;
  if (result == 0 && tf_hps::journal >= 0) {
    tf_hps::Note("M " + std::to_string(tf_hps::InodeOf(path)));
  }
  errno = error;
  return result;
}
}

namespace tf_hps {

PowerCut::PowerCut(const std::string& root, const std::string& shadow)
    : root_(root), shadow_(shadow) {
  TakeForDurable();
}

void PowerCut::RecordSyncs() {
  shadow_directory = ::open(shadow_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  journal = ::open((shadow_ + "/journal").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  Require(journal >= 0, "open", shadow_ + "/journal");
}

void PowerCut::TakeForDurable() {
  fs::remove_all(shadow_);
  fs::create_directories(shadow_);
  std::ofstream(shadow_ + "/journal").flush();
  RecordSyncs();
  std::vector<std::string> paths = {root_};
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    paths.push_back(entry.path().string());
    if (entry.is_directory()) Note("M " + std::to_string(InodeOf(paths.back())));
  }
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info;
    Require(fd >= 0 && ::fstat(fd, &info) == 0, "open", path);
    NoteSynced(fd, info);
    ::close(fd);
  }
  ::close(journal);
  ::close(shadow_directory);
  journal = shadow_directory = -1;
}

PowerCut::Durable PowerCut::ReadJournal() const {
  Durable durable;
  durable.directory_ids[InodeOf(root_)] = durable.next_id++;
  std::ifstream lines(shadow_ + "/journal");
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 2 || line.compare(line.size() - 2, 2, " .") != 0) continue;
    std::istringstream fields(line.substr(0, line.size() - 2));
    std::string word;
    uint64_t inode = 0;
    fields >> word >> inode;
    if (word == "F") {
      fields >> durable.file_bytes[inode];
    } else if (word == "M") {
      durable.directory_ids[inode] = durable.next_id++;
    } else {
      Names& names = durable.names[durable.directory_ids[inode]];
      names.clear();
      std::string type, name;
      for (uint64_t of = 0; fields >> type >> of >> name;) {
        names[name] = {of, type == "d" ? durable.directory_ids[of] : 0};
      }
    }
  }
  return durable;
}

void PowerCut::CutPower(Mode mode, std::mt19937_64* rng) {
  const Durable durable = ReadJournal();
  const std::string rebuilt = root_ + ".after";
  Rebuild(durable, 1, root_, rebuilt, mode, rng);
  fs::remove_all(root_);
  fs::rename(rebuilt, root_);
  TakeForDurable();
}

void PowerCut::Rebuild(const Durable& durable, uint64_t directory, const std::string& now,
                       const std::string& to, Mode mode, std::mt19937_64* rng) const {
  Names names;
  if (const auto it = durable.names.find(directory); it != durable.names.end()) names = it->second;
  if (mode == Mode::kMixed) {
    // Each name that changed since: as before or as now. In a directory that was removed all were.
    Names current;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(now, none)) {
      const uint64_t inode = InodeOf(entry.path().string());
      const auto id = durable.directory_ids.find(inode);
      // The process may have died between making a directory and noting it.
      const uint64_t directory_id = id == durable.directory_ids.end() ? kNotNoted : id->second;
      current[entry.path().filename().string()] = {inode, entry.is_directory() ? directory_id : 0};
    }
    Names before = names;
    before.insert(current.begin(), current.end());
    for (const auto& [name, unused] : before) {
      if ((*rng)() % 2 == 0) continue;
      names.erase(name);
      if (const auto it = current.find(name); it != current.end()) names.insert(*it);
    }
  }
  fs::create_directory(to);
  for (const auto& [name, entry] : names) {
    const std::string from = now + "/" + name, target = to + "/" + name;
    if (entry.directory != 0) {
      Rebuild(durable, entry.directory, InodeOf(from) == entry.inode ? from : "", target, mode,
              rng);
    } else {
      CopySynced(durable, entry.inode, from, target, mode, rng);
    }
  }
}

void PowerCut::CopySynced(const Durable& durable, uint64_t inode, const std::string& now,
                          const std::string& to, Mode mode, std::mt19937_64* rng) const {
  std::string data;
  const std::string kept = shadow_ + "/" + std::to_string(inode);
  const bool here = InodeOf(now) == inode;
  if (here || fs::exists(kept)) {
    std::ifstream file(here ? now : kept, std::ios::binary);
    data.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto it = durable.file_bytes.find(inode);
  uint64_t bytes = it == durable.file_bytes.end() ? 0 : it->second;
  if (mode == Mode::kMixed && data.size() > bytes) bytes += (*rng)() % (data.size() - bytes + 1);
  data.resize(bytes < data.size() ? bytes : data.size());
  std::ofstream(to, std::ios::binary) << data;
}

}  // namespace tf_hps
