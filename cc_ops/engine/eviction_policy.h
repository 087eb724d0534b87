// Which rows a full partition gives up first.
//
// A row carries a score and the epoch of its last use; the partition counts epochs by uses of its
// rows. So ageing costs nothing: a score is worth less the longer ago it was given. Victims are the
// rows of the lowest rank among those that the partition's clock hand looks at, so that choosing
// one costs a few rows, not a scan.
//
// The ageing of LFU is that of Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache
// Admission Policy" (2017): all counts are halved after ten uses per row of the cache. A row that
// is used for the first time has the lowest count, so that a scan of rows that are used once
// flushes none that is used again.

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

  // Uses of rows, of a partition that holds so many, that make an epoch.
  int64_t EpochUses(int64_t rows) const {
    return std::max<int64_t>(kind_ == kLfu ? 10 * rows : rows / 32, 16);
  }

  // The score of a row that enters the tier, before its first use there: it may have a past.
  uint8_t Initial(uint32_t frequency) const {
    return kind_ == kLfu ? static_cast<uint8_t>(std::min(BitWidth(frequency) / 2, 6)) : 0;
  }

  // The score after one more use, `epochs` after the last one.
  uint8_t Used(uint8_t score, uint16_t epochs) const {
    return static_cast<uint8_t>(std::min(Aged(score, epochs) + 1, 255));
  }

  // The lowest goes first. LFU: uses, halved with each epoch, and of equal ones the frequency since
  // the row was made. LRU: how recent the last use was.
  uint32_t Rank(uint8_t score, uint16_t epochs, uint32_t frequency) const {
    if (kind_ == kLru) return 0xffffu - epochs;
    return static_cast<uint32_t>(Aged(score, epochs) * 8 + std::min(BitWidth(frequency), 7));
  }
  static constexpr uint32_t kRanks = 0x10000;

 private:
  static int BitWidth(uint32_t n) { return n == 0 ? 0 : 32 - __builtin_clz(n); }
  static int Aged(uint8_t score, uint16_t epochs) { return epochs < 8 ? score >> epochs : 0; }

  Kind kind_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_EVICTION_POLICY_H_
