#include "cc_ops/engine/dram_partition.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/prefetch.h"

namespace tf_hps {

DramPartition::DramPartition(const RowLayout& layout, EvictionPolicy policy,
                             std::shared_ptr<SlabAllocator> slabs,
                             std::shared_ptr<SlabAllocator> segments, MemoryBudget* budget)
    : float_bytes_(4ll * layout.floats()),
      slab_shift_(slabs->rows_log2()),
      slab_mask_((Position{1} << slab_shift_) - 1),
      header_begin_(float_bytes_ << slab_shift_),
      policy_(policy),
      allocator_(std::move(slabs)),
      budget_(budget),
      index_(std::move(segments)) {}

DramPartition::~DramPartition() { Clear(); }

void DramPartition::Account(int64_t bytes) {
  bytes_ += bytes;
  if (bytes > 0) {
    budget_->Overdraw(bytes);
  } else {
    budget_->Release(-bytes);
  }
}

void DramPartition::AccountIndex(int64_t former_bytes) {
  if (index_.bytes() != former_bytes) Account(index_.bytes() - former_bytes);
}

bool DramPartition::Grow(bool overdraw) {
  const int64_t slab_bytes = allocator_->slab_bytes();
  if (overdraw) {
    budget_->Overdraw(slab_bytes);
  } else if (bytes_ + slab_bytes > limit_ || !budget_->TryReserve(slab_bytes)) {
    hungry_ = true;
    return false;
  }
  bytes_ += slab_bytes;
  const Position first = static_cast<Position>(capacity());
  slabs_.push_back(allocator_->Allocate());
  if (!in_chunks_ && allocator_->in_chunks()) {
    for (char*& slab : slabs_) slab = allocator_->MoveToChunk(slab);
    in_chunks_ = true;
  }
  for (Position i = static_cast<Position>(rows_per_slab()); i-- > 0;) FreeSlot(first + i);
  return true;
}

void DramPartition::FreeSlot(Position position) {
  RowHeader* const header = RowAt(position).header;
  header->flags = 0;
  header->version = free_list_;
  free_list_ = position;
}

DramPartition::Position DramPartition::TakeFreeSlot() {
  assert(free_list_ != kNone);
  const Position position = free_list_;
  free_list_ = RowAt(position).header->version;
  return position;
}

void DramPartition::RebuildFreeList() {
  free_list_ = kNone;
  for (Position p = static_cast<Position>(capacity()); p-- > 0;) {
    if (RowAt(p).header->flags == 0) FreeSlot(p);
  }
}

DramPartition::Position DramPartition::Insert(int64_t key, uint64_t hash) {
  const Position position = TakeFreeSlot();
  *RowAt(position).header = {0, 0, 0, policy_.Initial(0), kRowOccupied, epoch_};
  const int64_t former_bytes = index_.bytes();
  index_.Insert(key, hash, position);
  AccountIndex(former_bytes);
  return position;
}

void DramPartition::Erase(int64_t key, uint64_t hash) {
  ++moves_;
  FreeSlot(index_.Erase(key, hash));
}

void DramPartition::PickVictims(int64_t n, std::vector<Entry>* victims) {
  // A window of the rows under the hand, eight times as many as wanted: good enough to tell hot
  // from cold. Of Zipf(1.05) keys, with a tenth of 20 million rows in the tier, the misses are
  // then 1.1 times those of the hottest rows; with four times as many 1.18, with two 1.3.
  const size_t window = static_cast<size_t>(std::max<int64_t>(8 * n, 32));
  constexpr int64_t kBucketsAtATime = 8;  // their headers are loaded together
  std::vector<std::pair<uint32_t, Entry>> candidates;
  candidates.reserve(std::min(window, static_cast<size_t>(size())));
  std::vector<Entry> entries;
  for (int64_t left = index_.bucket_count(); left > 0 && candidates.size() < window;) {
    entries.clear();
    const int64_t buckets = std::min(kBucketsAtATime, left);
    index_.Sweep(buckets, &hand_, [&](int64_t key, Position position) {
      PrefetchLine(RowAt(position).header);
      entries.push_back({key, position});
    });
    left -= buckets;
    for (const Entry& entry : entries) {
      RowHeader* const header = RowAt(entry.position).header;
      if (header->flags & kRowPinned) continue;
      uint32_t rank = policy_.Rank(header->score, static_cast<uint16_t>(epoch_ - header->epoch),
                                   header->frequency);
      if (header->flags & kRowAwaited) {
        rank += EvictionPolicy::kRanks;
        header->flags -= kRowAwaitedOnce;
      }
      candidates.emplace_back(rank, entry);
    }
  }
  const size_t wanted = std::min(candidates.size(), static_cast<size_t>(n));
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(wanted),
                   candidates.end(), [](const auto& x, const auto& y) {
                     return std::make_pair(x.first, x.second.position) <
                            std::make_pair(y.first, y.second.position);
                   });
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
  index_.ForEach([&](int64_t, Position* position) {
    if (*position < first) return;
    while (RowAt(target).header->flags & kRowOccupied) ++target;
    const Row from = RowAt(*position), to = RowAt(target);
    *to.header = *from.header;
    std::memcpy(to.weights, from.weights, static_cast<size_t>(float_bytes_));
    *position = target;
  });
  for (int64_t i = 0; i < count; ++i) {
    allocator_->Free(slabs_.back());
    slabs_.pop_back();
  }
  Account(-count * allocator_->slab_bytes());
  RebuildFreeList();
  const int64_t former_bytes = index_.bytes();
  index_.ShrinkFor(capacity());
  AccountIndex(former_bytes);
}

void DramPartition::Clear() {
  ++moves_;
  Account(-bytes_);
  index_.Clear();
  for (char* slab : slabs_) allocator_->Free(slab);
  slabs_.clear();
  slabs_.shrink_to_fit();
  free_list_ = kNone;
  hand_ = 0;
}

void DramPartition::ListDirty(std::vector<Entry>* entries) const {
  // First all that may be dirty, so that their headers can be loaded ahead.
  const size_t begin = entries->size();
  index_.ForEachMarked([&](int64_t key, Position position) {
    entries->push_back({key, position});
  });
  Entry* const candidates = entries->data() + begin;
  size_t dirty = 0;
  VisitPrefetched(
      static_cast<int64_t>(entries->size() - begin),
      [&](int64_t i) { PrefetchLine(RowAt(candidates[i].position).header); },
      [&](int64_t i) {
        const Entry entry = candidates[i];
        if (RowAt(entry.position).header->flags & kRowDirty) candidates[dirty++] = entry;
      });
  entries->resize(begin + dirty);
}

void DramPartition::ForEach(absl::FunctionRef<void(int64_t key, Position position)> visit) const {
  uint32_t begin = 0;
  index_.Sweep(index_.bucket_count(), &begin, visit);
}

}  // namespace tf_hps
