// From keys to the positions of rows: the index of one partition of a table's dram tier.
//
//   segments: 2^k buckets each         a bucket, one cache line, open addressing
//   +--------+--------+--------+       +---------------------------------------------+
//   | bucket | bucket | ...    |  -->  | 5 keys | 5 positions | overflow | used, free |
//   +--------+--------+--------+       +---------------------------------------------+
//
// The whole key is here, so that a search that misses, or that only wants to know, touches no row.
// `overflow` counts the keys whose search goes on past a full bucket: a search ends at the first
// bucket with none, and erasing leaves no tombstones. It saturates.

#ifndef TF_HPS_CC_OPS_ENGINE_ROW_INDEX_H_
#define TF_HPS_CC_OPS_ENGINE_ROW_INDEX_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/slab_allocator.h"

namespace tf_hps {

// Not thread-safe.
class RowIndex {
 public:
  using Position = uint32_t;
  static constexpr Position kNone = 0xffffffffu;

  struct Entry {
    int64_t key;
    Position position;
  };

  struct alignas(64) Bucket {
    static constexpr int kSlots = 5;
    static constexpr uint32_t kFull = (1 << kSlots) - 1;
    int64_t keys[kSlots];
    Position positions[kSlots];
    uint16_t overflow;
    uint16_t used;  // bit i: slot i holds a key

    // Bit i: slot i holds `key`.
    uint32_t Match(int64_t key) const {
      uint32_t match = 0;
      for (int i = 0; i < kSlots; ++i) match |= uint32_t{keys[i] == key} << i;
      return match & used;
    }
    Position Find(int64_t key) const {
      const uint32_t match = Match(key);
      return match == 0 ? kNone : positions[__builtin_ctz(match)];
    }
  };
  static_assert(sizeof(Bucket) == 64, "a bucket is one cache line");

  // Memory for the buckets of several indexes, in segments of about that many bytes.
  static std::shared_ptr<SlabAllocator> NewSegments(int64_t segment_bytes);

  explicit RowIndex(std::shared_ptr<SlabAllocator> segments);
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  // kNone on a miss.
  Position Find(int64_t key, uint64_t hash) const {
    const Bucket* const home = HomeBucket(hash);
    const Position position = home->Find(key);
    return position != kNone || home->overflow == 0 ? position : FindBeyondHome(key, hash);
  }
  // Its steps, for many searches at once (see FindAll): where a search begins, and for a key that
  // is not there, while that bucket has an overflow, the rest.
  const Bucket* HomeBucket(uint64_t hash) const {
    return buckets_ == 0 ? &kNoKeys : &At(HomeOf(hash));
  }
  void PrefetchBeyondHome(uint64_t hash) const { PrefetchLine(&At(Next(HomeOf(hash)))); }
  Position FindBeyondHome(int64_t key, uint64_t hash) const;

  // `key` must not be present. Grows when it is full, by a pass over all of it.
  void Insert(int64_t key, uint64_t hash, Position position);
  // `key` must be present. Returns where its row was.
  Position Erase(int64_t key, uint64_t hash);
  // Makes it smaller if it is far larger than `keys` keys need.
  void ShrinkFor(int64_t keys);
  void Clear();

  // Visits all entries; visit may change positions.
  void ForEach(absl::FunctionRef<void(int64_t key, Position* position)> visit);
  // Visits those of up to `buckets` buckets from *hand on, and moves it behind them, round and
  // round. Between growths every entry has its turn once in bucket_count() buckets.
  void Sweep(int64_t buckets, uint32_t* hand,
             absl::FunctionRef<void(int64_t key, Position position)> visit) const;

  // A set of keys to be looked at again, kept by their home buckets: some that were not added may
  // come along, those that were are there until ForgetMarks.
  void Mark(uint64_t hash) {
    const uint32_t home = HomeOf(hash);
    marks_[home >> 6] |= uint64_t{1} << (home & 63);
  }
  void ForEachMarked(absl::FunctionRef<void(int64_t key, Position position)> visit) const;
  void ForgetMarks();

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  int64_t bucket_count() const { return buckets_; }
  int64_t bytes() const {
    return static_cast<int64_t>(segments_.size()) * allocator_->slab_bytes() +
           static_cast<int64_t>(marks_.size() * sizeof(uint64_t));
  }

  // Bytes for each key: the most, just after it has grown.
  static constexpr double BytesPerKey() {
    return kGrowth * sizeof(Bucket) / (kMaxLoad * Bucket::kSlots);
  }

 private:
  static const Bucket kNoKeys;
  static constexpr double kMaxLoad = 0.88;
  static constexpr double kGrowth = 1.09;

  uint32_t HomeOf(uint64_t hash) const { return BucketOf(hash, buckets_); }
  const Bucket& At(uint32_t bucket) const { return segments_[bucket >> shift_][bucket & mask_]; }
  Bucket& At(uint32_t bucket) { return segments_[bucket >> shift_][bucket & mask_]; }
  uint32_t Next(uint32_t bucket) const { return bucket + 1 == buckets_ ? 0 : bucket + 1; }
  void Place(int64_t key, uint64_t hash, Position position);
  void Resize(uint32_t buckets);
  // Visits the keys of one home bucket, wherever they ended up.
  void VisitHome(uint32_t home,
                 absl::FunctionRef<void(int64_t key, Position position)> visit) const;

  const std::shared_ptr<SlabAllocator> allocator_;
  const int shift_;
  const uint32_t mask_;
  std::vector<Bucket*> segments_;
  std::vector<uint64_t> marks_;  // a bit for each bucket
  uint32_t buckets_ = 0;
  int64_t size_ = 0;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_ROW_INDEX_H_
