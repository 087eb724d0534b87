#include "cc_ops/engine/slab_allocator.h"

#include <sys/mman.h>

#include <cassert>
#include <new>

namespace tf_hps {
namespace {

constexpr std::align_val_t kAlignment{64};

// Under AddressSanitizer every slab is an allocation of its own, whose bounds are checked.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kChunks = false;
#elif defined(__has_feature)
constexpr bool kChunks = !__has_feature(address_sanitizer);
#else
constexpr bool kChunks = true;
#endif

int RowsLog2(int64_t row_bytes, int64_t slab_bytes) {
  int log2 = 0;
  while (log2 < 20 && (row_bytes << (log2 + 1)) <= slab_bytes) ++log2;
  return log2;
}

// Maps a chunk at a multiple of its size, or returns null.
char* MapChunk() {
  constexpr int64_t kBytes = SlabAllocator::kChunkBytes;
  void* const mapped =
      ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  const int64_t before = -reinterpret_cast<intptr_t>(begin) & (kBytes - 1);
  if (before > 0) ::munmap(begin, static_cast<size_t>(before));
  ::munmap(begin + before + kBytes, static_cast<size_t>(kBytes - before));
  // Only a wish: without huge pages everything works.
  (void)::madvise(begin + before, kBytes, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

SlabAllocator::SlabAllocator(int64_t row_bytes, int64_t slab_bytes)
    : rows_log2_(RowsLog2(row_bytes, slab_bytes)), slab_bytes_(row_bytes << rows_log2_) {}

SlabAllocator::~SlabAllocator() { assert(chunks_.empty()); }

char* SlabAllocator::Allocate() {
  MutexLock lock(&mu_);
  const bool small = allocated_bytes_ < kPlainBytes || 8 * slab_bytes_ > kChunkBytes;
  allocated_bytes_ += slab_bytes_;
  if (not_full_.empty() && (small || !kChunks || !AddChunk())) {
    return static_cast<char*>(::operator new(static_cast<size_t>(slab_bytes_), kAlignment));
  }
  Chunk& free_slabs = chunks_.find(*not_full_.begin())->second;
  char* const slab = free_slabs.back();
  free_slabs.pop_back();
  if (free_slabs.empty()) not_full_.erase(not_full_.begin());
  return slab;
}

bool SlabAllocator::AddChunk() {
  char* const begin = MapChunk();
  if (begin == nullptr) return false;
  Chunk& free_slabs = chunks_[begin];
  for (int64_t i = SlabsPerChunk(); i-- > 0;) free_slabs.push_back(begin + i * slab_bytes_);
  not_full_.insert(begin);
  return true;
}

void SlabAllocator::Free(char* slab) {
  MutexLock lock(&mu_);
  allocated_bytes_ -= slab_bytes_;
  const auto chunk = chunks_.find(slab - (reinterpret_cast<intptr_t>(slab) & (kChunkBytes - 1)));
  if (chunk == chunks_.end()) {
    ::operator delete(slab, kAlignment);
    return;
  }
  chunk->second.push_back(slab);
  not_full_.insert(chunk->first);
  if (static_cast<int64_t>(chunk->second.size()) < SlabsPerChunk()) return;
  ::munmap(chunk->first, static_cast<size_t>(kChunkBytes));
  not_full_.erase(chunk->first);
  chunks_.erase(chunk);
}

int64_t SlabAllocator::chunk_bytes() {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(chunks_.size()) * kChunkBytes;
}

}  // namespace tf_hps
