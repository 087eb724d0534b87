#ifndef TF_HPS_CC_OPS_ENGINE_INITIALIZER_H_
#define TF_HPS_CC_OPS_ENGINE_INITIALIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tf_hps {

// A stable 64-bit hash of a table's name, the salt of its initial rows: FNV-1a over the bytes, then
// SplitMix64's finalizer. Frozen: changing it changes the initial rows of every table.
uint64_t SaltOf(absl::string_view name);

// The distribution of a table's initial rows. A small immutable value: copy it freely, use it from
// any thread.
//
//   uniform(minval=-0.05,maxval=0.05)       minval <= value < maxval; all minval if they are equal
//   normal(mean=0.0,stddev=0.05)            |value - mean| < 6.4 stddev
//   truncated_normal(mean=0.0,stddev=0.05)  |value - mean| <= 2 stddev, else distributed as normal
//   constant(value=0.0)
//
// Element j of a row depends only on (seed, salt, key, j): it is word j % 4 of Philox4x32-10's
// block j / 4 of the key's counter, put through the inverse of the distribution function. Each
// element costs one word, the truncated normal included: nothing is rejected and drawn again, so
// the worst case is the only case. The arithmetic is that of host_device.h, without a call into
// libm, and gives the same bits on every build. Frozen, like SaltOf.
class Initializer {
 public:
  enum class Kind { kUniform, kNormal, kTruncatedNormal, kConstant };

  // All zeros.
  Initializer() = default;

  // Parses one of the specs above. InvalidArgument: an unknown name, a parameter that is missing,
  // unknown, repeated or not a finite float, minval > maxval, stddev < 0.
  static absl::StatusOr<Initializer> Parse(absl::string_view spec);

  // Writes the initial row of `key` to out[0, dim). Any int64 is a key.
  void Fill(uint64_t seed, uint64_t salt, int64_t key, float* out /*[dim]*/, int dim) const;

  // The canonical spec: parameters in the order above, floats as Python's repr prints them.
  std::string ToString() const;

  Kind kind() const { return kind_; }

  friend bool operator==(const Initializer& x, const Initializer& y) {
    return x.kind_ == y.kind_ && x.a_ == y.a_ && x.b_ == y.b_;
  }
  friend bool operator!=(const Initializer& x, const Initializer& y) { return !(x == y); }

 private:
  Initializer(Kind kind, double a, double b) : kind_(kind), a_(a), b_(b) {}

  absl::Status Validate() const;

  Kind kind_ = Kind::kConstant;
  double a_ = 0;  // minval, mean or value
  double b_ = 0;  // maxval, stddev or 0
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_INITIALIZER_H_
