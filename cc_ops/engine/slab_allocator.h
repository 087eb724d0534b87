// Memory for the rows of one table, in slabs of equal size.
//
// Rows are read in no order, so nearly every read of a large table would miss the processor's
// address translation for pages of 4 KiB. Once a table is large, its slabs therefore lie in chunks
// that the kernel may back by huge pages (Linux's transparent ones, where they are not switched
// off).

#ifndef TF_HPS_CC_OPS_ENGINE_SLAB_ALLOCATOR_H_
#define TF_HPS_CC_OPS_ENGINE_SLAB_ALLOCATOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "cc_ops/engine/mutex.h"

namespace tf_hps {

// Thread-safe. A table's partitions share one, so that all of them fill the same chunks.
class SlabAllocator {
 public:
  // What a table may hold before its slabs come in chunks, which it may leave partly empty.
  static constexpr int64_t kPlainBytes = int64_t{32} << 20;
  static constexpr int64_t kChunkBytes = int64_t{2} << 20;  // a huge page

  // A slab holds the largest power of two of rows that fits slab_bytes, at least one. Chunks come
  // once `plain_bytes` are allocated.
  SlabAllocator(int64_t row_bytes, int64_t slab_bytes, int64_t plain_bytes = kPlainBytes);
  ~SlabAllocator();  // all slabs have been freed
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  int rows_log2() const { return rows_log2_; }
  int64_t slab_bytes() const { return slab_bytes_; }

  // 64-byte aligned, not initialized.
  char* Allocate();
  void Free(char* slab);

  // Whether slabs come in chunks now. Those from before may then move there: MoveToChunk copies one
  // that is not in a chunk and returns where it is now. The first rows are the hottest ones,
  // mostly.
  bool in_chunks() const { return in_chunks_.load(std::memory_order_relaxed); }
  char* MoveToChunk(char* slab);

  // Of chunks: what is mapped, slabs or not.
  int64_t chunk_bytes();

 private:
  using Chunk = std::vector<char*>;  // its free slabs

  int64_t SlabsPerChunk() const { return kChunkBytes / slab_bytes_; }
  bool AddChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null if there is no chunk with room and none can be had.
  char* TakeFromChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsInChunk(char* slab) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int rows_log2_;
  const int64_t slab_bytes_;
  const int64_t plain_bytes_;

  std::atomic<bool> in_chunks_{false};
  Mutex mu_;
  int64_t allocated_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<char*, Chunk> chunks_ ABSL_GUARDED_BY(mu_);  // by their beginning
  std::set<char*> not_full_ ABSL_GUARDED_BY(mu_);       // the low ones first: high ones get empty
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_SLAB_ALLOCATOR_H_
