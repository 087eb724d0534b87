// Reads of a TieredTable: nothing here changes a row.

#include <cstring>
#include <utility>

#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {
namespace {

// How many keys ahead the index is prefetched.
constexpr size_t kPrefetchDistance = 8;

}  // namespace

absl::Status TieredTable::Lookup(absl::Span<const int64_t> keys, float* out,
                                 ParallelFor parallel_for) {
  {
    SharedPass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    StageTimer timer(context_.get(), Stage::kRead);
    const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
    TF_HPS_RETURN_IF_ERROR(ParallelForStatus(parallel_for, partition_count_, [&](int64_t p) {
      context_->gate.AssertShared();
      return LookupPartition(batch, p, out);
    }));
  }
  if (context_->cache_reads) ReportPressure();
  return absl::OkStatus();
}

void TieredTable::FindRows(int64_t p, absl::Span<const KeyBatch::Unique> uniques,
                           std::vector<DramPartition::Position>* positions,
                           std::vector<int32_t>* misses) {
  DramPartition& rows = *partitions_[p].rows;
  positions->resize(uniques.size());
  for (size_t u = 0; u < uniques.size(); ++u) {
    if (u + kPrefetchDistance < uniques.size()) {
      rows.PrefetchBucket(uniques[u + kPrefetchDistance].hash);
    }
    (*positions)[u] = rows.Find(uniques[u].key, uniques[u].hash);
    if ((*positions)[u] == DramPartition::kNone) misses->push_back(static_cast<int32_t>(u));
  }
  Counters& counters = partitions_[p].counters;
  const int64_t missed = static_cast<int64_t>(misses->size());
  Counters::Add(&counters.dram_hits, static_cast<int64_t>(uniques.size()) - missed);
  Counters::Add(&counters.dram_misses, missed);
}

absl::Status TieredTable::LookupPartition(const KeyBatch& batch, int64_t p, float* out) {
  const auto uniques = batch.uniques(p);
  if (uniques.empty()) return absl::OkStatus();
  Prepared prepared;
  Partition& partition = partitions_[p];
  {
    MutexLock lock(&partition.mu);
    FindRows(p, uniques, &prepared.positions, &prepared.misses);
    for (const KeyBatch::Member& member : batch.members(p)) {
      const DramPartition::Position position = prepared.positions[member.unique];
      if (position == DramPartition::kNone) continue;
      ReadWeights(partition.rows->RowAt(position), out + int64_t{member.index} * dim_);
    }
  }
  if (prepared.misses.empty()) return absl::OkStatus();
  if (!context_->cache_reads) return LookupMisses(batch, p, &prepared, out);
  MutexLock training(&training_mu_);
  TF_HPS_RETURN_IF_ERROR(LookupMisses(batch, p, &prepared, out));
  CacheFetched(batch, p, prepared);
  return absl::OkStatus();
}

absl::Status TieredTable::LookupMisses(const KeyBatch& batch, int64_t p, Prepared* prepared,
                                       float* out) {
  TF_HPS_RETURN_IF_ERROR(Fetch(p, batch.uniques(p), prepared));
  std::vector<const char*> rows(batch.uniques(p).size(), nullptr);
  for (size_t i = 0; i < prepared->misses.size(); ++i) {
    rows[prepared->misses[i]] =
        prepared->fetched.data() + static_cast<int64_t>(i) * layout_.row_bytes();
  }
  for (const KeyBatch::Member& member : batch.members(p)) {
    const char* row = rows[member.unique];
    if (row != nullptr) ReadWeights(row, out + int64_t{member.index} * dim_);
  }
  return absl::OkStatus();
}

void TieredTable::CacheFetched(const KeyBatch& batch, int64_t p, const Prepared& prepared) {
  Partition& partition = partitions_[p];
  std::vector<std::pair<uint64_t, const char*>> rows;  // hash and row, of those to keep
  for (size_t i = 0; i < prepared.misses.size(); ++i) {
    const KeyBatch::Unique& unique = batch.uniques(p)[prepared.misses[i]];
    const char* row = prepared.fetched.data() + static_cast<int64_t>(i) * layout_.row_bytes();
    const bool on_ssd = HeaderOf(row)->flags & kRowOnSsd;
    if (on_ssd && partition.rows->Find(unique.key, unique.hash) == DramPartition::kNone) {
      rows.emplace_back(unique.hash, row);
    }
  }
  partition.rows->set_limit(quota() / partition_count_);
  // Room that cannot be had is no error here: the rows are on SSD.
  MakeRoom(p, static_cast<int64_t>(rows.size())).IgnoreError();
  {
    MutexLock lock(&partition.mu);
    for (const auto& [hash, row] : rows) {
      if (partition.rows->free_slots() == 0) break;
      InsertRow(p, hash, row);
    }
  }
  Trim(p).IgnoreError();  // the index may have grown
  UpdateUsage(p);
}

absl::Status TieredTable::Contains(absl::Span<const int64_t> keys, bool* out,
                                   ParallelFor parallel_for) {
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
  return ParallelForStatus(parallel_for, partition_count_, [&](int64_t p) {
    context_->gate.AssertShared();
    return ContainsPartition(batch, p, out);
  });
}

absl::Status TieredTable::ContainsPartition(const KeyBatch& batch, int64_t p, bool* out) {
  const auto uniques = batch.uniques(p);
  std::vector<char> present(uniques.size());
  std::vector<int32_t> misses;
  std::vector<int64_t> keys;
  {
    MutexLock lock(&partitions_[p].mu);
    for (size_t u = 0; u < uniques.size(); ++u) {
      present[u] =
          partitions_[p].rows->Find(uniques[u].key, uniques[u].hash) != DramPartition::kNone;
      if (present[u]) continue;
      misses.push_back(static_cast<int32_t>(u));
      keys.push_back(uniques[u].key);
    }
  }
  const auto found = [&](int64_t i, absl::string_view) {
    present[misses[i]] = 1;
    return absl::OkStatus();
  };
  TF_HPS_RETURN_IF_ERROR(context_->ssd->Get(InstanceOf(p), id_, keys, found));
  for (const KeyBatch::Member& member : batch.members(p)) {
    out[member.index] = present[member.unique] != 0;
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
