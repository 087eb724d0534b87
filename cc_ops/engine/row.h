// A row in memory and on SSD: one unit of weights, optimizer state and metadata.
//
// In the dram tier (row_bytes() each, 8-byte aligned):
//
//   | key 8 | version 4 | frequency 4 | last_step 4 | score 1 | flags 1 | epoch 2 | weights dim*4
//   | state slots*dim*4 |
//
// On SSD (the value of a LevelDB entry, little endian; the key stands in the entry's key):
//
//   | version 4 | frequency 4 | last_step 4 | state_epoch 4 | weights dim*4 | state slots*dim*4 |

#ifndef TF_HPS_CC_OPS_ENGINE_ROW_H_
#define TF_HPS_CC_OPS_ENGINE_ROW_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_hps {

enum RowFlags : uint8_t {
  kRowDirty = 1,     // differs from what SSD holds
  kRowOnSsd = 2,     // SSD holds some version of it
  kRowPinned = 4,    // of a batch in flight: not to be evicted or moved
  kRowOccupied = 8,  // the slot holds a row
  // Of a coming batch: the last to be evicted. In four bits, how often eviction may still pass it
  // by before it is a row as any other.
  kRowAwaited = 0xf0,
  kRowAwaitedOnce = 0x10,
};

struct RowHeader {
  int64_t key;
  uint32_t version;    // updates since the row was created
  uint32_t frequency;  // training lookups that named the key; saturates
  uint32_t last_step;  // the table's step when the row was last updated
  uint8_t score;       // the eviction policy's own
  uint8_t flags;
  uint16_t epoch;  // of the partition at the last use
};
static_assert(sizeof(RowHeader) == 24, "the dram tier's layout");

// The sizes that follow from a table's dim and its optimizer's number of state slots.
struct RowLayout {
  int dim = 0;
  int slots = 0;

  int floats() const { return dim * (1 + slots); }
  int64_t row_bytes() const {
    return (static_cast<int64_t>(sizeof(RowHeader)) + 4ll * floats() + 7) & ~7ll;
  }
  // Where the weights end in the dram tier's form.
  int64_t weights_end() const { return static_cast<int64_t>(sizeof(RowHeader)) + 4ll * dim; }
  int64_t encoded_bytes() const { return kEncodedHeaderBytes + 4ll * floats(); }
  int64_t encoded_bytes_without_state() const { return kEncodedHeaderBytes + 4ll * dim; }

  static constexpr int kEncodedHeaderBytes = 16;
};

inline RowHeader* HeaderOf(char* row) { return reinterpret_cast<RowHeader*>(row); }
inline const RowHeader* HeaderOf(const char* row) {
  return reinterpret_cast<const RowHeader*>(row);
}
inline float* WeightsOf(char* row) { return reinterpret_cast<float*>(row + sizeof(RowHeader)); }
inline const float* WeightsOf(const char* row) {
  return reinterpret_cast<const float*>(row + sizeof(RowHeader));
}

// Appends the row's SSD encoding to *out.
void EncodeRow(const RowLayout& layout, uint32_t state_epoch, const char* row, std::string* out);

// Reads an SSD encoding into `row` (row_bytes() of it), except key, score and flags. *fresh_state
// says that the value holds state of another epoch or none, so that the caller must initialize it.
// DataLoss when the size fits neither form.
absl::Status DecodeRow(const RowLayout& layout, uint32_t state_epoch, absl::string_view value,
                       char* row, bool* fresh_state);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_ROW_H_
