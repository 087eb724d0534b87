#include "cc_ops/engine/table_balancer.h"

#include <algorithm>

#include "cc_ops/engine/tiered_table.h"

namespace tf_hps {
namespace {

constexpr int kPressurePerBalance = 16;

// What a table that was never refused memory may be expected to use soon.
int64_t Demand(const TieredTable& table, int64_t budget) {
  if (table.hungry()) return budget;
  return std::min(budget, table.dram_bytes() + table.dram_bytes() / 4 + budget / 256);
}

}  // namespace

void TableBalancer::Add(const std::shared_ptr<TieredTable>& table) {
  MutexLock lock(&mu_);
  for (const auto& known : tables_) {
    if (known.lock() == table) return;
  }
  tables_.push_back(table);
  Balance();
}

void TableBalancer::OnPressure() {
  MutexLock lock(&mu_);
  const bool memory_left =
      tables_.size() > 1 && budget_->used() < budget_->limit() - budget_->limit() / 8;
  if (memory_left || pressure_++ % kPressurePerBalance == 0) Balance();
}

void TableBalancer::Balance() {
  const int64_t budget = budget_->limit();
  std::vector<std::shared_ptr<TieredTable>> tables;
  for (const auto& weak : tables_) {
    if (auto table = weak.lock()) tables.push_back(std::move(table));
  }
  tables_.assign(tables.begin(), tables.end());
  // Least demand first: what a table does not need raises the share of those after it.
  std::sort(tables.begin(), tables.end(), [budget](const auto& x, const auto& y) {
    return Demand(*x, budget) < Demand(*y, budget);
  });
  int64_t left = budget;
  for (size_t i = 0; i < tables.size(); ++i) {
    const int64_t share = left / static_cast<int64_t>(tables.size() - i);
    const int64_t quota = std::min(share, Demand(*tables[i], budget));
    tables[i]->SetQuota(quota);
    left -= quota;
  }
  // What nobody asked for yet goes to all alike.
  for (const auto& table : tables) {
    table->SetQuota(table->quota() + left / static_cast<int64_t>(tables.size()));
  }
  for (const auto& table : tables) {
    if (table->dram_bytes() > table->quota()) table->TrimIfIdle();
  }
}

}  // namespace tf_hps
