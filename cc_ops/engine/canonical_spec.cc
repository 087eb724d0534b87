#include "cc_ops/engine/canonical_spec.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tf_hps {
namespace {

absl::Status Malformed(absl::string_view spec, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("received the spec \"", spec, "\", expected name(parameter=number,...): ", why));
}

// Appends the parameters between the parentheses of `spec`.
absl::Status ParseParameters(absl::string_view spec, absl::string_view inside,
                             std::vector<std::pair<std::string, double>>* parameters) {
  for (absl::string_view item : absl::StrSplit(inside, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    double value;
    if (pair.first.empty() || !absl::SimpleAtod(pair.second, &value)) {
      return Malformed(spec, absl::StrCat("\"", item, "\" is not parameter=number"));
    }
    for (const auto& earlier : *parameters) {
      if (earlier.first == pair.first) {
        return Malformed(spec, absl::StrCat("\"", pair.first, "\" is repeated"));
      }
    }
    parameters->emplace_back(std::string(pair.first), value);
  }
  return absl::OkStatus();
}

// "d.ddde-xx" with the fewest digits that read back as `value`.
std::string ShortestScientific(double value) {
  std::string text;
  for (int digits = 0; digits <= 16; ++digits) {
    text = absl::StrFormat("%.*e", digits, value);
    double back;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text;
}

}  // namespace

absl::StatusOr<CanonicalSpec> CanonicalSpec::Parse(absl::string_view spec) {
  CanonicalSpec result;
  const size_t open = spec.find('(');
  result.name = std::string(spec.substr(0, open));
  if (result.name.empty()) return Malformed(spec, "it has no name");
  if (open == absl::string_view::npos) return result;
  absl::string_view inside = spec.substr(open + 1);
  if (!absl::ConsumeSuffix(&inside, ")")) return Malformed(spec, "it does not end with )");
  if (absl::Status s = ParseParameters(spec, inside, &result.parameters); !s.ok()) return s;
  return result;
}

absl::StatusOr<std::vector<double>> CanonicalSpec::Values(
    absl::Span<const absl::string_view> names) const {
  std::vector<double> values;
  for (absl::string_view wanted : names) {
    for (const auto& parameter : parameters) {
      if (parameter.first == wanted) values.push_back(parameter.second);
    }
  }
  if (values.size() != names.size() || parameters.size() != names.size()) {
    const auto name_of = [](std::string* out, const std::pair<std::string, double>& parameter) {
      out->append(parameter.first);
    };
    return absl::InvalidArgumentError(
        absl::StrCat(name, " received the parameters (", absl::StrJoin(parameters, ", ", name_of),
                     "), expected (", absl::StrJoin(names, ", "), ")"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!(std::abs(values[i]) <= std::numeric_limits<float>::max())) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " received ", names[i], "=", values[i], ", expected a finite float"));
    }
  }
  return values;
}

std::string PythonRepr(double value) {
  const std::string scientific = ShortestScientific(value);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  // The digits after the point when it is laid out without an exponent.
  const int fraction_digits =
      (e > 2 && scientific.find('.') < e) ? static_cast<int>(e - scientific.find('.') - 1) : 0;
  return absl::StrFormat("%.*f", std::max(1, fraction_digits - exponent), value);
}

}  // namespace tf_hps
