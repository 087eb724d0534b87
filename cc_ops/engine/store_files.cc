#include "cc_ops/engine/store_files.h"

#include <algorithm>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cc_ops/engine/file_util.h"
#include "cc_ops/engine/stable_hash.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {

absl::Status CheckFormatFile(const std::string& store) {
  const std::string path = JoinPath(store, "FORMAT");
  TF_HPS_ASSIGN_OR_RETURN(const std::string format, ReadFile(path));
  if (format == kStoreFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " says \"", absl::StripSuffix(format, "\n"), "\", expected \"",
                   absl::StripSuffix(kStoreFormat, "\n"),
                   "\": the store is damaged or another version of tf_hps wrote it"));
}

std::string CurrentText(int64_t number) {
  const std::string digits = absl::StrCat(number);
  return absl::StrCat(digits, " ", absl::Hex(StableHash64(digits), absl::kZeroPad16), "\n");
}

absl::StatusOr<int64_t> ReadCurrent(const std::string& store) {
  const std::string path = JoinPath(store, "CURRENT");
  TF_HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  int64_t number = -1;
  if (absl::SimpleAtoi(text.substr(0, text.find(' ')), &number) && text == CurrentText(number)) {
    return number;
  }
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: it does not hold a number and its checksum"));
}

std::string CommitPath(const std::string& store, int64_t number) {
  return JoinPath(store, absl::StrFormat("commits/%06d", number));
}

std::string ManifestPath(const std::string& store, int64_t number) {
  return JoinPath(CommitPath(store, number), "MANIFEST");
}

std::vector<int64_t> ListCommits(const std::string& store) {
  std::vector<int64_t> numbers;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(store, "commits"));
  if (!names.ok()) return numbers;  // none was made yet
  for (const std::string& name : *names) {
    int64_t number;
    if (absl::SimpleAtoi(name, &number)) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string FlatPath(const std::string& prefix, const std::string& save_id, int64_t number) {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string digits(4, '0');
  for (int i = 3; i >= 0; --i, number /= 36) digits[i] = kDigits[number % 36];
  return absl::StrCat(prefix, ".data-h", digits, "-of-", save_id);
}

// One LevelDB instance, and so one compaction thread, for every two cores, at most eight.
int DefaultInstances() {
  const unsigned cores = std::thread::hardware_concurrency();
  int instances = 1;
  while (instances < 8 && static_cast<unsigned>(instances) * 2 <= cores) instances *= 2;
  return instances;
}

SsdOptions SsdOptionsFor(int64_t dram_bytes, int64_t write_buffer_bytes, int instances) {
  SsdOptions options;
  options.instances = instances;
  options.write_buffer_bytes =
      std::clamp<int64_t>(dram_bytes / (16 * instances), 256 << 10, 32 << 20);
  if (write_buffer_bytes > 0) options.write_buffer_bytes = write_buffer_bytes;
  return options;
}

}  // namespace tf_hps
