#include "cc_ops/engine/crc32c.h"

#include <array>
#include <cstring>

#include "absl/crc/crc32c.h"

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace tf_hps {
namespace {

#ifdef __x86_64__

// The instruction takes three cycles but can be begun in each: three stretches are worked on at a
// time and put together. (V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32
// Instruction", Intel 2011; here by tables instead of carry-less products.)
constexpr size_t kStretch = 256;

// What a register becomes by kStretch zero bytes, as a sum over its bytes.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

uint64_t LoadWord(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) ShiftTable MakeShiftTable() {
  ShiftTable table;
  for (uint32_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      uint64_t crc = value << (8 * byte);
      for (size_t i = 0; i < kStretch; i += 8) crc = _mm_crc32_u64(crc, 0);
      table[byte][value] = static_cast<uint32_t>(crc);
    }
  }
  return table;
}

uint64_t Shift(const ShiftTable& table, uint64_t crc) {
  return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
         table[3][crc >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) uint32_t HardwareCrc32c(absl::string_view data) {
  static const ShiftTable table = MakeShiftTable();
  const char* p = data.data();
  size_t left = data.size();
  uint64_t crc = 0xffffffff;
  for (; left >= 3 * kStretch; p += 3 * kStretch, left -= 3 * kStretch) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      crc = _mm_crc32_u64(crc, LoadWord(p + i));
      second = _mm_crc32_u64(second, LoadWord(p + kStretch + i));
      third = _mm_crc32_u64(third, LoadWord(p + 2 * kStretch + i));
    }
    crc = Shift(table, Shift(table, crc) ^ second) ^ third;
  }
  for (; left >= 8; p += 8, left -= 8) crc = _mm_crc32_u64(crc, LoadWord(p));
  auto last = static_cast<uint32_t>(crc);
  for (; left > 0; ++p, --left) last = _mm_crc32_u8(last, static_cast<uint8_t>(*p));
  return ~last;
}

#endif

}  // namespace

uint32_t Crc32c(absl::string_view data) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return HardwareCrc32c(data);
#endif
  return static_cast<uint32_t>(absl::ComputeCrc32c(data));
}

}  // namespace tf_hps
