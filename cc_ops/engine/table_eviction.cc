// What leaves the dram tier of a TieredTable, and how much it may hold. The training lock is held
// throughout.

#include <algorithm>
#include <string>

#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {

absl::Status TieredTable::WriteRows(int64_t p, absl::Span<const DramPartition::Entry> entries) {
  std::vector<DirtyRow> dirty;
  dirty.reserve(entries.size());
  for (const DramPartition::Entry& entry : entries) {
    dirty.push_back({entry.key, partitions_[p].rows->RowAt(entry.position)});
  }
  const absl::Status status = WriteToInstance(InstanceOf(p), &dirty);
  NoteWritten(p, [&](std::vector<int64_t>* keys) {
    for (const DirtyRow& row : dirty) keys->push_back(row.key);
  });
  return status;
}

absl::Status TieredTable::WriteToInstance(int instance, std::vector<DirtyRow>* dirty) {
  // In ascending order: then LevelDB's buffer takes neighbors one after the other.
  std::sort(dirty->begin(), dirty->end(),
            [](const DirtyRow& x, const DirtyRow& y) { return x.key < y.key; });
  std::string encoded;
  const size_t batch_rows =
      static_cast<size_t>(std::max<int64_t>(1, SsdTier::kBatchBytes / EntryBytes(layout_)));
  for (size_t begin = 0; begin < dirty->size(); begin += batch_rows) {
    const auto chunk = absl::MakeConstSpan(*dirty).subspan(begin, batch_rows);
    SsdTier::Batch batch;
    for (const DirtyRow& each : chunk) {
      encoded.clear();
      EncodeRow(layout_, state_epoch_, each.row, &encoded);
      batch.Put(id_, each.key, encoded);
    }
    TF_HPS_RETURN_IF_ERROR(context_->ssd->Write(instance, &batch));
    int64_t first_writes = 0;
    for (const DirtyRow& each : chunk) {
      RowHeader* const header = each.row.header;
      if (!(header->flags & kRowOnSsd)) ++first_writes;
      header->flags = (header->flags | kRowOnSsd) & ~kRowDirty;
    }
    ssd_rows_.fetch_add(first_writes, std::memory_order_relaxed);
    Counters::Add(&counters_.ssd_inserts, first_writes);
    Counters::Add(&counters_.ssd_writes, static_cast<int64_t>(chunk.size()));
  }
  return absl::OkStatus();
}

absl::Status TieredTable::Evict(int64_t p, absl::Span<const DramPartition::Entry> victims) {
  StageTimer timer(context_.get(), Stage::kEvict);
  Partition& partition = partitions_[p];
  std::vector<DramPartition::Entry> dirty;
  for (const DramPartition::Entry& entry : victims) {
    if (partition.rows->RowAt(entry.position).header->flags & kRowDirty) dirty.push_back(entry);
  }
  TF_HPS_RETURN_IF_ERROR(WriteRows(p, dirty));
  ExclusivePass pass(&partition.gate);
  for (const DramPartition::Entry& entry : victims) {
    partition.rows->Erase(entry.key, HashKey(entry.key));
  }
  Counters::Add(&counters_.dram_evictions, static_cast<int64_t>(victims.size()));
  return absl::OkStatus();
}

absl::Status TieredTable::MakeRoom(int64_t p, int64_t slots) {
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  while (rows.free_slots() < slots) {
    {
      ExclusivePass pass(&partition.gate);
      if (rows.Grow(/*overdraw=*/false)) continue;
    }
    std::vector<DramPartition::Entry> victims;
    rows.PickVictims(std::max(slots - rows.free_slots(), rows.size() / 32), &victims);
    if (victims.empty()) break;  // all pinned: the commit overdraws, then trims
    TF_HPS_RETURN_IF_ERROR(Evict(p, victims));
  }
  return absl::OkStatus();
}

absl::Status TieredTable::Trim(int64_t p) {
  Partition& partition = partitions_[p];
  DramPartition& rows = *partition.rows;
  while (rows.bytes() > rows.limit() && rows.capacity() > 0) {
    // All at once: to release slabs costs a pass over all rows.
    const int64_t slabs = rows.SlabsBeyondLimit();
    const int64_t slots = slabs * rows.rows_per_slab();
    while (rows.free_slots() < slots) {
      std::vector<DramPartition::Entry> victims;
      rows.PickVictims(slots - rows.free_slots(), &victims);
      TF_HPS_RETURN_IF_ERROR(Evict(p, victims));
    }
    ExclusivePass pass(&partition.gate);
    rows.ReleaseSlabs(slabs);
  }
  return absl::OkStatus();
}

void TieredTable::UpdateUsage(int64_t p) {
  Partition& partition = partitions_[p];
  const int64_t bytes = partition.rows->bytes();
  dram_bytes_.fetch_add(bytes - partition.accounted_bytes, std::memory_order_relaxed);
  partition.accounted_bytes = bytes;
  if (partition.rows->TakeHungry()) hungry_.store(true, std::memory_order_relaxed);
}

void TieredTable::SetQuota(int64_t bytes) {
  quota_.store(bytes, std::memory_order_relaxed);
  if (dram_bytes() > 0) hungry_.store(false, std::memory_order_relaxed);
}

void TieredTable::TrimIfIdle() {
  SharedPass pass(&context_->gate);
  if (!CheckOpen().ok() || !training_mu_.TryLock()) return;
  for (int64_t p = 0; p < partition_count_; ++p) {
    partitions_[p].rows->set_limit(quota() / partition_count_);
    Trim(p).IgnoreError();  // comes again at the start of the next training operation
    UpdateUsage(p);
  }
  training_mu_.Unlock();
}

absl::Status TieredTable::FlushDirty(ParallelFor parallel_for) {
  const int64_t instances = context_->ssd->instances();
  return ParallelForStatus(parallel_for, instances, [&](int64_t instance) {
    context_->gate.AssertExclusive();
    return FlushInstance(static_cast<int>(instance));
  });
}

absl::Status TieredTable::FlushInstance(int instance) {
  // Of many partitions together: their keys lie between each other's.
  constexpr size_t kRowsAtATime = 1 << 16;
  const int64_t partitions = partition_count_ / context_->ssd->instances();
  const int64_t first = instance * partitions;
  std::vector<DirtyRow> dirty;
  std::vector<DramPartition::Entry> entries;
  int64_t begin = first;
  for (int64_t p = first; p < first + partitions; ++p) {
    entries.clear();
    partitions_[p].rows->ListDirty(&entries);
    for (const DramPartition::Entry& entry : entries) {
      dirty.push_back({entry.key, partitions_[p].rows->RowAt(entry.position)});
    }
    if (dirty.size() < kRowsAtATime && p + 1 < first + partitions) continue;
    TF_HPS_RETURN_IF_ERROR(WriteToInstance(instance, &dirty));
    for (; begin <= p; ++begin) partitions_[begin].rows->ForgetDirty();
    dirty.clear();
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
