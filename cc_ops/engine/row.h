// A row in memory and on SSD: one unit of weights, optimizer state and metadata.
//
// In memory its header lies apart from its floats, so that weights can be aligned to cache lines;
// its key is where it was looked up by (RowIndex).
//
//   | version 4 | frequency 4 | last_step 4 | score 1 | flags 1 | epoch 2 |
//   | weights dim*4 | state slots*dim*4 |
//
// On SSD (the value of a LevelDB entry, little endian; the key stands in the entry's key):
//
//   | version 4 | frequency 4 | last_step 4 | state_epoch 4 | weights dim*4 | state slots*dim*4 |

#ifndef TF_HPS_CC_OPS_ENGINE_ROW_H_
#define TF_HPS_CC_OPS_ENGINE_ROW_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cc_ops/engine/uninitialized_vector.h"

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
  uint32_t version;    // updates since the row was created
  uint32_t frequency;  // training lookups that named the key; saturates
  uint32_t last_step;  // the table's step when the row was last updated
  uint8_t score;       // the eviction policy's own
  uint8_t flags;
  uint16_t epoch;  // of the partition at the last use
};
static_assert(sizeof(RowHeader) == 16, "the dram tier's layout");

// Where a row lies in memory.
struct Row {
  RowHeader* header;
  float* weights;  // [dim], and after them the state [slots, dim]
};

// The sizes that follow from a table's dim and its optimizer's number of state slots.
struct RowLayout {
  int dim = 0;
  int slots = 0;

  int floats() const { return dim * (1 + slots); }
  int64_t row_bytes() const { return static_cast<int64_t>(sizeof(RowHeader)) + 4ll * floats(); }
  int64_t encoded_bytes() const { return kEncodedHeaderBytes + 4ll * floats(); }
  int64_t encoded_bytes_without_state() const { return kEncodedHeaderBytes + 4ll * dim; }

  static constexpr int kEncodedHeaderBytes = 16;
};

// Rows on their way between tiers.
class RowBuffer {
 public:
  RowBuffer() = default;
  // `rows` rows with headers of zeros; their floats are not initialized.
  RowBuffer(const RowLayout& layout, size_t rows)
      : floats_per_row_(static_cast<size_t>(layout.floats())),
        headers_(rows),
        floats_(rows * floats_per_row_) {}

  size_t size() const { return headers_.size(); }
  Row operator[](size_t i) { return {&headers_[i], floats_.data() + i * floats_per_row_}; }

 private:
  size_t floats_per_row_ = 0;
  std::vector<RowHeader> headers_;
  UninitializedVector<float> floats_;
};

// Appends the row's SSD encoding to *out.
void EncodeRow(const RowLayout& layout, uint32_t state_epoch, const Row& row, std::string* out);

// Reads an SSD encoding into `row`, except score, flags and epoch. *fresh_state says that the value
// holds state of another epoch or none, so that the caller must initialize it. DataLoss when the
// size fits neither form.
absl::Status DecodeRow(const RowLayout& layout, uint32_t state_epoch, absl::string_view value,
                       const Row& row, bool* fresh_state);

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_ROW_H_
