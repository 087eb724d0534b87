// Which rows a full partition gives up first.
//
// A row carries one byte of score. The policies differ only in how that byte moves; victims are
// always the rows with the lowest score among those that the partition's clock hand looks at, so
// that choosing one costs a few rows, not a scan.

#ifndef TF_HPS_CC_OPS_ENGINE_EVICTION_POLICY_H_
#define TF_HPS_CC_OPS_ENGINE_EVICTION_POLICY_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tf_hps {

class EvictionPolicy {
 public:
  enum Kind { kLfu, kLru };

  explicit EvictionPolicy(Kind kind) : kind_(kind) {}

  static absl::StatusOr<EvictionPolicy> Parse(absl::string_view name) {
    if (name == "lfu") return EvictionPolicy(kLfu);
    if (name == "lru") return EvictionPolicy(kLru);
    return absl::InvalidArgumentError(
        absl::StrCat("eviction must be \"lfu\" or \"lru\", got \"", name, "\""));
  }

  absl::string_view name() const { return kind_ == kLfu ? "lfu" : "lru"; }

  // The score of a row that enters the tier.
  uint8_t Initial() const { return kind_ == kLfu ? 1 : kRecent; }

  // The score after one more use by training. LFU counts uses (saturating); LRU remembers that
  // there was one.
  uint8_t Touched(uint8_t score) const {
    if (kind_ == kLru) return kRecent;
    return static_cast<uint8_t>(std::min<int>(score + 1, 255));
  }

  // The score after the clock hand passed the row by. LFU halves (ageing), LRU grows older by one
  // pass.
  uint8_t Aged(uint8_t score) const {
    if (kind_ == kLfu) return score >> 1;
    return score > 0 ? score - 1 : 0;
  }

 private:
  static constexpr uint8_t kRecent = 3;
  Kind kind_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_EVICTION_POLICY_H_
