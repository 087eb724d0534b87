#include "cc_ops/engine/dram_partition.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "cc_ops/engine/key_hash.h"

namespace tf_hps {
namespace {

// A bucket whose overflow count got here keeps it until the index is rebuilt: its true count is no
// longer known.
constexpr uint16_t kManyOverflowed = 0xffff;

}  // namespace

DramPartition::DramPartition(const RowLayout& layout, EvictionPolicy policy,
                             std::shared_ptr<SlabAllocator> slabs, MemoryBudget* budget)
    : row_bytes_(layout.row_bytes()),
      slab_shift_(slabs->rows_log2()),
      slab_mask_((Position{1} << slab_shift_) - 1),
      policy_(policy),
      allocator_(std::move(slabs)),
      budget_(budget) {}

DramPartition::~DramPartition() { Clear(); }

void DramPartition::Account(int64_t bytes) {
  bytes_ += bytes;
  if (bytes > 0) {
    budget_->Overdraw(bytes);
  } else {
    budget_->Release(-bytes);
  }
}

bool DramPartition::Grow(bool overdraw) {
  const int64_t slab_bytes = SlabBytes();
  if (overdraw) {
    budget_->Overdraw(slab_bytes);
  } else if (bytes_ + slab_bytes > limit_ || !budget_->TryReserve(slab_bytes)) {
    hungry_ = true;
    return false;
  }
  bytes_ += slab_bytes;
  const Position first = static_cast<Position>(capacity());
  slabs_.push_back(allocator_->Allocate());
  dirty_.resize((capacity() + 63) / 64);
  for (Position i = static_cast<Position>(rows_per_slab()); i-- > 0;) {
    HeaderOf(RowAt(first + i))->flags = 0;
    FreeSlot(first + i);
  }
  return true;
}

void DramPartition::FreeSlot(Position position) {
  RowHeader* header = HeaderOf(RowAt(position));
  header->flags = 0;
  header->key = free_list_;
  free_list_ = position;
}

DramPartition::Position DramPartition::TakeFreeSlot() {
  assert(free_list_ != kNone);
  const Position position = free_list_;
  free_list_ = static_cast<Position>(HeaderOf(RowAt(position))->key);
  return position;
}

void DramPartition::RebuildFreeList() {
  free_list_ = kNone;
  for (Position p = static_cast<Position>(capacity()); p-- > 0;) {
    if (HeaderOf(RowAt(p))->flags == 0) FreeSlot(p);
  }
}

DramPartition::Position DramPartition::Insert(int64_t key, uint64_t hash) {
  if (size_ + 1 > kMaxLoad * Bucket::kSlots * static_cast<double>(buckets_.size())) GrowIndex();
  const Position position = TakeFreeSlot();
  *HeaderOf(RowAt(position)) = {key, 0, 0, 0, policy_.Initial(0), kRowOccupied, epoch_};
  Index(position, hash);
  ++size_;
  return position;
}

void DramPartition::Erase(Position position) {
  ++moves_;
  Unindex(position, HashKey(HeaderOf(RowAt(position))->key));
  FreeSlot(position);
  --size_;
}

void DramPartition::Index(Position position, uint64_t hash) {
  uint32_t b = BucketOf(hash, static_cast<uint32_t>(buckets_.size()));
  constexpr uint16_t kFull = (1 << Bucket::kSlots) - 1;
  while (buckets_[b].used == kFull) {
    if (buckets_[b].overflow < kManyOverflowed) ++buckets_[b].overflow;
    b = NextBucket(b);
  }
  Bucket& bucket = buckets_[b];
  const int slot = __builtin_ctz(~static_cast<uint32_t>(bucket.used));
  bucket.used |= 1 << slot;
  bucket.digests[slot] = DigestOf(hash);
  bucket.positions[slot] = position;
}

void DramPartition::Unindex(Position position, uint64_t hash) {
  uint32_t b = BucketOf(hash, static_cast<uint32_t>(buckets_.size()));
  for (;;) {
    Bucket& bucket = buckets_[b];
    for (uint32_t match = MatchDigests(bucket, DigestOf(hash)); match != 0; match &= match - 1) {
      const int slot = __builtin_ctz(match);
      if (bucket.positions[slot] != position) continue;
      bucket.used &= ~(1 << slot);
      return;
    }
    if (bucket.overflow < kManyOverflowed) --bucket.overflow;
    b = NextBucket(b);
  }
}

void DramPartition::Repoint(Position from, Position to, uint64_t hash) {
  uint32_t b = BucketOf(hash, static_cast<uint32_t>(buckets_.size()));
  for (;; b = NextBucket(b)) {
    Bucket& bucket = buckets_[b];
    for (uint32_t match = MatchDigests(bucket, DigestOf(hash)); match != 0; match &= match - 1) {
      Position& position = bucket.positions[__builtin_ctz(match)];
      if (position != from) continue;
      position = to;
      return;
    }
  }
}

void DramPartition::GrowIndex() {
  const double needed = static_cast<double>(size_ + 1) / (kMaxLoad * Bucket::kSlots);
  const double grown = static_cast<double>(buckets_.size()) * kIndexGrowth;
  RebuildIndex(static_cast<uint32_t>(std::max(needed, grown)) + 1);
}

void DramPartition::ShrinkIndex() {
  const double needed = static_cast<double>(capacity()) / (kMaxLoad * Bucket::kSlots);
  const uint32_t enough = slabs_.empty() ? 0 : static_cast<uint32_t>(needed * kIndexGrowth) + 1;
  if (buckets_.size() > 2 * enough) RebuildIndex(enough);
}

void DramPartition::RebuildIndex(uint32_t buckets) {
  Account((static_cast<int64_t>(buckets) - static_cast<int64_t>(buckets_.size())) *
          static_cast<int64_t>(sizeof(Bucket)));
  std::vector<Bucket>().swap(buckets_);  // first free, then allocate
  buckets_.resize(buckets);
  ForEach([this](Position position, char* row) { Index(position, HashKey(HeaderOf(row)->key)); });
}

void DramPartition::PickVictims(int64_t n, std::vector<Position>* victims) {
  // A window of the slots under the hand, eight times as many as wanted: good enough to tell hot
  // from cold. Of Zipf(1.05) keys, with a tenth of 20 million rows in the tier, the misses are
  // then 1.1 times those of the hottest rows; with four times as many 1.18, with two 1.3.
  const int64_t window = std::min(capacity(), std::max<int64_t>(8 * n, 32));
  const int64_t limit = capacity();
  std::vector<std::pair<uint32_t, Position>> candidates;
  candidates.reserve(static_cast<size_t>(window));
  for (int64_t looked = 0, seen = 0; looked < limit && seen < window; ++looked) {
    if (hand_ >= limit) hand_ = 0;
    RowHeader* header = HeaderOf(RowAt(hand_));
    if ((header->flags & kRowOccupied) && !(header->flags & kRowPinned)) {
      uint32_t rank = policy_.Rank(header->score, static_cast<uint16_t>(epoch_ - header->epoch),
                                   header->frequency);
      if (header->flags & kRowAwaited) {
        rank += EvictionPolicy::kRanks;
        header->flags -= kRowAwaitedOnce;
      }
      candidates.emplace_back(rank, hand_);
      ++seen;
    }
    ++hand_;
  }
  const size_t wanted = std::min(candidates.size(), static_cast<size_t>(n));
  std::nth_element(candidates.begin(), candidates.begin() + wanted, candidates.end());
  for (size_t i = 0; i < wanted; ++i) victims->push_back(candidates[i].second);
}

int64_t DramPartition::SlabsBeyondLimit() const {
  const int64_t slabs = static_cast<int64_t>(slabs_.size());
  const int64_t slab_bytes = bytes_ / std::max<int64_t>(slabs, 1);  // with its part of the index
  const int64_t beyond = bytes_ - limit_;
  return std::clamp<int64_t>((beyond + slab_bytes - 1) / std::max<int64_t>(slab_bytes, 1), 1,
                             std::max<int64_t>(slabs, 1));
}

void DramPartition::ReleaseSlabs(int64_t count) {
  assert(free_slots() >= count * rows_per_slab());
  ++moves_;
  const Position first = static_cast<Position>(capacity() - count * rows_per_slab());
  Position target = 0;
  for (Position p = first; p < capacity(); ++p) {
    if (!(HeaderOf(RowAt(p))->flags & kRowOccupied)) continue;
    while (HeaderOf(RowAt(target))->flags & kRowOccupied) ++target;
    std::memcpy(RowAt(target), RowAt(p), static_cast<size_t>(row_bytes_));
    Repoint(p, target, HashKey(HeaderOf(RowAt(p))->key));
    if (HeaderOf(RowAt(p))->flags & kRowDirty) NoteDirty(target);
  }
  for (int64_t i = 0; i < count; ++i) {
    allocator_->Free(slabs_.back());
    slabs_.pop_back();
  }
  dirty_.resize((capacity() + 63) / 64);
  Account(-count * SlabBytes());
  RebuildFreeList();
  ShrinkIndex();
}

void DramPartition::Clear() {
  ++moves_;
  Account(-bytes_);
  std::vector<Bucket>().swap(buckets_);
  for (char* slab : slabs_) allocator_->Free(slab);
  slabs_.clear();
  slabs_.shrink_to_fit();
  std::vector<uint64_t>().swap(dirty_);
  free_list_ = kNone;
  hand_ = 0;
  size_ = 0;
}

void DramPartition::ListDirty(std::vector<Position>* positions) const {
  // First all that may be dirty, so that the rows can be fetched ahead.
  const size_t begin = positions->size();
  for (size_t word = 0; word < dirty_.size(); ++word) {
    for (uint64_t bits = dirty_[word]; bits != 0; bits &= bits - 1) {
      const Position position = static_cast<Position>(word * 64 + __builtin_ctzll(bits));
      if (position < capacity()) positions->push_back(position);
    }
  }
  constexpr size_t kAhead = 16;
  constexpr uint8_t kDirty = kRowOccupied | kRowDirty;
  size_t end = begin;
  for (size_t i = begin; i < positions->size(); ++i) {
    if (i + kAhead < positions->size()) PrefetchRow((*positions)[i + kAhead]);
    const Position position = (*positions)[i];
    if ((HeaderOf(RowAt(position))->flags & kDirty) == kDirty) (*positions)[end++] = position;
  }
  positions->resize(end);
}

void DramPartition::ForEach(absl::FunctionRef<void(Position position, char* row)> visit) {
  for (Position p = 0; p < capacity(); ++p) {
    char* row = RowAt(p);
    if (HeaderOf(row)->flags & kRowOccupied) visit(p, row);
  }
}

}  // namespace tf_hps
