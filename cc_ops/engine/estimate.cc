#include "cc_ops/engine/estimate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/row_index.h"
#include "cc_ops/engine/ssd_instance.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/store_files.h"

namespace tf_hps {
namespace {

// LevelDB appends a sequence number and a type to each key, and begins an entry with three lengths.
constexpr double kSequenceBytes = 8;
constexpr double kLengthBytes = 4;
constexpr double kRestartBytes = 4.0 / 16;   // one offset every 16 entries
constexpr double kBlockTrailerBytes = 9;     // number of restarts, type, checksum
constexpr double kHandleBytes = 12;          // in the index: lengths, offset, size, restart
constexpr double kReaderBytesPerBlock = 16;  // see TableReader::Block

// Of a key's 12 bytes those that LevelDB leaves out because the key before has them too: the table
// id, and as many as `rows` keys spread over all int64 have in common.
double SharedKeyBytes(double rows) { return 4 + std::log2(std::max(rows, 1.0)) / 8; }

}  // namespace

absl::StatusOr<Estimate> EstimateBytes(int64_t rows, int dim, const std::string& optimizer,
                                       int64_t dram_bytes) {
  if (rows < 0 || dim < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected rows >= 0 and dim >= 1, got ", rows, " and ", dim));
  }
  TF_HPS_ASSIGN_OR_RETURN(const OptimizerSpec spec, OptimizerSpec::Parse(optimizer));
  const RowLayout layout{dim, spec.slots()};
  const int instances = DefaultInstances();
  const double key_bytes = kSsdKeyBytes + kSequenceBytes;
  const double bloom_bytes = kSsdBloomBitsPerKey / 8.0;
  const double entry_bytes = key_bytes - SharedKeyBytes(static_cast<double>(rows) / instances) +
                             kLengthBytes + kRestartBytes +
                             static_cast<double>(layout.encoded_bytes());
  const double rows_per_block = std::ceil(kSsdBlockBytes / entry_bytes);
  const double index_bytes = (key_bytes + kHandleBytes) / rows_per_block;

  // Of a file's index and filters there are LevelDB's, when it compacts the file, and its reader's.
  const double memory_bytes = index_bytes + kReaderBytesPerBlock / rows_per_block + 2 * bloom_bytes;

  Estimate estimate;
  estimate.dram_bytes_per_row = static_cast<double>(layout.row_bytes()) + RowIndex::BytesPerKey();
  estimate.ssd_bytes_per_row =
      entry_bytes + bloom_bytes + index_bytes + kBlockTrailerBytes / rows_per_block;
  estimate.dram_rows = static_cast<double>(rows);
  if (dram_bytes >= 0) {
    estimate.dram_rows = std::min(estimate.dram_rows, std::floor(static_cast<double>(dram_bytes) /
                                                                 estimate.dram_bytes_per_row));
  }
  estimate.dram_bytes = estimate.dram_rows * estimate.dram_bytes_per_row;
  estimate.ssd_bytes = static_cast<double>(rows) * estimate.ssd_bytes_per_row;
  const SsdOptions ssd = SsdOptionsFor(
      dram_bytes >= 0 ? dram_bytes : static_cast<int64_t>(estimate.dram_bytes), 0, instances);
  estimate.overhead_bytes = 2.0 * instances * static_cast<double>(ssd.write_buffer_bytes) +
                            static_cast<double>(rows) * memory_bytes;
  return estimate;
}

}  // namespace tf_hps
