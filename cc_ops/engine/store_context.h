// What the tables of one store share.

#ifndef TF_HPS_CC_OPS_ENGINE_STORE_CONTEXT_H_
#define TF_HPS_CC_OPS_ENGINE_STORE_CONTEXT_H_

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/eviction_policy.h"
#include "cc_ops/engine/memory_budget.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/ssd_tier.h"
#include "cc_ops/engine/table_balancer.h"

namespace tf_hps {

// Seconds that a store spent in each stage, summed over threads.
enum class Stage { kRead, kFetch, kUpdate, kEvict, kCommit, kPrefetch };
inline constexpr const char* kStageNames[] = {"read",  "fetch",  "update",
                                              "evict", "commit", "prefetch"};
inline constexpr int kStages = 6;

struct StoreContext {
  StoreContext(std::string path, int64_t dram_bytes, EvictionPolicy eviction, bool cache_reads)
      : path(std::move(path)),
        budget(dram_bytes),
        eviction(eviction),
        cache_reads(cache_reads),
        balancer(&budget) {}

  const std::string path;
  // A fork has the store's memory, but neither its threads nor a right to its files.
  const pid_t process = ::getpid();
  bool forked() const { return ::getpid() != process; }
  absl::Status CheckProcess() const {
    if (!forked()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("store ", path, " was opened by process ",
                                                      process, ", of which this one, ", ::getpid(),
                                                      ", is a fork. Use it in that process only"));
  }

  MemoryBudget budget;
  const EvictionPolicy eviction;
  // Whether lookups outside training keep in DRAM what they read from SSD. For serving: nothing
  // else fills the tier there.
  const bool cache_reads;

  TableBalancer balancer;

  // Shared: one operation on rows. Exclusive: an operation that needs all rows to stand still.
  // Always the first lock taken.
  Gate gate;

  // Null once the store is closed. Exports hold it beyond that only until they are cancelled.
  std::shared_ptr<SsdTier> ssd ABSL_GUARDED_BY(gate);

  // Steps of the optimizer that trains the dense weights beside the tables, as of the last update.
  std::atomic<int64_t> dense_step{0};

  // Whether anything that a commit holds has changed since the last one. Set within the gate,
  // shared or exclusive; a commit clears it, exclusive.
  std::atomic<bool> changed{false};
  void NoteChange() { changed.store(true, std::memory_order_relaxed); }

  // Of ssd tiers that a restore replaced.
  std::atomic<int64_t> former_bytes_read{0};
  std::atomic<int64_t> former_bytes_written{0};

  std::atomic<int64_t> stage_nanoseconds[kStages] = {};

  // Partitions of each table: a power of two, at least as many as LevelDB instances (see
  // PartitionOf).
  uint32_t partitions = 1;
  int64_t slab_bytes = 4096;

  void ChoosePartitions(int ssd_instances) {
    partitions = static_cast<uint32_t>(ssd_instances);
    while (partitions < 32 && budget.limit() / partitions > (512 << 10)) partitions *= 2;
    slab_bytes = std::clamp<int64_t>(budget.limit() / (partitions * 256), 1, 64 << 10);
  }
};

// Adds the time until it goes out of scope to a stage.
class StageTimer {
 public:
  StageTimer(StoreContext* context, Stage stage)
      : nanoseconds_(&context->stage_nanoseconds[static_cast<int>(stage)]),
        start_(std::chrono::steady_clock::now()) {}
  ~StageTimer() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    nanoseconds_->fetch_add(std::chrono::nanoseconds(spent).count(), std::memory_order_relaxed);
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  std::atomic<int64_t>* const nanoseconds_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_STORE_CONTEXT_H_
