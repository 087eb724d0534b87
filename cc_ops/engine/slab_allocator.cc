#include "cc_ops/engine/slab_allocator.h"

#include <sys/mman.h>

#include <cassert>
#include <cstring>
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

// Slabs in chunks are to begin on cache lines; small ones are allocations of their own, which do.
int64_t SlabBytes(int64_t rows_bytes) {
  return rows_bytes < 4096 ? rows_bytes : (rows_bytes + 63) & ~63ll;
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

SlabAllocator::SlabAllocator(int64_t row_bytes, int64_t slab_bytes, int64_t plain_bytes)
    : rows_log2_(RowsLog2(row_bytes, slab_bytes)),
      slab_bytes_(SlabBytes(row_bytes << rows_log2_)),
      plain_bytes_(plain_bytes) {}

SlabAllocator::~SlabAllocator() { assert(chunks_.empty()); }

char* SlabAllocator::Allocate() {
  MutexLock lock(&mu_);
  allocated_bytes_ += slab_bytes_;
  if (kChunks && allocated_bytes_ > plain_bytes_ && 8 * slab_bytes_ <= kChunkBytes) {
    in_chunks_.store(true, std::memory_order_relaxed);
  }
  char* const slab = in_chunks() || !not_full_.empty() ? TakeFromChunk() : nullptr;
  if (slab != nullptr) return slab;
  return static_cast<char*>(::operator new(static_cast<size_t>(slab_bytes_), kAlignment));
}

char* SlabAllocator::TakeFromChunk() {
  if (not_full_.empty() && !AddChunk()) return nullptr;
  Chunk& free_slabs = chunks_.find(*not_full_.begin())->second;
  char* const slab = free_slabs.back();
  free_slabs.pop_back();
  if (free_slabs.empty()) not_full_.erase(not_full_.begin());
  return slab;
}

bool SlabAllocator::IsInChunk(char* slab) const {
  return chunks_.count(slab - (reinterpret_cast<intptr_t>(slab) & (kChunkBytes - 1))) > 0;
}

char* SlabAllocator::MoveToChunk(char* slab) {
  MutexLock lock(&mu_);
  char* const moved = IsInChunk(slab) ? nullptr : TakeFromChunk();
  if (moved == nullptr) return slab;
  std::memcpy(moved, slab, static_cast<size_t>(slab_bytes_));
  ::operator delete(slab, kAlignment);
  return moved;
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
