// Bringing rows of coming batches up from SSD.
//
// The rows are read beside what training does: only then does the training lock keep other changes
// out, while they are put into the dram tier. A row that training brought up, changed and evicted
// again in between is on SSD in a newer form than was read, and is left out: while a partition is
// read ahead, it notes the keys of all that is written to SSD.

#include <algorithm>
#include <utility>

#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {

void TieredTable::NoteWritten(int64_t p, absl::FunctionRef<void(std::vector<int64_t>* keys)> add) {
  Partition& partition = partitions_[p];
  MutexLock lock(&partition.written_mu);
  if (partition.reading_ahead) add(&partition.written);
}

void TieredTable::BeginReadingAhead(int64_t p) {
  Partition& partition = partitions_[p];
  MutexLock lock(&partition.written_mu);
  partition.reading_ahead = true;
}

std::vector<int64_t> TieredTable::EndReadingAhead(int64_t p) {
  Partition& partition = partitions_[p];
  MutexLock lock(&partition.written_mu);
  partition.reading_ahead = false;
  std::vector<int64_t> written = std::exchange(partition.written, {});
  std::sort(written.begin(), written.end());
  return written;
}

absl::Status TieredTable::Prefetch(absl::Span<const int64_t> keys, ParallelFor parallel_for) {
  PressureReport report;
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  report.Of(this);
  StageTimer timer(context_.get(), Stage::kPrefetch);
  MutexLock prefetch(&prefetch_mu_);
  Batch batch(keys, partition_count_, parallel_for);
  parallel_for(partition_count_, [&](int64_t p) { FindAhead(p, &batch); });
  const absl::Status status = ReadMisses(&batch, parallel_for);
  MutexLock training(&training_mu_);
  parallel_for(partition_count_, [&](int64_t p) {
    context_->gate.AssertShared();
    const std::vector<int64_t> written = EndReadingAhead(p);
    if (status.ok()) KeepAhead(p, written, &batch);
  });
  return status;
}

void TieredTable::FindAhead(int64_t p, Batch* batch) {
  if (batch->keys.uniques(p).empty()) return;
  BeginReadingAhead(p);
  SharedPass pass(&partitions_[p].gate);
  FindRows(p, batch);
}

void TieredTable::KeepAhead(int64_t p, absl::Span<const int64_t> written, Batch* batch) {
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  Prepared& prepared = batch->prepared[p];
  const auto uniques = batch->keys.uniques(p);
  if (uniques.empty()) return;
  std::vector<FetchedRow> fetched;
  for (size_t i = 0; i < prepared.misses.size(); ++i) {
    const KeyBatch::Unique& unique = uniques[prepared.misses[i]];
    const Row row = prepared.fetched[i];
    const bool is_there = row.header->flags & kRowOnSsd;
    if (!is_there || std::binary_search(written.begin(), written.end(), unique.key)) continue;
    row.header->flags |= kRowAwaited;
    fetched.push_back({unique.key, unique.hash, row});
  }
  // Those that are here are wanted as well; they are not to make room for the others.
  const auto search_of = [&](int64_t u) -> RowSearch {
    return {uniques[u].key, uniques[u].hash, &rows};
  };
  const auto locate = [](const DramPartition& rows, DramPartition::Position position) {
    RowHeader* const header =
        position == DramPartition::kNone ? nullptr : rows.RowAt(position).header;
    if (header != nullptr) PrefetchLine(header);
    return header;
  };
  const auto found = [](int64_t, RowHeader* header) {
    if (header != nullptr) header->flags |= kRowAwaited;
  };
  FindAll(0, static_cast<int64_t>(uniques.size()), search_of, locate, found);
  Counters::Add(&counters_.dram_prefetched, KeepRows(p, fetched));
}

}  // namespace tf_hps
