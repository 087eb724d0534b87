// Operations of a TieredTable that change rows, in two phases: prepare, which may fail and changes
// nothing, and commit.

#include <algorithm>
#include <cstring>

#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {

absl::Status TieredTable::Prepare(const KeyBatch& batch, int64_t p, Prepared* prepared) {
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  rows.set_limit(quota() / partition_count_);
  if (rows.bytes() > rows.limit()) TF_HPS_RETURN_IF_ERROR(Trim(p));
  const auto uniques = batch.uniques(p);
  if (uniques.empty()) return absl::OkStatus();
  FindRows(p, uniques, &prepared->positions, &prepared->misses);
  TF_HPS_RETURN_IF_ERROR(Fetch(p, uniques, prepared));
  for (const DramPartition::Position position : prepared->positions) {
    if (position != DramPartition::kNone) HeaderOf(rows.RowAt(position))->flags |= kRowPinned;
  }
  prepared->pinned = true;
  return MakeRoom(p, static_cast<int64_t>(prepared->misses.size()));
}

void TieredTable::Abandon(int64_t p, Prepared* prepared) {
  if (prepared->pinned) Unpin(p, *prepared);
  UpdateUsage(p);
}

void TieredTable::Unpin(int64_t p, const Prepared& prepared) {
  DramPartition& rows = *partitions_[p].rows;
  for (const DramPartition::Position position : prepared.positions) {
    if (position != DramPartition::kNone) HeaderOf(rows.RowAt(position))->flags &= ~kRowPinned;
  }
}

void TieredTable::CommitPartition(const KeyBatch& batch, int64_t p, Prepared* prepared,
                                  Mutator mutate) {
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  const auto uniques = batch.uniques(p);
  if (uniques.empty()) return;
  {
    MutexLock lock(&partition.mu);
    for (size_t u = 0; u < uniques.size(); ++u) {
      const DramPartition::Position position = prepared->positions[u];
      if (position == DramPartition::kNone) continue;
      char* row = rows.RowAt(position);
      mutate(static_cast<int64_t>(u), row);
      if (HeaderOf(row)->flags & kRowDirty) rows.NoteDirty(position);
      rows.Touch(row);
    }
    Unpin(p, *prepared);
    int64_t created = 0;
    for (size_t i = 0; i < prepared->misses.size(); ++i) {
      char* row = prepared->fetched.data() + static_cast<int64_t>(i) * layout_.row_bytes();
      const int32_t u = prepared->misses[i];
      if (!(HeaderOf(row)->flags & kRowOnSsd)) ++created;
      mutate(u, row);
      if (rows.free_slots() == 0) rows.Grow(/*overdraw=*/true);
      InsertRow(p, uniques[u].hash, row);
    }
    rows_.fetch_add(created, std::memory_order_relaxed);
  }
  // A row that cannot be written stays in dram, beyond the limit, and the next operation fails
  // before it changes anything.
  Trim(p).IgnoreError();
  UpdateUsage(p);
}

void TieredTable::InsertRow(int64_t p, uint64_t hash, const char* row) {
  Partition& partition = partitions_[p];
  const DramPartition::Position position = partition.rows->Insert(HeaderOf(row)->key, hash);
  char* slot = partition.rows->RowAt(position);
  const RowHeader fresh = *HeaderOf(slot);
  std::memcpy(slot, row, static_cast<size_t>(layout_.row_bytes()));
  HeaderOf(slot)->score = fresh.score;
  HeaderOf(slot)->flags |= fresh.flags;
  if (HeaderOf(slot)->flags & kRowDirty) partition.rows->NoteDirty(position);
  Counters::Add(&partition.counters.dram_inserts, 1);
}

absl::Status TieredTable::Mutate(
    absl::Span<const int64_t> keys, ParallelFor parallel_for,
    absl::FunctionRef<void(const KeyBatch& batch, int64_t p, Prepared* prepared)> commit) {
  {
    SharedPass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    StageTimer timer(context_.get(), Stage::kUpdate);
    MutexLock training(&training_mu_);
    const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
    std::vector<Prepared> prepared(static_cast<size_t>(partition_count_));
    const absl::Status status = ParallelForStatus(parallel_for, partition_count_, [&](int64_t p) {
      context_->gate.AssertShared();
      return Prepare(batch, p, &prepared[p]);
    });
    parallel_for(partition_count_, [&](int64_t p) {
      if (status.ok()) {
        commit(batch, p, &prepared[p]);
      } else {
        Abandon(p, &prepared[p]);
      }
    });
    TF_HPS_RETURN_IF_ERROR(status);
  }
  ReportPressure();
  return absl::OkStatus();
}

void TieredTable::ReportPressure() {
  // The quota may have shrunk while the operation went on.
  if (dram_bytes() > quota()) TrimIfIdle();
  if (hungry()) context_->balancer.OnPressure();
}

absl::Status TieredTable::LookupOrCreate(absl::Span<const int64_t> keys, float* out,
                                         ParallelFor parallel_for) {
  const auto commit = [&](const KeyBatch& batch, int64_t p, Prepared* prepared) {
    context_->gate.AssertShared();
    std::vector<uint32_t> counts(batch.uniques(p).size(), 0);
    std::vector<int32_t> first(batch.uniques(p).size(), -1);
    for (const KeyBatch::Member& member : batch.members(p)) {
      if (counts[member.unique]++ == 0) first[member.unique] = member.index;
    }
    CommitPartition(batch, p, prepared, [&](int64_t u, char* row) {
      RowHeader* header = HeaderOf(row);
      const uint64_t frequency = uint64_t{header->frequency} + counts[u];
      header->frequency = static_cast<uint32_t>(std::min<uint64_t>(frequency, UINT32_MAX));
      header->flags |= kRowDirty;
      ReadWeights(row, out + int64_t{first[u]} * dim_);
    });
    const size_t bytes = sizeof(float) * static_cast<size_t>(dim_);
    for (const KeyBatch::Member& member : batch.members(p)) {
      const int32_t source = first[member.unique];
      if (member.index == source) continue;
      std::memcpy(out + int64_t{member.index} * dim_, out + int64_t{source} * dim_, bytes);
    }
  };
  return Mutate(keys, parallel_for, commit);
}

absl::Status TieredTable::Upsert(absl::Span<const int64_t> keys, const float* values,
                                 ParallelFor parallel_for) {
  const auto commit = [&](const KeyBatch& batch, int64_t p, Prepared* prepared) {
    context_->gate.AssertShared();
    std::vector<int32_t> last(batch.uniques(p).size());
    for (const KeyBatch::Member& member : batch.members(p)) last[member.unique] = member.index;
    CommitPartition(batch, p, prepared, [&](int64_t u, char* row) {
      CatchUp(row);
      std::memcpy(WeightsOf(row), values + int64_t{last[u]} * dim_,
                  sizeof(float) * static_cast<size_t>(dim_));
      HeaderOf(row)->version += 1;
      HeaderOf(row)->flags |= kRowDirty;
    });
  };
  return Mutate(keys, parallel_for, commit);
}

absl::Status TieredTable::Remove(absl::Span<const int64_t> keys, ParallelFor parallel_for) {
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  MutexLock training(&training_mu_);
  const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
  return ParallelForStatus(parallel_for, partition_count_, [&](int64_t p) {
    context_->gate.AssertShared();
    return RemovePartition(batch, p);
  });
}

absl::Status TieredTable::RemovePartition(const KeyBatch& batch, int64_t p) {
  Partition& partition = partitions_[p];
  const auto uniques = batch.uniques(p);
  std::vector<int64_t> absent;  // from dram
  std::vector<DramPartition::Position> present;
  SsdTier::Batch removals;
  int64_t on_ssd = 0;
  int64_t only_in_dram = 0;
  for (const KeyBatch::Unique& unique : uniques) {
    const DramPartition::Position position = partition.rows->Find(unique.key, unique.hash);
    if (position == DramPartition::kNone) {
      absent.push_back(unique.key);
      continue;
    }
    present.push_back(position);
    if (!(HeaderOf(partition.rows->RowAt(position))->flags & kRowOnSsd)) {
      ++only_in_dram;
      continue;
    }
    removals.Remove(id_, unique.key);
    ++on_ssd;
  }
  const auto found = [&](int64_t i, absl::string_view) {
    removals.Remove(id_, absent[i]);
    ++on_ssd;
    return absl::OkStatus();
  };
  const int instance = InstanceOf(p);
  TF_HPS_RETURN_IF_ERROR(context_->ssd->Get(instance, id_, absent, found));
  const int64_t removed = on_ssd + only_in_dram;
  if (!removals.empty()) TF_HPS_RETURN_IF_ERROR(context_->ssd->Write(instance, &removals));
  MutexLock lock(&partition.mu);
  for (const DramPartition::Position position : present) partition.rows->Erase(position);
  ssd_rows_.fetch_sub(on_ssd, std::memory_order_relaxed);
  rows_.fetch_sub(removed, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace tf_hps
