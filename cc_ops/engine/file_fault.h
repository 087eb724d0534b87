// A place for tests to make file operations fail.
//
// Every file operation of the engine, those that LevelDB does through SsdEnv included, asks
// InjectedFault() first. Without a hook that is one relaxed load.

#ifndef TF_HPS_CC_OPS_ENGINE_FILE_FAULT_H_
#define TF_HPS_CC_OPS_ENGINE_FILE_FAULT_H_

#include <atomic>
#include <string>

namespace tf_hps {

enum class FileOp {
  kOpen,
  kRead,
  kCreate,
  kWrite,
  kSync,
  kRename,
  kLink,
  kRemove,
  kList,
  kStat,
  kMakeDirectory,
  kLock,
};
inline constexpr int kFileOps = 12;

// Returns the errno to fail with, or 0. Called from any thread.
using FileFaultHook = int (*)(FileOp op, const std::string& path);

inline std::atomic<FileFaultHook> file_fault_hook{nullptr};

inline int InjectedFault(FileOp op, const std::string& path) {
  const FileFaultHook hook = file_fault_hook.load(std::memory_order_relaxed);
  return hook == nullptr ? 0 : hook(op, path);
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_FILE_FAULT_H_
