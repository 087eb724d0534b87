#include "cc_ops/engine/initializer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc_ops/engine/canonical_spec.h"
#include "cc_ops/engine/inverse_normal.h"
#include "cc_ops/engine/philox.h"
#include "cc_ops/engine/stable_hash.h"

namespace tf_hps {
namespace {

using Kind = Initializer::Kind;

struct KindName {
  Kind kind;
  absl::string_view name;
  absl::string_view parameters[2];
  int num_parameters;
};

constexpr KindName kKindNames[] = {
    {Kind::kUniform, "uniform", {"minval", "maxval"}, 2},
    {Kind::kNormal, "normal", {"mean", "stddev"}, 2},
    {Kind::kTruncatedNormal, "truncated_normal", {"mean", "stddev"}, 2},
    {Kind::kConstant, "constant", {"value"}, 1},
};

// |z| of InverseNormal stays below this.
constexpr double kMaxDeviations = 6.4;

// A word as the middle of one of 2^32 equal parts of (0, 1): never 0 or 1, exact, symmetric.
double OpenUnit(uint32_t word) { return (word + 0.5) * 0x1p-32; }

struct Uniform {
  double minval, maxval;
  float below_maxval;  // the greatest float that may come out
  float operator()(uint32_t word) const {
    const double unit = word * 0x1p-32;  // [0, 1)
    return std::min(static_cast<float>(minval + unit * (maxval - minval)), below_maxval);
  }
};

struct Normal {
  double mean, stddev;
  float operator()(uint32_t word) const {
    return static_cast<float>(mean + stddev * InverseNormal(OpenUnit(word)));
  }
};

// Inverts the distribution function between -2 and 2 deviations only.
struct TruncatedNormal {
  double mean, stddev;
  float operator()(uint32_t word) const {
    constexpr double kBelow = 0.022750131948179207;  // the probability of z < -2
    const double z = InverseNormal(kBelow + OpenUnit(word) * (1 - 2 * kBelow));
    return static_cast<float>(mean + stddev * std::min(2.0, std::max(-2.0, z)));
  }
};

struct Stream {
  Philox philox;
  uint64_t key;
};

// For a fixed seed no two salts share a stream, and for a fixed salt no two seeds.
Stream StreamOf(uint64_t seed, uint64_t salt, int64_t key) {
  return {Philox(Mix64(Mix64(seed) + salt)), static_cast<uint64_t>(key)};
}

template <typename Distribution>
void FillFrom(const Stream& stream, const Distribution& distribution, float* out, int dim) {
  for (int start = 0; start < dim; start += 4) {
    const Philox::Block block = stream.philox(stream.key, static_cast<uint64_t>(start / 4));
    const int n = std::min(4, dim - start);
    for (int i = 0; i < n; ++i) out[start + i] = distribution(block.word[i]);
  }
}

}  // namespace

uint64_t SaltOf(absl::string_view name) { return StableHash64(name); }

absl::StatusOr<Initializer> Initializer::Parse(absl::string_view spec) {
  absl::StatusOr<CanonicalSpec> parsed = CanonicalSpec::Parse(spec);
  if (!parsed.ok()) return parsed.status();
  for (const KindName& entry : kKindNames) {
    if (entry.name != parsed->name) continue;
    absl::StatusOr<std::vector<double>> values =
        parsed->Values(absl::MakeConstSpan(entry.parameters, entry.num_parameters));
    if (!values.ok()) return values.status();
    const Initializer result(entry.kind, (*values)[0], values->size() > 1 ? (*values)[1] : 0);
    if (absl::Status s = result.Validate(); !s.ok()) return s;
    return result;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("received the initializer \"", spec,
                   "\", expected uniform, normal, truncated_normal or constant"));
}

absl::Status Initializer::Validate() const {
  if (kind_ == Kind::kUniform && !(a_ <= b_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("received ", ToString(), ", expected minval <= maxval"));
  }
  const bool normal = kind_ == Kind::kNormal || kind_ == Kind::kTruncatedNormal;
  if (normal &&
      !(b_ >= 0 && std::abs(a_) + kMaxDeviations * b_ <= std::numeric_limits<float>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("received ", ToString(), ", expected stddev >= 0 and values within float32"));
  }
  return absl::OkStatus();
}

void Initializer::Fill(uint64_t seed, uint64_t salt, int64_t key, float* out, int dim) const {
  const Stream stream = StreamOf(seed, salt, key);
  switch (kind_) {
    case Kind::kUniform: {
      const float minval = static_cast<float>(a_);
      const float maxval = static_cast<float>(b_);
      const float below = minval < maxval ? std::nextafter(maxval, minval) : minval;
      return FillFrom(stream, Uniform{a_, b_, below}, out, dim);
    }
    case Kind::kNormal:
      return FillFrom(stream, Normal{a_, b_}, out, dim);
    case Kind::kTruncatedNormal:
      return FillFrom(stream, TruncatedNormal{a_, b_}, out, dim);
    case Kind::kConstant:
      std::fill(out, out + dim, static_cast<float>(a_));
      return;
  }
}

std::string Initializer::ToString() const {
  const KindName& entry = kKindNames[static_cast<int>(kind_)];
  std::string text = absl::StrCat(entry.name, "(", entry.parameters[0], "=", PythonRepr(a_));
  if (entry.num_parameters > 1) {
    absl::StrAppend(&text, ",", entry.parameters[1], "=", PythonRepr(b_));
  }
  return text + ")";
}

}  // namespace tf_hps
