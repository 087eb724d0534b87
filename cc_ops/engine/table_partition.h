// What a TieredTable keeps per partition. Only its own sources include this.

#ifndef TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_
#define TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/tiered_table.h"
#include "cc_ops/engine/uninitialized_vector.h"

namespace tf_hps {

struct TieredTable::Partition {
  // Guards `rows` between lookups, which read, and the holder of the table's training lock, the
  // only one to change them. That one reads without it.
  Gate gate;
  std::unique_ptr<DramPartition> rows;
  int64_t accounted_bytes = 0;

  // What a prefetch that is reading has to know; see table_prefetch.cc.
  Mutex written_mu;
  bool reading_ahead ABSL_GUARDED_BY(written_mu) = false;
  std::vector<int64_t> written ABSL_GUARDED_BY(written_mu);  // keys, since it began
};

// Does that when it goes out of scope: to be declared before locks are taken, and told of the table
// once that is known to be open.
class TieredTable::PressureReport {
 public:
  PressureReport() = default;
  ~PressureReport() {
    if (table_ != nullptr) table_->ReportPressure();
  }
  PressureReport(const PressureReport&) = delete;
  PressureReport& operator=(const PressureReport&) = delete;

  void Of(TieredTable* table) { table_ = table; }

 private:
  TieredTable* table_ = nullptr;
};

// A row that was read from SSD.
struct TieredTable::FetchedRow {
  int64_t key;
  uint64_t hash;
  Row row;
};

// A row of the dram tier that is to be written.
struct TieredTable::DirtyRow {
  int64_t key;
  Row row;
};

// What a training operation has ready for a partition before it changes anything.
struct TieredTable::Prepared {
  std::vector<DramPartition::Position> positions;  // [uniques] or empty; kNone: among the misses
  int64_t moves = 0;                               // of the partition when it had those positions
  std::vector<int32_t> misses;                     // unique keys to fetch
  RowBuffer fetched;                               // [misses]
  bool pinned = false;                             // the rows at `positions` are
  UninitializedVector<float> sums;                 // [uniques, dim]: summed gradients
  std::vector<bool> skip;                          // [uniques] or empty: no update
};

// A batch of keys on its way through a training operation.
struct TieredTable::Batch {
  Batch(absl::Span<const int64_t> keys, int64_t partitions, ParallelFor parallel_for)
      : keys(keys, static_cast<uint32_t>(partitions), parallel_for),
        prepared(static_cast<size_t>(partitions)) {}

  bool HasMisses() const {
    return std::any_of(prepared.begin(), prepared.end(),
                       [](const Prepared& of_partition) { return !of_partition.misses.empty(); });
  }

  const KeyBatch keys;
  std::vector<Prepared> prepared;  // [partitions]
};

// Up to so many keys, what happens in memory takes one thread less time than it takes to wake
// others.
inline constexpr size_t kSerialKeys = 8192;

// Calls work(dim), for the usual dims with a constant: loops over so many floats then become a few
// vector instructions.
template <typename Work>
void WithDim(int dim, Work work) {
  switch (dim) {
    case 8:
      return work(std::integral_constant<int, 8>());
    case 16:
      return work(std::integral_constant<int, 16>());
    case 32:
      return work(std::integral_constant<int, 32>());
    case 64:
      return work(std::integral_constant<int, 64>());
    default:
      return work(dim);
  }
}

template <typename Dim>
void CopyFloats(const float* __restrict in, Dim dim, float* __restrict out) {
  std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
}

// Changes each row that a partition has of the batch, all of which are in the dram tier now:
// change(u, row) returns whether it did. It looks at so many bytes of a row's floats.
template <typename Change>
void TieredTable::ChangeRows(int64_t p, int64_t bytes, Batch* batch, Change change) {
  const auto uniques = batch->keys.uniques(p);
  if (uniques.empty()) return;
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  Prepared& prepared = batch->prepared[p];
  ExclusivePass pass(&partition.gate);
  InsertFetched(p, batch);
  const std::vector<DramPartition::Position>& positions = prepared.positions;
  const auto prefetch = [&](int64_t u) { rows.PrefetchRow(positions[u], bytes); };
  VisitPrefetched(static_cast<int64_t>(positions.size()), prefetch, [&](int64_t u) {
    const Row row = rows.RowAt(positions[u]);
    if (!change(u, row)) return;
    if (!(row.header->flags & kRowDirty)) {
      row.header->flags |= kRowDirty;
      rows.NoteDirty(uniques[u].hash);
    }
    row.header->flags &= ~kRowAwaited;
  });
}

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TABLE_PARTITION_H_
