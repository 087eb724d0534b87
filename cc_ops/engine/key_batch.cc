#include "cc_ops/engine/key_batch.h"

#include <algorithm>
#include <cstring>

#include "cc_ops/engine/key_hash.h"

namespace tf_hps {
namespace {

// Keys that one task groups at a time.
constexpr int64_t kShardKeys = 8192;

// A power of two that leaves an open-addressing table of `keys` entries at most half full.
size_t TableSize(size_t keys) {
  size_t size = 16;
  while (size < 2 * keys) size *= 2;
  return size;
}

}  // namespace

KeyBatch::KeyBatch(absl::Span<const int64_t> keys, uint32_t partitions, ParallelFor parallel_for)
    : keys_(keys.size()),
      begins_(partitions + 1),
      unique_counts_(partitions),
      grouped_keys_(keys.size()),
      members_(keys.size()),
      uniques_(keys.size()),
      numbers_(keys.size()) {
  if (keys.empty()) return;
  GroupByPartition(keys, parallel_for);
  parallel_for(partitions, [&](int64_t partition) {
    // The smaller its scratch, the nearer it is to the core.
    if (members(partition).size() < UINT16_MAX) {
      Deduplicate<uint16_t>(partition);
    } else {
      Deduplicate<uint32_t>(partition);
    }
  });
  grouped_keys_ = {};
}

bool KeyBatch::IsOf(absl::Span<const int64_t> keys) const {
  return keys.size() == keys_.size() &&
         std::memcmp(keys.data(), keys_.data(), keys.size() * sizeof(int64_t)) == 0;
}

void KeyBatch::GroupByPartition(absl::Span<const int64_t> keys, ParallelFor parallel_for) {
  // A counting sort of shards of the batch, each into its own places.
  const int64_t n = static_cast<int64_t>(keys.size());
  const int64_t partitions = this->partitions();
  const int64_t shards = (n + kShardKeys - 1) / kShardKeys;
  // First counts, then where the next key goes. Those of two shards never share a cache line.
  constexpr int64_t kIntsPerLine = 16;
  const int64_t stride = (partitions / kIntsPerLine + 2) * kIntsPerLine;
  std::vector<int32_t> places(static_cast<size_t>(shards * stride));
  UninitializedVector<uint16_t> partition_of(keys.size());
  parallel_for(shards, [&](int64_t shard) {
    int32_t* counts = &places[static_cast<size_t>(shard * stride)];
    const int64_t end = std::min(n, (shard + 1) * kShardKeys);
    for (int64_t i = shard * kShardKeys; i < end; ++i) {
      keys_[i] = keys[i];
      partition_of[i] = static_cast<uint16_t>(PartitionOf(HashKey(keys[i]), this->partitions()));
      ++counts[partition_of[i]];
    }
  });
  int32_t begin = 0;
  for (int64_t p = 0; p < partitions; ++p) {
    begins_[p] = begin;
    for (int64_t shard = 0; shard < shards; ++shard) {
      int32_t& place = places[static_cast<size_t>(shard * stride + p)];
      begin += place;
      place = begin - place;
    }
  }
  begins_[partitions] = begin;
  parallel_for(shards, [&](int64_t shard) {
    int32_t* next = &places[static_cast<size_t>(shard * stride)];
    const int64_t end = std::min(n, (shard + 1) * kShardKeys);
    for (int64_t i = shard * kShardKeys; i < end; ++i) {
      const int32_t place = next[partition_of[i]]++;
      members_[place].index = static_cast<int32_t>(i);
      grouped_keys_[place] = keys[i];
    }
  });
}

template <typename Slot>
void KeyBatch::Deduplicate(int64_t partition) {
  constexpr Slot kEmpty = static_cast<Slot>(-1);
  const int64_t begin = begins_[partition];
  const int64_t end = begins_[partition + 1];
  if (begin == end) return;
  Unique* const uniques = &uniques_[begin];
  int32_t count = 0;
  static thread_local std::vector<Slot> slots;  // indices into uniques
  const size_t size = TableSize(static_cast<size_t>(end - begin));
  slots.assign(size, kEmpty);
  const size_t mask = size - 1;
  for (int64_t m = begin; m < end; ++m) {
    const int64_t key = grouped_keys_[m];
    const int32_t index = members_[m].index;
    const uint64_t hash = HashKey(key);
    size_t slot = hash & mask;
    while (slots[slot] != kEmpty && uniques[slots[slot]].key != key) slot = (slot + 1) & mask;
    if (slots[slot] == kEmpty) {
      slots[slot] = static_cast<Slot>(count);
      uniques[count++] = {key, hash, index, 0};
    }
    const auto unique = static_cast<int32_t>(slots[slot]);
    members_[m].unique = unique;
    numbers_[index] = static_cast<int32_t>(begin) + unique;
    ++uniques[unique].count;
  }
  unique_counts_[partition] = count;
}

}  // namespace tf_hps
