#include "cc_ops/engine/slab_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "tests/engine/test_util.h"

namespace tf_hps {
namespace {

constexpr int64_t kRowBytes = 152;
constexpr int64_t kSlabBytes = 64 << 10;
// So many that the last ones come in chunks.
constexpr int64_t kSlabs = 2 * SlabAllocator::kPlainBytes / (kSlabBytes / 2);

// AddressSanitizer's builds have no chunks.
bool HasChunks(SlabAllocator* allocator) { return allocator->chunk_bytes() > 0; }

TEST(SlabAllocatorTest, ASlabHoldsAPowerOfTwoOfRows) {
  const SlabAllocator allocator(kRowBytes, kSlabBytes);
  EXPECT_EQ(allocator.rows_log2(), 8);
  EXPECT_EQ(allocator.slab_bytes(), 256 * kRowBytes);
  EXPECT_EQ(SlabAllocator(kRowBytes, 1).rows_log2(), 0);
  EXPECT_EQ(SlabAllocator(kRowBytes, 1).slab_bytes(), kRowBytes);
}

TEST(SlabAllocatorTest, SlabsDoNotOverlapAndAllMemoryComesBack) {
  SlabAllocator allocator(kRowBytes, kSlabBytes);
  std::mt19937_64 rng(1);
  std::vector<char*> slabs;
  for (int round = 0; round < 3; ++round) {
    while (static_cast<int64_t>(slabs.size()) < kSlabs) {
      slabs.push_back(allocator.Allocate());
      ASSERT_EQ(reinterpret_cast<uintptr_t>(slabs.back()) % 8, 0u);
      std::memset(slabs.back(), static_cast<int>(slabs.size()), allocator.slab_bytes());
    }
    const std::set<char*> sorted(slabs.begin(), slabs.end());
    ASSERT_EQ(sorted.size(), slabs.size());
    for (auto it = sorted.begin(), next = std::next(it); next != sorted.end(); ++it, ++next) {
      ASSERT_GE(*next - *it, allocator.slab_bytes());
    }
    std::shuffle(slabs.begin(), slabs.end(), rng);
    while (static_cast<int64_t>(slabs.size()) > round * kSlabs / 4) {
      allocator.Free(slabs.back());
      slabs.pop_back();
    }
  }
  for (char* slab : slabs) allocator.Free(slab);
  EXPECT_EQ(allocator.chunk_bytes(), 0);
}

TEST(SlabAllocatorTest, ChunksAreFullBeforeThereIsAnother) {
  SlabAllocator allocator(kRowBytes, kSlabBytes);
  std::vector<char*> slabs;
  for (int64_t i = 0; i < kSlabs; ++i) slabs.push_back(allocator.Allocate());
  const int64_t bytes = kSlabs * allocator.slab_bytes() - SlabAllocator::kPlainBytes;
  if (HasChunks(&allocator)) {
    EXPECT_GE(allocator.chunk_bytes(), bytes);
    // What does not divide a chunk is lost, and part of the last one is empty.
    EXPECT_LE(allocator.chunk_bytes(), bytes * 1.03 + SlabAllocator::kChunkBytes);
  }
  // Slabs that come free are used again.
  const int64_t chunk_bytes = allocator.chunk_bytes();
  for (int64_t i = kSlabs - 1; i > kSlabs * 3 / 4; i -= 7) {
    allocator.Free(slabs[i]);
    slabs[i] = allocator.Allocate();
  }
  EXPECT_EQ(allocator.chunk_bytes(), chunk_bytes);
  for (char* slab : slabs) allocator.Free(slab);
}

TEST(SlabAllocatorTest, SmallTablesAndLargeRowsTakeWhatTheyNeed) {
  SlabAllocator small(kRowBytes, kSlabBytes);
  SlabAllocator large(3 << 20, kSlabBytes);
  std::vector<char*> slabs;
  for (int i = 0; i < 20; ++i) slabs.push_back(large.Allocate());
  EXPECT_EQ(large.chunk_bytes(), 0);
  for (char* slab : slabs) large.Free(slab);
  char* const slab = small.Allocate();
  EXPECT_EQ(small.chunk_bytes(), 0);
  small.Free(slab);
}

TEST(SlabAllocatorTest, SlabsFromBeforeMoveIntoChunksWithTheirContent) {
  SlabAllocator allocator(kRowBytes, kSlabBytes, 10 * kSlabBytes);
  std::vector<char*> slabs;
  while (!allocator.in_chunks() && slabs.size() < 100) {
    slabs.push_back(allocator.Allocate());
    std::memset(slabs.back(), static_cast<int>(slabs.size()), allocator.slab_bytes());
  }
  EXPECT_GT(slabs.size(), 10u);
  for (size_t i = 0; allocator.in_chunks() && i < slabs.size(); ++i) {
    char* const former = slabs[i];
    slabs[i] = allocator.MoveToChunk(former);
    EXPECT_EQ(slabs[i] == former, i + 1 == slabs.size()) << i;  // the last one was there
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slabs[i]) % 64, 0u);
    EXPECT_EQ(allocator.MoveToChunk(slabs[i]), slabs[i]);
    EXPECT_EQ(slabs[i][0], static_cast<char>(i + 1));
    EXPECT_EQ(slabs[i][allocator.slab_bytes() - 1], static_cast<char>(i + 1));
  }
  for (char* slab : slabs) allocator.Free(slab);
  EXPECT_EQ(allocator.chunk_bytes(), 0);
}

TEST(SlabAllocatorTest, ManyThreadsAtOnce) {
  SlabAllocator allocator(kRowBytes, kSlabBytes);
  TestThreads(4)(8, [&](int64_t thread) {
    std::vector<char*> slabs;
    for (int64_t i = 0; i < kSlabs / 8; ++i) {
      slabs.push_back(allocator.Allocate());
      slabs.back()[0] = static_cast<char>(thread);
    }
    for (char* slab : slabs) {
      EXPECT_EQ(slab[0], static_cast<char>(thread));
      allocator.Free(slab);
    }
  });
  EXPECT_EQ(allocator.chunk_bytes(), 0);
}

}  // namespace
}  // namespace tf_hps
