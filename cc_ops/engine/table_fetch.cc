// Reading a batch's rows from SSD.
//
// What all partitions of an instance miss is read together, in ascending order: that is few calls,
// and the searches in a file's index and filters have company while they wait for memory.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {
namespace {

// Rows that one task reads.
constexpr size_t kSliceRows = 1024;

// A row that is wanted, and where it goes: to prepared[p].fetched, as the i-th of its misses.
struct WantedRow {
  int64_t key;
  int32_t p;
  int32_t i;
};

struct Slice {
  int instance;
  absl::Span<const WantedRow> rows;
};

}  // namespace

absl::Status TieredTable::ReadMisses(Batch* batch, ParallelFor parallel_for) {
  const int64_t instances = context_->ssd->instances();
  const int64_t partitions = partition_count_ / instances;
  std::vector<std::vector<WantedRow>> wanted(static_cast<size_t>(instances));
  parallel_for(instances, [&](int64_t instance) {
    std::vector<WantedRow>& rows = wanted[instance];
    for (int64_t p = instance * partitions; p < (instance + 1) * partitions; ++p) {
      Prepared& prepared = batch->prepared[p];
      const auto uniques = batch->keys.uniques(p);
      prepared.fetched = RowBuffer(layout_, prepared.misses.size());
      for (size_t i = 0; i < prepared.misses.size(); ++i) {
        rows.push_back(
            {uniques[prepared.misses[i]].key, static_cast<int32_t>(p), static_cast<int32_t>(i)});
      }
    }
    std::sort(rows.begin(), rows.end(),
              [](const WantedRow& x, const WantedRow& y) { return x.key < y.key; });
  });
  if (ssd_rows_.load(std::memory_order_relaxed) == 0) return absl::OkStatus();
  std::vector<Slice> slices;
  for (size_t begin = 0, more = 1; more > 0; begin += kSliceRows) {
    more = 0;  // those of different instances beside each other
    for (int64_t instance = 0; instance < instances; ++instance) {
      if (begin >= wanted[instance].size()) continue;
      const auto rows = absl::MakeConstSpan(wanted[instance]).subspan(begin, kSliceRows);
      slices.push_back({static_cast<int>(instance), rows});
      ++more;
    }
  }
  return ParallelForStatus(parallel_for, static_cast<int64_t>(slices.size()), [&](int64_t s) {
    context_->gate.AssertShared();
    StageTimer timer(context_.get(), Stage::kFetch);
    const absl::Span<const WantedRow> rows = slices[s].rows;
    std::vector<int64_t> keys(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) keys[i] = rows[i].key;
    return context_->ssd->Get(
        slices[s].instance, id_, keys, [&](int64_t i, absl::string_view value) {
          return DecodeFetched(keys[i], value, batch->prepared[rows[i].p].fetched[rows[i].i]);
        });
  });
}

absl::Status TieredTable::DecodeFetched(int64_t key, absl::string_view value,
                                        const Row& row) const {
  bool fresh_state = false;
  const absl::Status status = DecodeRow(layout_, state_epoch_, value, row, &fresh_state);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("table \"", name_, "\" in ", context_->path,
                                                    ", key ", key, ": ", status.message()));
  }
  if (fresh_state) optimizer_.InitState(row.weights + dim_, dim_);
  row.header->flags = kRowOnSsd;
  return absl::OkStatus();
}

void TieredTable::InitializeOthers(int64_t p, Batch* batch) {
  Prepared& prepared = batch->prepared[p];
  const auto uniques = batch->keys.uniques(p);
  int64_t created = 0;
  for (size_t i = 0; i < prepared.misses.size(); ++i) {
    const Row row = prepared.fetched[i];
    if (row.header->flags & kRowOnSsd) continue;
    InitializeRow(uniques[prepared.misses[i]].key, row);
    ++created;
  }
  Counters::Add(&counters_.ssd_hits, static_cast<int64_t>(prepared.misses.size()) - created);
  Counters::Add(&counters_.ssd_misses, created);
}

}  // namespace tf_hps
