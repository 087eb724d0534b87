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
      members_(keys.size()),
      uniques_(keys.size()) {
  if (keys.empty()) return;
  GroupByPartition(keys, parallel_for);
  parallel_for(partitions, [&](int64_t partition) { Deduplicate(partition); });
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
  std::vector<int32_t> places(static_cast<size_t>(shards * partitions));  // first counts, then next
  UninitializedVector<uint16_t> partition_of(keys.size());
  parallel_for(shards, [&](int64_t shard) {
    int32_t* counts = &places[static_cast<size_t>(shard * partitions)];
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
      int32_t& place = places[static_cast<size_t>(shard * partitions + p)];
      begin += place;
      place = begin - place;
    }
  }
  begins_[partitions] = begin;
  parallel_for(shards, [&](int64_t shard) {
    int32_t* next = &places[static_cast<size_t>(shard * partitions)];
    const int64_t end = std::min(n, (shard + 1) * kShardKeys);
    for (int64_t i = shard * kShardKeys; i < end; ++i) {
      members_[next[partition_of[i]]++].index = static_cast<int32_t>(i);
    }
  });
}

void KeyBatch::Deduplicate(int64_t partition) {
  const int64_t begin = begins_[partition];
  const int64_t end = begins_[partition + 1];
  if (begin == end) return;
  Unique* const uniques = &uniques_[begin];
  int32_t count = 0;
  static thread_local std::vector<int32_t> slots;  // index into uniques, or -1
  const size_t size = TableSize(static_cast<size_t>(end - begin));
  slots.assign(size, -1);
  const size_t mask = size - 1;
  for (int64_t m = begin; m < end; ++m) {
    Member& member = members_[m];
    const int64_t key = keys_[member.index];
    const uint64_t hash = HashKey(key);
    size_t slot = hash & mask;
    while (slots[slot] >= 0 && uniques[slots[slot]].key != key) slot = (slot + 1) & mask;
    if (slots[slot] < 0) {
      slots[slot] = count;
      uniques[count++] = {key, hash, member.index, 0};
    }
    member.unique = slots[slot];
    ++uniques[slots[slot]].count;
  }
  unique_counts_[partition] = count;
}

}  // namespace tf_hps
