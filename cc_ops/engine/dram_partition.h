// One partition of a table's dram tier: an index and the slabs that hold its rows.
//
//   index: buckets of one cache line, open addressing      slabs: 2^k rows each, contiguous
//   +---------------------------------------------+       +--------+--------+--------+--
//   | 12 digests | overflow | 12 row positions    |  ---> | row    | row    | free   | ...
//   +---------------------------------------------+       +--------+--------+--------+--
//
// A probe compares twelve 8-bit digests at once and looks at a row only when its digest matches.
// `overflow` counts the rows whose probe went on past a full bucket, so that a search ends at the
// first bucket with none and erasing leaves no tombstones. It saturates.

#ifndef TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_
#define TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cc_ops/engine/eviction_policy.h"
#include "cc_ops/engine/memory_budget.h"
#include "cc_ops/engine/row.h"

namespace tf_hps {

// Not thread-safe: the table locks it. Pointers to rows stay valid until the next Insert, Erase or
// ReleaseSlab.
class DramPartition {
 public:
  using Position = uint32_t;
  static constexpr Position kNone = 0xffffffffu;

  // `budget` must outlive the partition. A slab holds the largest power of two of rows that fits
  // slab_bytes, at least one.
  DramPartition(const RowLayout& layout, EvictionPolicy policy, int64_t slab_bytes,
                MemoryBudget* budget);
  ~DramPartition();
  DramPartition(const DramPartition&) = delete;
  DramPartition& operator=(const DramPartition&) = delete;

  // kNone on a miss.
  Position Find(int64_t key, uint64_t hash) const;
  void PrefetchBucket(uint64_t hash) const;

  char* RowAt(Position position) {
    return slabs_[position >> slab_shift_].get() + (position & slab_mask_) * row_bytes_;
  }
  const char* RowAt(Position position) const {
    return const_cast<DramPartition*>(this)->RowAt(position);
  }

  // Adds one slab. False when neither the partition's limit nor the budget allows it; never false
  // with `overdraw`.
  bool Grow(bool overdraw);

  // Puts a row for `key`, which must not be present, into a free slot; there must be one. The
  // header is set up (key, the policy's initial score, no flags but occupied), the rest is the
  // caller's. The index may grow beyond the limit here: ReleaseSlab() makes up for it.
  Position Insert(int64_t key, uint64_t hash);
  void Erase(Position position);

  void Touch(char* row) const {
    RowHeader* header = HeaderOf(row);
    header->score = policy_.Touched(header->score);
  }

  // Up to n rows to give up, unpinned ones with low scores first; moves the clock hand and ages
  // what it passes.
  void PickVictims(int64_t n, std::vector<Position>* victims);

  // Frees the last slab, moving its rows into free slots elsewhere. Needs free_slots() >=
  // rows_per_slab() and no row pinned.
  void ReleaseSlab();

  // Erases every row and frees all memory.
  void Clear();

  // Which rows are dirty is in their headers; this index of them saves looking at every row.
  void NoteDirty(Position position) { dirty_[position >> 6] |= uint64_t{1} << (position & 63); }
  // The dirty rows, in ascending order of their positions.
  void ListDirty(std::vector<Position>* positions) const;
  // All rows are clean now.
  void ForgetDirty() { std::fill(dirty_.begin(), dirty_.end(), 0); }

  void ForEach(absl::FunctionRef<void(Position position, char* row)> visit);

  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t limit() const { return limit_; }
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return size_; }
  int64_t rows_per_slab() const { return int64_t{1} << slab_shift_; }
  int64_t capacity() const { return static_cast<int64_t>(slabs_.size()) << slab_shift_; }
  int64_t free_slots() const { return capacity() - size_; }
  // Whether the limit refused to let the partition grow since the last call.
  bool TakeHungry() { return std::exchange(hungry_, false); }

  // What the index takes for each row: the most, just after it has grown.
  static constexpr double IndexBytesPerRow() {
    return kIndexGrowth * sizeof(Bucket) / (kMaxLoad * Bucket::kSlots);
  }

 private:
  struct alignas(64) Bucket {
    static constexpr int kSlots = 12;
    uint8_t digests[kSlots];
    uint16_t overflow;
    uint16_t used;  // bit i: slot i holds a row
    Position positions[kSlots];
  };
  static_assert(sizeof(Bucket) == 64, "a bucket is one cache line");

  static constexpr double kMaxLoad = 0.88;
  static constexpr double kIndexGrowth = 1.25;

  static uint32_t MatchDigests(const Bucket& bucket, uint8_t digest);
  uint32_t NextBucket(uint32_t bucket) const {
    return bucket + 1 == buckets_.size() ? 0 : bucket + 1;
  }
  void Index(Position position, uint64_t hash);
  void Unindex(Position position, uint64_t hash);
  void Repoint(Position from, Position to, uint64_t hash);
  void GrowIndex();
  // When it is far larger than the rows that there is room for need.
  void ShrinkIndex();
  void RebuildIndex(uint32_t buckets);
  void FreeSlot(Position position);
  Position TakeFreeSlot();
  void RebuildFreeList();
  void Account(int64_t bytes);
  int64_t SlabBytes() const { return (row_bytes_ << slab_shift_) + (rows_per_slab() + 7) / 8; }

  const int64_t row_bytes_;
  const int slab_shift_;
  const Position slab_mask_;
  const EvictionPolicy policy_;
  MemoryBudget* const budget_;

  std::vector<Bucket> buckets_;
  std::vector<std::unique_ptr<char[]>> slabs_;
  std::vector<uint64_t> dirty_;  // a bit per slot; set for some clean or free ones too
  Position free_list_ = kNone;   // linked through the keys of free slots
  Position hand_ = 0;
  int64_t size_ = 0;
  int64_t bytes_ = 0;
  int64_t limit_ = 0;
  bool hungry_ = false;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_
