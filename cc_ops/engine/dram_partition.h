// One partition of a table's dram tier: an index, and the slabs that hold its rows.
//
//   index                slabs: 2^k rows each
//   +----------------+   +---------------------------------+---------------------+
//   | key, position  |-->| weights and state of row 0, 1.. | header of row 0, 1..|
//   +----------------+   +---------------------------------+---------------------+
//
// A slab begins on a cache line, so the weights of every row do where their size allows it. A read
// touches the lines of its weights and one of the index.

#ifndef TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_
#define TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cc_ops/engine/eviction_policy.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/memory_budget.h"
#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/row_index.h"
#include "cc_ops/engine/slab_allocator.h"

namespace tf_hps {

// Not thread-safe: the table locks it. Positions stay right until the next Erase or ReleaseSlabs,
// and rows lie where they are until the next Grow.
class DramPartition {
 public:
  using Position = RowIndex::Position;
  using Entry = RowIndex::Entry;
  static constexpr Position kNone = RowIndex::kNone;

  // `slabs` is for rows of that layout, `segments` for the index; `budget` must outlive the
  // partition.
  DramPartition(const RowLayout& layout, EvictionPolicy policy,
                std::shared_ptr<SlabAllocator> slabs, std::shared_ptr<SlabAllocator> segments,
                MemoryBudget* budget);
  ~DramPartition();
  DramPartition(const DramPartition&) = delete;
  DramPartition& operator=(const DramPartition&) = delete;

  // kNone on a miss.
  Position Find(int64_t key, uint64_t hash) const { return index_.Find(key, hash); }
  const RowIndex& index() const { return index_; }

  Row RowAt(Position position) const {
    char* const slab = slabs_[position >> slab_shift_];
    const Position i = position & slab_mask_;
    return {reinterpret_cast<RowHeader*>(slab + header_begin_) + i,
            reinterpret_cast<float*>(slab + i * float_bytes_)};
  }
  // Loads a row into the cache, of its floats the first `bytes`, if any.
  void PrefetchRow(Position position, int64_t bytes) const {
    const Row row = RowAt(position);
    PrefetchLine(row.header);
    if (bytes > 0) PrefetchFloats(row.weights, bytes);
  }

  // Adds one slab. False when neither the partition's limit nor the budget allows it; never false
  // with `overdraw`.
  bool Grow(bool overdraw);

  // Puts a row for `key`, which must not be present, into a free slot; there must be one. The
  // header is set up (the policy's initial score and the epoch, no flags but occupied), the rest is
  // the caller's. The index may grow beyond the limit here: ReleaseSlabs() makes up for it.
  Position Insert(int64_t key, uint64_t hash);
  // `key` must be present.
  void Erase(int64_t key, uint64_t hash);

  // Tells the eviction policy that a row is used.
  void NoteUse(RowHeader* header) {
    if (--uses_left_ <= 0) {
      ++epoch_;
      uses_left_ = policy_.EpochUses(size());
    }
    header->score = policy_.Used(header->score, static_cast<uint16_t>(epoch_ - header->epoch));
    header->epoch = epoch_;
  }

  // Tells it that a row, just inserted, has a past.
  void NotePast(RowHeader* header) const { header->score = policy_.Initial(header->frequency); }

  // Up to n rows to give up, unpinned ones of low ranks first; moves the clock hand.
  void PickVictims(int64_t n, std::vector<Entry>* victims);

  // How many slabs to free, one at least, so that bytes() come down to the limit, or almost.
  int64_t SlabsBeyondLimit() const;
  // Frees the last `count` slabs, moving their rows into free slots elsewhere: needs `count` *
  // rows_per_slab() free slots and no row pinned. Takes a pass over all rows.
  void ReleaseSlabs(int64_t count);

  // Erases every row and frees all memory.
  void Clear();

  // Which rows are dirty is in their headers; the index has marks that save looking at every row.
  void NoteDirty(uint64_t hash) { index_.Mark(hash); }
  // The dirty rows, each once.
  void ListDirty(std::vector<Entry>* entries) const;
  // All rows are clean now.
  void ForgetDirty() { index_.ForgetMarks(); }

  void ForEach(absl::FunctionRef<void(int64_t key, Position position)> visit) const;

  // Positions stay right as long as this number stays the same.
  int64_t moves() const { return moves_; }

  void set_limit(int64_t bytes) { limit_ = bytes; }
  int64_t limit() const { return limit_; }
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return index_.size(); }
  int64_t rows_per_slab() const { return int64_t{1} << slab_shift_; }
  int64_t capacity() const { return static_cast<int64_t>(slabs_.size()) << slab_shift_; }
  int64_t free_slots() const { return capacity() - size(); }
  // Whether the limit refused to let the partition grow since the last call.
  bool TakeHungry() { return std::exchange(hungry_, false); }

 private:
  void FreeSlot(Position position);
  Position TakeFreeSlot();
  void RebuildFreeList();
  // Tells the budget of a change of the index's size.
  void AccountIndex(int64_t former_bytes);
  void Account(int64_t bytes);

  const int64_t float_bytes_;  // of a row
  const int slab_shift_;
  const Position slab_mask_;
  const int64_t header_begin_;  // in a slab
  const EvictionPolicy policy_;
  const std::shared_ptr<SlabAllocator> allocator_;
  MemoryBudget* const budget_;

  RowIndex index_;
  std::vector<char*> slabs_;
  Position free_list_ = kNone;  // linked through the versions of free slots
  uint32_t hand_ = 0;           // a bucket of the index
  int64_t moves_ = 0;
  int64_t uses_left_ = 0;  // in this epoch
  uint16_t epoch_ = 0;
  int64_t bytes_ = 0;
  int64_t limit_ = 0;
  bool hungry_ = false;
  bool in_chunks_ = false;  // all slabs are
};

// A key and where to look for it.
struct RowSearch {
  int64_t key;
  uint64_t hash;
  const DramPartition* rows;
};

// Finds the rows of the keys [begin, end), in this order: search_of(i) gives the RowSearch,
// locate(rows, position) is told where the row is, or kNone, and asks for what it needs of the row;
// found(i, located) gets what that returned.
//
// Memory is slow but does many things at once. Blocks of searches are therefore at four stages at a
// time: one asks for its home buckets, the one before looks there, the one before that looks on for
// the keys that were not in a home bucket, and one is found.
template <typename SearchOf, typename Locate, typename Found>
void FindAll(int64_t begin, int64_t end, SearchOf search_of, Locate locate, Found found) {
  using Located = decltype(locate(*static_cast<DramPartition*>(nullptr), DramPartition::kNone));
  constexpr int64_t kBlock = 16;
  struct Block {
    RowSearch searches[kBlock];
    const RowIndex::Bucket* homes[kBlock];
    Located located[kBlock];
    uint32_t displaced;  // bit i: the i-th is to be looked for beyond its home bucket
  };
  constexpr int64_t kStages = 4;
  Block ring[kStages];
  const int64_t blocks = (end - begin + kBlock - 1) / kBlock;
  const auto size_of = [&](int64_t b) { return std::min(kBlock, end - begin - b * kBlock); };
  for (int64_t b = 0; b < blocks + kStages - 1; ++b) {
    if (const int64_t last = b - 3; last >= 0) {
      const Block& block = ring[last % kStages];
      for (int64_t i = 0, n = size_of(last); i < n; ++i) {
        found(begin + last * kBlock + i, block.located[i]);
      }
    }
    if (const int64_t third = b - 2; third >= 0 && third < blocks) {
      Block& block = ring[third % kStages];
      for (uint32_t left = block.displaced; left != 0; left &= left - 1) {
        const int i = __builtin_ctz(left);
        const RowSearch& search = block.searches[i];
        block.located[i] =
            locate(*search.rows, search.rows->index().FindBeyondHome(search.key, search.hash));
      }
    }
    if (const int64_t second = b - 1; second >= 0 && second < blocks) {
      Block& block = ring[second % kStages];
      uint32_t displaced = 0;
      for (int64_t i = 0, n = size_of(second); i < n; ++i) {
        const RowSearch& search = block.searches[i];
        const RowIndex::Bucket* const home = block.homes[i];
        const RowIndex::Position position = home->Find(search.key);
        if (position == RowIndex::kNone && home->overflow > 0) {
          search.rows->index().PrefetchBeyondHome(search.hash);
          displaced |= uint32_t{1} << i;
        } else {
          block.located[i] = locate(*search.rows, position);
        }
      }
      block.displaced = displaced;
    }
    if (b < blocks) {
      Block& block = ring[b % kStages];
      for (int64_t i = 0, n = size_of(b); i < n; ++i) {
        block.searches[i] = search_of(begin + b * kBlock + i);
        block.homes[i] = block.searches[i].rows->index().HomeBucket(block.searches[i].hash);
        PrefetchLine(block.homes[i]);
      }
    }
  }
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_
