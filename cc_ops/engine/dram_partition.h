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

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "absl/functional/function_ref.h"
#include "cc_ops/engine/eviction_policy.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/memory_budget.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/slab_allocator.h"

namespace tf_hps {

// Not thread-safe: the table locks it. Pointers to rows stay valid until the next Insert, Erase or
// ReleaseSlabs.
class DramPartition {
 public:
  using Position = uint32_t;
  static constexpr Position kNone = 0xffffffffu;

  // `slabs` is for rows of that layout; `budget` must outlive the partition.
  DramPartition(const RowLayout& layout, EvictionPolicy policy,
                std::shared_ptr<SlabAllocator> slabs, MemoryBudget* budget);
  ~DramPartition();
  DramPartition(const DramPartition&) = delete;
  DramPartition& operator=(const DramPartition&) = delete;

  // kNone on a miss.
  Position Find(int64_t key, uint64_t hash) const;
  // Steps towards a Find (see FindAll): the bucket is loaded into the cache, then the first `bytes`
  // of the row that it points to first.
  void PrefetchBucket(uint64_t hash) const;
  void PrefetchRowOf(uint64_t hash, int64_t bytes) const;
  void PrefetchRow(Position position) const;

  char* RowAt(Position position) {
    return slabs_[position >> slab_shift_] + (position & slab_mask_) * row_bytes_;
  }
  const char* RowAt(Position position) const {
    return const_cast<DramPartition*>(this)->RowAt(position);
  }

  // Adds one slab. False when neither the partition's limit nor the budget allows it; never false
  // with `overdraw`.
  bool Grow(bool overdraw);

  // Puts a row for `key`, which must not be present, into a free slot; there must be one. The
  // header is set up (key, the policy's initial score and the epoch, no flags but occupied), the
  // rest is the caller's. The index may grow beyond the limit here: ReleaseSlabs() makes up for it.
  Position Insert(int64_t key, uint64_t hash);
  void Erase(Position position);

  // Tells the eviction policy that a row is used.
  void NoteUse(char* row) {
    if (--uses_left_ <= 0) {
      ++epoch_;
      uses_left_ = policy_.EpochUses(size_);
    }
    RowHeader* header = HeaderOf(row);
    header->score = policy_.Used(header->score, static_cast<uint16_t>(epoch_ - header->epoch));
    header->epoch = epoch_;
  }

  // Tells it that a row, just inserted, has a past.
  void NotePast(char* row) const {
    HeaderOf(row)->score = policy_.Initial(HeaderOf(row)->frequency);
  }

  // Up to n rows to give up, unpinned ones of low ranks first; moves the clock hand.
  void PickVictims(int64_t n, std::vector<Position>* victims);

  // How many slabs to free, one at least, so that bytes() come down to the limit, or almost.
  int64_t SlabsBeyondLimit() const;
  // Frees the last `count` slabs, moving their rows into free slots elsewhere: needs `count` *
  // rows_per_slab() free slots and no row pinned. Takes a pass over all rows.
  void ReleaseSlabs(int64_t count);

  // Erases every row and frees all memory.
  void Clear();

  // Which rows are dirty is in their headers; this index of them saves looking at every row.
  void NoteDirty(Position position) { dirty_[position >> 6] |= uint64_t{1} << (position & 63); }
  // The dirty rows, in ascending order of their positions.
  void ListDirty(std::vector<Position>* positions) const;
  // All rows are clean now.
  void ForgetDirty() { std::fill(dirty_.begin(), dirty_.end(), 0); }

  void ForEach(absl::FunctionRef<void(Position position, char* row)> visit);

  // Positions stay right as long as this number stays the same.
  int64_t moves() const { return moves_; }

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

  static void PrefetchBytes(const char* data, int64_t bytes);
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
  int64_t SlabBytes() const { return allocator_->slab_bytes() + (rows_per_slab() + 7) / 8; }

  const int64_t row_bytes_;
  const int slab_shift_;
  const Position slab_mask_;
  const EvictionPolicy policy_;
  const std::shared_ptr<SlabAllocator> allocator_;
  MemoryBudget* const budget_;

  std::vector<Bucket> buckets_;
  std::vector<char*> slabs_;
  std::vector<uint64_t> dirty_;  // a bit per slot; set for some clean or free ones too
  Position free_list_ = kNone;   // linked through the keys of free slots
  Position hand_ = 0;
  int64_t size_ = 0;
  int64_t moves_ = 0;
  int64_t uses_left_ = 0;  // in this epoch
  uint16_t epoch_ = 0;
  int64_t bytes_ = 0;
  int64_t limit_ = 0;
  bool hungry_ = false;
};

// A key and where to look for it.
struct RowSearch {
  int64_t key;
  uint64_t hash;
  const DramPartition* rows;
};

// Finds the rows of the keys [begin, end), in this order: search_of(i) gives the RowSearch,
// found(i, rows, position) is told where the row is, or kNone. Memory is slow but does many things
// at once: kAhead searches wait for their bucket, and as many for the first `row_bytes` of their
// row, while another one ends.

template <typename SearchOf, typename Found>
void FindAll(int64_t begin, int64_t end, int64_t row_bytes, SearchOf search_of, Found found) {
  constexpr int64_t kAhead = 16;
  constexpr int64_t kRing = 2 * kAhead;  // a power of two
  RowSearch ring[kRing];
  // Three loops in one: i is the key whose bucket is asked for.
  for (int64_t i = begin; i < end + kRing; ++i) {
    if (const int64_t done = i - kRing; done >= begin) {
      const RowSearch& search = ring[done % kRing];
      found(done, *search.rows, search.rows->Find(search.key, search.hash));
    }
    if (i < end) {
      ring[i % kRing] = search_of(i);
      ring[i % kRing].rows->PrefetchBucket(ring[i % kRing].hash);
    }
    if (const int64_t bucket = i - kAhead; bucket >= begin && bucket < end) {
      const RowSearch& search = ring[bucket % kRing];
      search.rows->PrefetchRowOf(search.hash, row_bytes);
    }
  }
}

inline uint32_t DramPartition::MatchDigests(const Bucket& bucket, uint8_t digest) {
#ifdef __SSE2__
  // Sixteen bytes: the digests, then `overflow` and `used`, which the mask leaves out.
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket));
  const __m128i equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(static_cast<char>(digest)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & bucket.used;
#else
  uint32_t match = 0;
  for (int i = 0; i < Bucket::kSlots; ++i) match |= uint32_t{bucket.digests[i] == digest} << i;
  return match & bucket.used;
#endif
}

inline DramPartition::Position DramPartition::Find(int64_t key, uint64_t hash) const {
  if (buckets_.empty()) return kNone;
  const uint8_t digest = DigestOf(hash);
  uint32_t b = BucketOf(hash, static_cast<uint32_t>(buckets_.size()));
  for (size_t probed = 0; probed < buckets_.size(); ++probed) {
    const Bucket& bucket = buckets_[b];
    for (uint32_t match = MatchDigests(bucket, digest); match != 0; match &= match - 1) {
      const Position position = bucket.positions[__builtin_ctz(match)];
      if (HeaderOf(RowAt(position))->key == key) return position;
    }
    if (bucket.overflow == 0) return kNone;
    b = NextBucket(b);
  }
  return kNone;
}

inline void DramPartition::PrefetchBucket(uint64_t hash) const {
  if (buckets_.empty()) return;
  __builtin_prefetch(&buckets_[BucketOf(hash, static_cast<uint32_t>(buckets_.size()))]);
}

inline void DramPartition::PrefetchRowOf(uint64_t hash, int64_t bytes) const {
  if (buckets_.empty()) return;
  const Bucket& bucket = buckets_[BucketOf(hash, static_cast<uint32_t>(buckets_.size()))];
  const uint32_t match = MatchDigests(bucket, DigestOf(hash));
  if (match != 0) PrefetchBytes(RowAt(bucket.positions[__builtin_ctz(match)]), bytes);
}

inline void DramPartition::PrefetchBytes(const char* data, int64_t bytes) {
  // The hardware goes on by itself after a few lines.
  constexpr int64_t kMostBytes = 256;
  const char* const end = data + std::min(bytes, kMostBytes);
  for (const char* line = data; line < end; line += 64) __builtin_prefetch(line);
  __builtin_prefetch(end - 1);
}

inline void DramPartition::PrefetchRow(Position position) const {
  PrefetchBytes(RowAt(position), row_bytes_);
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_DRAM_PARTITION_H_
