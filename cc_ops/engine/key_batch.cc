#include "cc_ops/engine/key_batch.h"

#include "cc_ops/engine/key_hash.h"

namespace tf_hps {
namespace {

// A power of two that leaves an open-addressing table of `keys` entries at most half full.
size_t TableSize(size_t keys) {
  size_t size = 16;
  while (size < 2 * keys) size *= 2;
  return size;
}

}  // namespace

KeyBatch::KeyBatch(absl::Span<const int64_t> keys, uint32_t partitions, ParallelFor parallel_for)
    : begins_(partitions + 1),
      unique_counts_(partitions),
      members_(keys.size()),
      uniques_(keys.size()) {
  GroupByPartition(keys);
  parallel_for(partitions, [&](int64_t partition) { Deduplicate(keys, partition); });
}

void KeyBatch::GroupByPartition(absl::Span<const int64_t> keys) {
  const uint32_t partitions = this->partitions();
  std::vector<uint16_t> partition_of(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    partition_of[i] = static_cast<uint16_t>(PartitionOf(HashKey(keys[i]), partitions));
    ++begins_[partition_of[i] + 1];
  }
  for (uint32_t p = 0; p < partitions; ++p) begins_[p + 1] += begins_[p];
  std::vector<int64_t> next(begins_.begin(), begins_.end() - 1);
  for (size_t i = 0; i < keys.size(); ++i) {
    members_[next[partition_of[i]]++].index = static_cast<int32_t>(i);
  }
}

void KeyBatch::Deduplicate(absl::Span<const int64_t> keys, int64_t partition) {
  const int64_t begin = begins_[partition];
  const int64_t end = begins_[partition + 1];
  if (begin == end) return;
  Unique* uniques = &uniques_[begin];
  int32_t count = 0;
  static thread_local std::vector<int32_t> slots;  // index into uniques, or -1
  slots.assign(TableSize(static_cast<size_t>(end - begin)), -1);
  const size_t mask = slots.size() - 1;
  for (int64_t m = begin; m < end; ++m) {
    const int64_t key = keys[members_[m].index];
    const uint64_t hash = HashKey(key);
    size_t slot = hash & mask;
    while (slots[slot] >= 0 && uniques[slots[slot]].key != key) slot = (slot + 1) & mask;
    if (slots[slot] < 0) {
      slots[slot] = count;
      uniques[count++] = {key, hash};
    }
    members_[m].unique = slots[slot];
  }
  unique_counts_[partition] = count;
}

}  // namespace tf_hps
