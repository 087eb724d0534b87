// A batch of keys, grouped by partition and deduplicated: what every table operation starts from.

#ifndef TF_HPS_CC_OPS_ENGINE_KEY_BATCH_H_
#define TF_HPS_CC_OPS_ENGINE_KEY_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cc_ops/engine/parallel.h"
#include "cc_ops/engine/uninitialized_vector.h"

namespace tf_hps {

// Immutable once built. Order: within a partition, unique keys stand in the order of their first
// occurrence in the batch and members in the order of the batch, whatever the number of threads.
class KeyBatch {
 public:
  struct Unique {
    int64_t key;
    uint64_t hash;
    int32_t first;  // index in the batch of the first occurrence
    int32_t count;  // occurrences
  };
  // One occurrence of a key.
  struct Member {
    int32_t index;   // in the batch
    int32_t unique;  // in uniques(partition)
  };

  // At most 2^31 - 1 keys.
  KeyBatch(absl::Span<const int64_t> keys, uint32_t partitions, ParallelFor parallel_for);

  uint32_t partitions() const { return static_cast<uint32_t>(unique_counts_.size()); }
  absl::Span<const Unique> uniques(int64_t partition) const {
    return absl::MakeConstSpan(uniques_).subspan(begins_[partition], unique_counts_[partition]);
  }
  absl::Span<const Member> members(int64_t partition) const {
    return absl::MakeConstSpan(members_).subspan(begins_[partition],
                                                 begins_[partition + 1] - begins_[partition]);
  }
  int64_t size() const { return static_cast<int64_t>(members_.size()); }

  // The unique keys of all partitions are numbered, with gaps, below size(): those of a partition
  // from begin(partition) on. numbers()[i] is that of the batch's i-th key.
  int64_t begin(int64_t partition) const { return begins_[partition]; }
  absl::Span<const int32_t> numbers() const { return numbers_; }

  // Whether it was made of these keys, in this order.
  bool IsOf(absl::Span<const int64_t> keys) const;

 private:
  void GroupByPartition(absl::Span<const int64_t> keys, ParallelFor parallel_for);
  template <typename Slot>
  void Deduplicate(int64_t partition);

  UninitializedVector<int64_t> keys_;          // as given
  std::vector<int64_t> begins_;                // [partitions + 1]
  std::vector<int32_t> unique_counts_;         // [partitions]
  UninitializedVector<int64_t> grouped_keys_;  // [keys], grouped by partition; while it is made
  UninitializedVector<Member> members_;        // [keys], grouped by partition
  UninitializedVector<Unique> uniques_;        // [keys], those of a partition from its begin on
  UninitializedVector<int32_t> numbers_;       // [keys], as given
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_KEY_BATCH_H_
