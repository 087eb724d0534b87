// Divides a store's DRAM among its tables.

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_BALANCER_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_BALANCER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc_ops/engine/memory_budget.h"
#include "cc_ops/engine/mutex.h"

namespace tf_hps {

class TieredTable;

// Gives each table a quota: a table that uses less than an equal share keeps what it needs and a
// little more, the others divide the rest equally. The sum of quotas never exceeds the budget.
// Thread-safe; the caller holds no lock of a table.
class TableBalancer {
 public:
  // `budget` must outlive the balancer.
  explicit TableBalancer(const MemoryBudget* budget) : budget_(budget) {}

  void Add(const std::shared_ptr<TieredTable>& table);

  // Called after an operation in which a quota was too small; acts when there is
  // memory to give, and else on every 16th such call.
  void OnPressure();

 private:
  void Balance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MemoryBudget* const budget_;
  Mutex mu_;
  std::vector<std::weak_ptr<TieredTable>> tables_ ABSL_GUARDED_BY(mu_);
  int64_t pressure_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_BALANCER_H_
