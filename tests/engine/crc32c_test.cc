#include "cc_ops/engine/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/crc/crc32c.h"

namespace tf_hps {
namespace {

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);            // the check value of CRC-32C
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, EqualsAbseilsForAllLengths) {
  std::mt19937_64 rng(1);
  std::string data(5000, '\0');
  for (char& byte : data) byte = static_cast<char>(rng());
  for (size_t bytes = 0; bytes < data.size(); bytes += bytes < 1700 ? 1 : 37) {
    const absl::string_view part = absl::string_view(data).substr(bytes % 9, bytes);
    ASSERT_EQ(Crc32c(part), static_cast<uint32_t>(absl::ComputeCrc32c(part))) << bytes;
  }
}

}  // namespace
}  // namespace tf_hps
