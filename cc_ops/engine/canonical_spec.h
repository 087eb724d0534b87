#ifndef TF_HPS_CC_OPS_ENGINE_CANONICAL_SPEC_H_
#define TF_HPS_CC_OPS_ENGINE_CANONICAL_SPEC_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tf_hps {

// The written form of initializers and optimizers: "name(parameter=number,...)", or a name alone.
struct CanonicalSpec {
  std::string name;
  std::vector<std::pair<std::string, double>> parameters;

  // InvalidArgument: not of that form, a parameter repeated or not a number.
  static absl::StatusOr<CanonicalSpec> Parse(absl::string_view spec);

  // The values of the parameters in the order of `names`. InvalidArgument: not exactly these
  // parameters, or a value beyond the finite floats.
  absl::StatusOr<std::vector<double>> Values(absl::Span<const absl::string_view> names) const;
};

// The fewest digits that read back as this finite double, laid out as Python's repr does: "0.05",
// "1e-07", "2.0".
std::string PythonRepr(double value);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_CANONICAL_SPEC_H_
