#include "cc_ops/engine/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "cc_ops/engine/canonical_spec.h"
#include "cc_ops/engine/inverse_normal.h"

namespace tf_hps {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr char kUniform[] = "uniform(minval=-0.05,maxval=0.05)";
constexpr char kNormal[] = "normal(mean=0.0,stddev=0.05)";
constexpr char kTruncated[] = "truncated_normal(mean=0.0,stddev=0.05)";
constexpr char kConstant[] = "constant(value=0.25)";

std::vector<float> Row(const Initializer& init, uint64_t seed, uint64_t salt, int64_t key,
                       int dim) {
  // A guard after the row catches a write past its end.
  std::vector<float> row(dim + 1, -77.0f);
  init.Fill(seed, salt, key, row.data(), dim);
  EXPECT_EQ(row.back(), -77.0f);
  row.pop_back();
  return row;
}

Initializer Parsed(const std::string& spec) {
  absl::StatusOr<Initializer> init = Initializer::Parse(spec);
  EXPECT_TRUE(init.ok()) << init.status();
  return *init;
}

uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

class EveryInitializerTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryInitializerTest,
                         testing::Values(kUniform, kNormal, kTruncated, kConstant));

TEST_P(EveryInitializerTest, AnElementDoesNotDependOnDim) {
  const Initializer init = Parsed(GetParam());
  const std::vector<float> longest = Row(init, 1, 2, 3, 129);
  for (int dim : {0, 1, 2, 3, 4, 5, 16, 17, 64, 128}) {
    EXPECT_EQ(Row(init, 1, 2, 3, dim), std::vector<float>(longest.begin(), longest.begin() + dim));
  }
}

TEST_P(EveryInitializerTest, ARowDoesNotDependOnOrderOrThread) {
  const Initializer init = Parsed(GetParam());
  std::vector<int64_t> keys = {0, -1, 1, kMin, kMax, kMin + 1, 123456789};
  std::vector<std::vector<float>> rows;
  for (int64_t key : keys) rows.push_back(Row(init, 7, 8, key, 19));
  std::thread other([&] {
    for (size_t i = keys.size(); i-- > 0;) EXPECT_EQ(Row(init, 7, 8, keys[i], 19), rows[i]);
  });
  other.join();
}

TEST_P(EveryInitializerTest, TheCanonicalSpecRoundTrips) {
  const Initializer init = Parsed(GetParam());
  EXPECT_EQ(init.ToString(), GetParam());
  EXPECT_EQ(Parsed(init.ToString()), init);
}

class RandomInitializerTest : public EveryInitializerTest {};

INSTANTIATE_TEST_SUITE_P(Kinds, RandomInitializerTest,
                         testing::Values(kUniform, kNormal, kTruncated));

TEST_P(RandomInitializerTest, SeedSaltKeyAndElementAllMatter) {
  const Initializer init = Parsed(GetParam());
  std::set<std::vector<float>> rows;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (uint64_t salt : {uint64_t{0}, uint64_t{1}, SaltOf("user"), SaltOf("item")}) {
      for (int64_t key : {int64_t{0}, int64_t{-1}, int64_t{1}, kMin, kMax, int64_t{1} << 32}) {
        rows.insert(Row(init, seed, salt, key, 8));
      }
    }
  }
  EXPECT_EQ(rows.size(), 3u * 4 * 6);
  const std::vector<float> row = Row(init, 0, 0, 0, 64);
  EXPECT_EQ(std::set<float>(row.begin(), row.end()).size(), 64u);
}

// The figures of 2^20 elements over keys that are consecutive, as ids often are.
struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0, correlation = 0;
  float least = 0, greatest = 0;
};

Moments MomentsOf(const Initializer& init) {
  constexpr int kDim = 16, kKeys = 1 << 16;
  std::vector<double> all;
  for (int64_t key = 0; key < kKeys; ++key) {
    for (float x : Row(init, 11, SaltOf("t"), key, kDim)) all.push_back(x);
  }
  const double n = static_cast<double>(all.size());
  Moments m;
  for (double x : all) m.mean += x / n;
  for (size_t i = 0; i < all.size(); ++i) {
    const double d = all[i] - m.mean;
    m.variance += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
    if (i > 0) m.correlation += d * (all[i - 1] - m.mean) / n;
  }
  m.skew /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  m.correlation /= m.variance;
  m.least = static_cast<float>(*std::min_element(all.begin(), all.end()));
  m.greatest = static_cast<float>(*std::max_element(all.begin(), all.end()));
  return m;
}

TEST(InitializerTest, UniformHasItsMomentsAndBounds) {
  const Moments m = MomentsOf(Parsed("uniform(minval=-1.0,maxval=3.0)"));
  EXPECT_NEAR(m.mean, 1, 0.006);
  EXPECT_NEAR(m.variance, 16.0 / 12, 0.006);
  EXPECT_NEAR(m.skew, 0, 0.01);
  EXPECT_NEAR(m.kurtosis, 1.8, 0.01);
  EXPECT_NEAR(m.correlation, 0, 0.005);
  EXPECT_GE(m.least, -1);
  EXPECT_LT(m.least, -0.9999);
  EXPECT_LT(m.greatest, 3);
  EXPECT_GT(m.greatest, 2.9999);
}

TEST(InitializerTest, NormalHasItsMomentsAndTails) {
  const Moments m = MomentsOf(Parsed("normal(mean=1.0,stddev=2.0)"));
  EXPECT_NEAR(m.mean, 1, 0.01);
  EXPECT_NEAR(m.variance, 4, 0.03);
  EXPECT_NEAR(m.skew, 0, 0.015);
  EXPECT_NEAR(m.kurtosis, 3, 0.03);
  EXPECT_NEAR(m.correlation, 0, 0.005);
  EXPECT_GT(m.greatest, 1 + 2 * 4.2);  // of 2^20 draws the greatest is near 4.9 deviations
  EXPECT_LT(m.greatest, 1 + 2 * 6.4);
  EXPECT_LT(m.least, 1 - 2 * 4.2);
}

TEST(InitializerTest, TruncatedNormalHasItsMomentsAndBounds) {
  const Moments m = MomentsOf(Parsed("truncated_normal(mean=0.0,stddev=1.0)"));
  EXPECT_NEAR(m.mean, 0, 0.005);
  EXPECT_NEAR(m.variance, 0.7737, 0.005);  // 1 - 2 * 2 * phi(2) / (2 * Phi(2) - 1)
  EXPECT_NEAR(m.skew, 0, 0.01);
  EXPECT_NEAR(m.correlation, 0, 0.005);
  EXPECT_GE(m.least, -2);
  EXPECT_LT(m.least, -1.999);
  EXPECT_LE(m.greatest, 2);
  EXPECT_GT(m.greatest, 1.999);
}

TEST(InitializerTest, TheShareOfEachIntervalIsTheNormalDistributions) {
  const Initializer init = Parsed("normal(mean=0.0,stddev=1.0)");
  const auto phi = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };
  constexpr int kKeys = 50000, kDim = 16;
  std::vector<int> counts(8);
  for (int64_t key = 0; key < kKeys; ++key) {
    for (float x : Row(init, 5, 6, key, kDim)) {
      ++counts[std::min(7, std::max(0, static_cast<int>(std::floor(x)) + 4))];
    }
  }
  for (int i = 0; i < 8; ++i) {
    const double low = i == 0 ? 0 : phi(i - 4), high = i == 7 ? 1 : phi(i - 3);
    EXPECT_NEAR(counts[i] / double{kKeys * kDim}, high - low, 0.002) << "from " << i - 4;
  }
}

TEST(InitializerTest, ConstantFillsAndDefaultIsZeros) {
  EXPECT_EQ(Row(Parsed(kConstant), 1, 2, 3, 5), std::vector<float>(5, 0.25f));
  EXPECT_EQ(Row(Initializer(), 1, 2, 3, 5), std::vector<float>(5, 0.0f));
  EXPECT_EQ(Initializer().ToString(), "constant(value=0.0)");
}

TEST(InitializerTest, UniformStaysBelowMaxvalWhereFloatsAreCoarse) {
  const Initializer init = Parsed("uniform(minval=16777216.0,maxval=16777218.0)");
  for (int64_t key = 0; key < 1000; ++key) {
    for (float x : Row(init, 1, 2, key, 4)) EXPECT_EQ(x, 16777216.0f);
  }
  EXPECT_EQ(Row(Parsed("uniform(minval=0.5,maxval=0.5)"), 1, 2, 3, 2), std::vector<float>(2, 0.5f));
}

TEST(InitializerTest, TheWidestBoundsStayFinite) {
  for (const char* spec : {"uniform(minval=-3.4e38,maxval=3.4e38)", "normal(mean=0,stddev=5e37)",
                           "truncated_normal(mean=3e38,stddev=5e36)"}) {
    for (int64_t key = 0; key < 1000; ++key) {
      for (float x : Row(Parsed(spec), 1, 2, key, 16)) EXPECT_TRUE(std::isfinite(x)) << spec;
    }
  }
}

// Frozen: a store's unseen rows would change with any of these bits. Those of uniform were computed
// by a second implementation, in Python; those of the normals agree with its NormalDist to an ulp.
TEST(InitializerTest, TheBitsOfRowsAreFrozen) {
  EXPECT_EQ(SaltOf(""), 0xF52A15E9A9B5E89Bu);
  EXPECT_EQ(SaltOf("user"), 0xFF9AE3C55AE5BEE1u);
  const auto bits = [](const char* spec, int64_t key) {
    std::vector<uint32_t> result;
    for (float x : Row(Parsed(spec), 42, SaltOf("user"), key, 5)) result.push_back(Bits(x));
    return result;
  };
  using V = std::vector<uint32_t>;
  EXPECT_EQ(bits(kUniform, -1), (V{0x3CF98D14, 0xBD3B0CC7, 0xBC2DC451, 0x3BA37C7A, 0xBC0BA4FA}));
  EXPECT_EQ(bits(kUniform, kMin), (V{0xBBFA708B, 0x3A70F5BA, 0xBD46F8EA, 0xBD14C70D, 0xBD390884}));
  EXPECT_EQ(bits(kNormal, -1), (V{0x3D2FC5F7, 0xBDAF6F48, 0xBC5C6A50, 0x3BCD6FC9, 0xBC305F1A}));
  EXPECT_EQ(bits(kTruncated, -1), (V{0x3D25B367, 0xBD9BC386, 0xBC522866, 0x3BC40B1E, 0xBC283ADF}));
}

TEST(InitializerTest, SaltsOfDifferentNamesDiffer) {
  std::set<uint64_t> salts;
  for (int i = 0; i < 100000; ++i) salts.insert(SaltOf("table_" + std::to_string(i)));
  salts.insert(SaltOf(absl::string_view("\0", 1)));
  salts.insert(SaltOf(absl::string_view("\0\0", 2)));
  salts.insert(SaltOf("\xC3\xA9"));
  EXPECT_EQ(salts.size(), 100003u);
}

TEST(InitializerTest, ParseRefusesOtherSpecsAndSaysWhatItReceived) {
  for (const char* spec : {"",
                           "uniform",
                           "uniform()",
                           "glorot(x=1)",
                           "uniform(minval=1)",
                           "constant(value=)",
                           "uniform(minval=1,maxval=0)",
                           "uniform(minval=0,maxval=1,seed=3)",
                           "constant(value=0",
                           "uniform(minval=0,minval=0,maxval=1)",
                           "constant(value=nan)",
                           "constant(value=inf)",
                           "constant(value=1e39)",
                           "constant(value=0x)",
                           "normal(mean=0,stddev=-1)",
                           "constant(=1)",
                           "normal(mean=0,stddev=1e38)",
                           "Constant(value=0)",
                           "constant(value=0))",
                           "(value=0)"}) {
    const absl::Status status = Initializer::Parse(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_NE(status.message().find("received"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("expected"), absl::string_view::npos) << status;
  }
}

TEST(InitializerTest, ParseTakesParametersInAnyOrder) {
  EXPECT_EQ(Parsed("uniform(maxval=1,minval=-1e-7)").ToString(),
            "uniform(minval=-1e-07,maxval=1.0)");
}

TEST(PythonReprTest, PrintsAsPythonDoes) {
  const std::pair<double, const char*> cases[] = {{0.0, "0.0"},
                                                  {1.0, "1.0"},
                                                  {0.05, "0.05"},
                                                  {-0.05, "-0.05"},
                                                  {1e-4, "0.0001"},
                                                  {1e-5, "1e-05"},
                                                  {1e16, "1e+16"},
                                                  {123456.0, "123456.0"},
                                                  {1e-100, "1e-100"},
                                                  {0.1 + 0.2, "0.30000000000000004"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1.0 / 3, "0.3333333333333333"},
                                                  {1.5e300, "1.5e+300"},
                                                  {9007199254740993.0, "9007199254740992.0"},
                                                  {5e-324, "5e-324"},
                                                  {1.25e-7, "1.25e-07"},
                                                  {-2.5, "-2.5"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(PythonRepr(value), text);
}

TEST(PythonReprTest, ReadsBackAsTheSameNumber) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::ldexp(static_cast<double>(random()), static_cast<int>(i % 200) - 160);
    EXPECT_EQ(std::stod(PythonRepr(value)), value);
  }
}

TEST(InverseNormalTest, PortableLogIsTheLogarithm) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = (static_cast<double>(random()) + 1) * std::ldexp(1.0, -(i % 100));
    EXPECT_NEAR(PortableLog(x), std::log(x), 1e-14 * (1 + std::abs(std::log(x))));
  }
  EXPECT_EQ(PortableLog(1), 0);
}

TEST(InverseNormalTest, InvertsTheDistributionFunction) {
  for (double p = 0x1p-33; p < 0.5; p *= 1.01) {
    const double z = InverseNormal(p);
    const double slope = std::exp(-z * z / 2) / std::sqrt(2 * 3.14159265358979);
    EXPECT_NEAR((0.5 * std::erfc(-z / std::sqrt(2.0)) - p) / slope, 0, 2e-7 * std::abs(z) + 1e-12);
  }
}

TEST(InverseNormalTest, IsOddAndMonotonicAndBounded) {
  EXPECT_EQ(InverseNormal(0.5), 0);
  double last = -6.4;
  for (uint64_t word = 0; word < (uint64_t{1} << 32); word += 65521) {
    const double p = (word + 0.5) * 0x1p-32;
    const double z = InverseNormal(p);
    EXPECT_EQ(InverseNormal(1 - p), -z);
    EXPECT_GT(z, last);
    last = z;
  }
  EXPECT_LT(last, 6.4);
  EXPECT_GT(InverseNormal(0x1p-33), -6.4);
}

}  // namespace
}  // namespace tf_hps
