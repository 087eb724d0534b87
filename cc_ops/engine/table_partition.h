// What a TieredTable keeps per partition. Only its own sources include this.

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_

#include <atomic>
#include <memory>
#include <vector>

#include "cc_ops/engine/tiered_table.h"

namespace tf_hps {

struct TieredTable::Counters {
  std::atomic<int64_t> dram_hits{0};
  std::atomic<int64_t> dram_misses{0};
  std::atomic<int64_t> dram_inserts{0};
  std::atomic<int64_t> dram_evictions{0};
  std::atomic<int64_t> ssd_hits{0};
  std::atomic<int64_t> ssd_misses{0};
  std::atomic<int64_t> ssd_inserts{0};
  std::atomic<int64_t> ssd_writes{0};

  static void Add(std::atomic<int64_t>* counter, int64_t n) {
    counter->fetch_add(n, std::memory_order_relaxed);
  }
};

struct TieredTable::Partition {
  // Guards `rows` between lookups, which read, and the holder of the table's training lock, the
  // only one to change them. That one reads without it.
  Mutex mu;
  std::unique_ptr<DramPartition> rows;
  int64_t accounted_bytes = 0;
  Counters counters;
};

// What a training operation has ready for a partition before it changes anything.
struct TieredTable::Prepared {
  std::vector<DramPartition::Position> positions;  // [uniques]; kNone: among the misses
  std::vector<int32_t> misses;                     // unique keys to fetch, ascending keys
  std::vector<char> fetched;                       // [misses, row_bytes]
  bool pinned = false;                             // the rows at `positions` are
  std::vector<float> sums;                         // [uniques, dim]: summed gradients
  std::vector<bool> skip;                          // [uniques] or empty: no update
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_
