#include "cc_ops/kernels/op_parallel_for.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace tf_hps {
namespace {

// Shared with closures that may start after everything is done: these find no task left and do not
// touch `task_`.
class Work {
 public:
  Work(int64_t n, absl::FunctionRef<void(int64_t i)> task) : n_(n), task_(task) {}

  // Runs tasks until none is left to begin.
  void Run() {
    int64_t finished = 0;
    for (int64_t i = Claim(); i < n_; i = Claim()) {
      task_(i);
      ++finished;
    }
    if (finished == 0) return;
    std::lock_guard<std::mutex> lock(mu_);
    finished_ += finished;
    if (finished_ == n_) all_finished_.notify_all();
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    all_finished_.wait(lock, [this] { return finished_ == n_; });
  }

 private:
  int64_t Claim() { return next_.fetch_add(1, std::memory_order_relaxed); }

  const int64_t n_;
  const absl::FunctionRef<void(int64_t i)> task_;
  std::atomic<int64_t> next_{0};
  std::mutex mu_;
  std::condition_variable all_finished_;
  int64_t finished_ = 0;
};

}  // namespace

OpParallelFor::OpParallelFor(tensorflow::OpKernelContext* ctx)
    : pool_(ctx->device()->tensorflow_cpu_worker_threads()->workers) {}

void OpParallelFor::operator()(int64_t n, absl::FunctionRef<void(int64_t i)> task) const {
  // The caller makes up the number of threads that the user allowed.
  const int64_t helpers = std::min<int64_t>(n, pool_->NumThreads()) - 1;
  if (helpers < 1) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  const auto work = std::make_shared<Work>(n, task);
  for (int64_t i = 0; i < helpers; ++i) {
    pool_->Schedule([work] {
      const tensorflow::port::ScopedFlushDenormal flush_denormal;
      work->Run();
    });
  }
  work->Run();
  work->Wait();
}

}  // namespace tf_hps
