#ifndef TF_HPS_CC_OPS_ENGINE_INVERSE_NORMAL_H_
#define TF_HPS_CC_OPS_ENGINE_INVERSE_NORMAL_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cc_ops/engine/host_device.h"

namespace tf_hps {

// The natural logarithm of a normal double x > 0, within 1e-14 relative: libm's may differ between
// machines, this one does not. x = 2^e * m with m in [sqrt(1/2), sqrt(2)), and log(m) by the series
// 2 * (s + s^3 / 3 + s^5 / 5 + ...) of s = (m - 1) / (m + 1), |s| < 0.172.
TF_HPS_HOST_DEVICE inline double PortableLog(double x) {
  constexpr double kLog2 = 0.69314718055994530942;
  constexpr double kSqrt2 = 1.41421356237309504880;
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
  double m;
  std::memcpy(&m, &bits, sizeof(m));
  if (m >= kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 1.0 / 19;
  series = series * s2 + 1.0 / 17;
  series = series * s2 + 1.0 / 15;
  series = series * s2 + 1.0 / 13;
  series = series * s2 + 1.0 / 11;
  series = series * s2 + 1.0 / 9;
  series = series * s2 + 1.0 / 7;
  series = series * s2 + 1.0 / 5;
  series = series * s2 + 1.0 / 3;
  series = series * s2 + 1;
  return exponent * kLog2 + 2 * s * series;
}

// The z below which a standard normal variable falls with probability p, for p in
// [2^-33, 1 - 2^-33], within 1e-7 relative: algorithm AS 241 (PPND7) of M. J. Wichura, "The
// percentage points of the normal distribution", Applied Statistics 37 (1988), without its branch
// for p below exp(-25). Odd about p = 1/2 to the bit; |z| < 6.4.
TF_HPS_HOST_DEVICE inline double InverseNormal(double p) {
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    const double numerator =
        ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179;
    const double denominator = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1;
    return q * numerator / denominator;
  }
  const double r = std::sqrt(-PortableLog(q < 0 ? p : 1 - p)) - 1.6;
  const double numerator =
      ((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777;
  const double denominator = (0.12021132975 * r + 0.73700164250) * r + 1;
  const double z = numerator / denominator;
  return q < 0 ? -z : z;
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_INVERSE_NORMAL_H_
