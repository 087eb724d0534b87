// Bytes of DRAM that a store may hold, shared by all of its tables.

#ifndef TF_HPS_CC_OPS_ENGINE_MEMORY_BUDGET_H_
#define TF_HPS_CC_OPS_ENGINE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace tf_hps {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}

  // Takes `bytes` if they fit.
  bool TryReserve(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (used + bytes > limit_) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  // Takes `bytes` even beyond the limit: the rows of one batch must be somewhere while it is
  // applied. The caller gives them back before its operation ends.
  void Overdraw(int64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }

  void Release(int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_MEMORY_BUDGET_H_
