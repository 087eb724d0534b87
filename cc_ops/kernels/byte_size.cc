#include "cc_ops/kernels/byte_size.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tf_hps {
namespace {

// The factor of a unit in lower case; 0 if there is no such unit.
int64_t FactorOf(absl::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  constexpr absl::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit[0]);
  if (power == absl::string_view::npos) return 0;
  unit.remove_prefix(1);
  if (unit != "b" && unit != "ib") return 0;
  int64_t factor = 1;
  for (size_t i = 0; i <= power; ++i) factor *= unit == "b" ? 1000 : 1024;
  return factor;
}

// -1 if it is no number of bytes.
int64_t Parse(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view number = text.substr(0, end);
  const int64_t factor =
      FactorOf(absl::AsciiStrToLower(absl::StripLeadingAsciiWhitespace(text.substr(end))));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t whole = 0;
  if (factor == 0) return -1;
  if (absl::SimpleAtoi(number, &whole)) {  // exact, where a double would round
    return whole <= kMost / factor ? whole * factor : -1;
  }
  double fraction = 0;
  if (number.find('.') == absl::string_view::npos || !absl::SimpleAtod(number, &fraction)) {
    return -1;
  }
  const double bytes = fraction * static_cast<double>(factor);
  return bytes < static_cast<double>(kMost) ? static_cast<int64_t>(bytes) : -1;
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  const int64_t bytes = Parse(text);
  if (bytes >= 0) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(
      "expected a number of bytes: \"2147483648\", \"512MB\", \"8GiB\" or \"1.5GiB\". Received: \"",
      text, "\""));
}

}  // namespace tf_hps
