// How the engine borrows its caller's threads: it has no pool of its own for work that a caller
// waits for.

#ifndef TF_HPS_CC_OPS_ENGINE_PARALLEL_H_
#define TF_HPS_CC_OPS_ENGINE_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cc_ops/engine/mutex.h"

namespace tf_hps {

// Runs task(i) once for each i in [0, n), in any order and on any threads, and returns when all
// have ended.
using ParallelFor = absl::FunctionRef<void(int64_t n, absl::FunctionRef<void(int64_t i)> task)>;

inline void SerialFor(int64_t n, absl::FunctionRef<void(int64_t i)> task) {
  for (int64_t i = 0; i < n; ++i) task(i);
}

// Keeps one of the errors that parallel tasks report. Thread-safe.
class FirstError {
 public:
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = status;
  }
  absl::Status status() {
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// Runs the tasks and returns one of their errors, if any failed.
inline absl::Status ParallelForStatus(ParallelFor parallel_for, int64_t n,
                                      absl::FunctionRef<absl::Status(int64_t i)> task) {
  FirstError error;
  parallel_for(n, [&](int64_t i) { error.Update(task(i)); });
  return error.status();
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_PARALLEL_H_
