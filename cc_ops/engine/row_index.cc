#include "cc_ops/engine/row_index.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace tf_hps {
namespace {

// A bucket whose overflow count got here keeps it until the index is rebuilt: its true count is no
// longer known.
constexpr uint16_t kManyOverflowed = 0xffff;

}  // namespace

const RowIndex::Bucket RowIndex::kNoKeys = {};

std::shared_ptr<SlabAllocator> RowIndex::NewSegments(int64_t segment_bytes) {
  constexpr int64_t kPlainBytes = int64_t{4} << 20;
  return std::make_shared<SlabAllocator>(static_cast<int64_t>(sizeof(Bucket)), segment_bytes,
                                         kPlainBytes);
}

RowIndex::RowIndex(std::shared_ptr<SlabAllocator> segments)
    : allocator_(std::move(segments)),
      shift_(allocator_->rows_log2()),
      mask_((uint32_t{1} << shift_) - 1) {}

RowIndex::~RowIndex() { Clear(); }

void RowIndex::Clear() {
  for (Bucket* segment : segments_) allocator_->Free(reinterpret_cast<char*>(segment));
  std::vector<Bucket*>().swap(segments_);
  std::vector<uint64_t>().swap(marks_);
  buckets_ = 0;
  size_ = 0;
}

RowIndex::Position RowIndex::FindBeyondHome(int64_t key, uint64_t hash) const {
  const uint32_t home = HomeOf(hash);
  for (uint32_t b = Next(home); b != home; b = Next(b)) {
    const Position position = At(b).Find(key);
    if (position != kNone || At(b).overflow == 0) return position;
  }
  return kNone;
}

void RowIndex::Insert(int64_t key, uint64_t hash, Position position) {
  const double needed = static_cast<double>(size_ + 1) / (kMaxLoad * Bucket::kSlots);
  if (needed > buckets_) {
    Resize(static_cast<uint32_t>(std::max(needed, static_cast<double>(buckets_) * kGrowth)) + 1);
  }
  Place(key, hash, position);
  ++size_;
}

void RowIndex::Place(int64_t key, uint64_t hash, Position position) {
  uint32_t b = HomeOf(hash);
  while (At(b).used == Bucket::kFull) {
    if (At(b).overflow < kManyOverflowed) ++At(b).overflow;
    b = Next(b);
  }
  Bucket& bucket = At(b);
  const int slot = __builtin_ctz(~static_cast<uint32_t>(bucket.used));
  bucket.used |= 1 << slot;
  bucket.keys[slot] = key;
  bucket.positions[slot] = position;
}

RowIndex::Position RowIndex::Erase(int64_t key, uint64_t hash) {
  for (uint32_t b = HomeOf(hash);; b = Next(b)) {
    Bucket& bucket = At(b);
    const uint32_t match = bucket.Match(key);
    if (match != 0) {
      bucket.used &= ~match;
      --size_;
      return bucket.positions[__builtin_ctz(match)];
    }
    assert(bucket.overflow > 0);
    if (bucket.overflow < kManyOverflowed) --bucket.overflow;
  }
}

void RowIndex::ShrinkFor(int64_t keys) {
  const double needed = static_cast<double>(keys) / (kMaxLoad * Bucket::kSlots);
  const uint32_t enough = keys == 0 ? 0 : static_cast<uint32_t>(needed * kGrowth) + 1;
  if (buckets_ > 2 * enough) Resize(enough);
}

void RowIndex::Resize(uint32_t buckets) {
  const std::vector<Bucket*> former = std::exchange(segments_, {});
  const std::vector<uint64_t> former_marks = std::exchange(marks_, {});
  const uint32_t former_buckets = std::exchange(buckets_, buckets);
  const size_t segments = (size_t{buckets} + mask_) >> shift_;
  segments_.reserve(segments);
  for (size_t i = 0; i < segments; ++i) {
    char* const segment = allocator_->Allocate();
    std::memset(segment, 0, static_cast<size_t>(allocator_->slab_bytes()));
    segments_.push_back(reinterpret_cast<Bucket*>(segment));
  }
  marks_.resize((size_t{buckets} + 63) / 64);
  // In the order of buckets, which is that of homes: neighbors stay neighbors.
  for (uint32_t b = 0; b < former_buckets; ++b) {
    Bucket* const segment = former[b >> shift_];
    const Bucket& bucket = segment[b & mask_];
    for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
      const int slot = __builtin_ctz(used);
      const uint64_t hash = HashKey(bucket.keys[slot]);
      Place(bucket.keys[slot], hash, bucket.positions[slot]);
      const uint32_t home = BucketOf(hash, former_buckets);
      if (former_marks[home >> 6] >> (home & 63) & 1) Mark(hash);
    }
    if ((b & mask_) == mask_ || b + 1 == former_buckets) {
      allocator_->Free(reinterpret_cast<char*>(segment));
    }
  }
}

void RowIndex::ForEach(absl::FunctionRef<void(int64_t key, Position* position)> visit) {
  for (uint32_t b = 0; b < buckets_; ++b) {
    Bucket& bucket = At(b);
    for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
      const int slot = __builtin_ctz(used);
      visit(bucket.keys[slot], &bucket.positions[slot]);
    }
  }
}

void RowIndex::Sweep(int64_t buckets, uint32_t* hand,
                     absl::FunctionRef<void(int64_t key, Position position)> visit) const {
  for (int64_t i = std::min<int64_t>(buckets, buckets_); i > 0; --i) {
    if (*hand >= buckets_) *hand = 0;
    const Bucket& bucket = At((*hand)++);
    for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
      const int slot = __builtin_ctz(used);
      visit(bucket.keys[slot], bucket.positions[slot]);
    }
  }
}

void RowIndex::ForEachMarked(absl::FunctionRef<void(int64_t key, Position position)> visit) const {
  for (size_t word = 0; word < marks_.size(); ++word) {
    for (uint64_t bits = marks_[word]; bits != 0; bits &= bits - 1) {
      const uint32_t home = static_cast<uint32_t>(word * 64) + __builtin_ctzll(bits);
      VisitHome(home, visit);
    }
  }
}

void RowIndex::VisitHome(uint32_t home,
                         absl::FunctionRef<void(int64_t key, Position position)> visit) const {
  uint32_t b = home;
  do {
    const Bucket& bucket = At(b);
    for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
      const int slot = __builtin_ctz(used);
      // The others came here from another home.
      if (HomeOf(HashKey(bucket.keys[slot])) == home) {
        visit(bucket.keys[slot], bucket.positions[slot]);
      }
    }
    if (bucket.overflow == 0) return;
    b = Next(b);
  } while (b != home);
}

void RowIndex::ForgetMarks() { std::fill(marks_.begin(), marks_.end(), 0); }

}  // namespace tf_hps
