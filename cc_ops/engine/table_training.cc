// Operations of a TieredTable that change rows, in two phases: prepare, which may fail and changes
// nothing, and commit.

#include <algorithm>
#include <cstring>

#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {
namespace {

// Keys whose rows one task reads.
constexpr int64_t kReadKeys = 4096;

}  // namespace

absl::Status TieredTable::Prepare(Batch* batch, ParallelFor search_for, ParallelFor parallel_for) {
  TF_HPS_RETURN_IF_ERROR(ForEachPartition(search_for, [&](int64_t p) {
    context_->gate.AssertShared();
    return Search(p, batch);
  }));
  if (!batch->HasMisses()) return absl::OkStatus();
  TF_HPS_RETURN_IF_ERROR(ReadMisses(batch, parallel_for));
  return ForEachPartition(parallel_for, [&](int64_t p) {
    context_->gate.AssertShared();
    return MakeReady(p, batch);
  });
}

absl::Status TieredTable::Search(int64_t p, Batch* batch) {
  DramPartition& rows = *partitions_[p].rows;
  Prepared& prepared = batch->prepared[p];
  rows.set_limit(quota() / partition_count_);
  if (rows.bytes() > rows.limit()) TF_HPS_RETURN_IF_ERROR(Trim(p));
  if (batch->keys.uniques(p).empty()) return absl::OkStatus();
  if (prepared.positions.empty() || prepared.moves != rows.moves()) {
    FindRows(p, batch);
    Counters::Add(&counters_.dram_misses, static_cast<int64_t>(prepared.misses.size()));
  }
  return absl::OkStatus();
}

absl::Status TieredTable::MakeReady(int64_t p, Batch* batch) {
  const int64_t misses = static_cast<int64_t>(batch->prepared[p].misses.size());
  InitializeOthers(p, batch);
  if (partitions_[p].rows->free_slots() >= misses) return absl::OkStatus();
  Pin(p, batch);
  return MakeRoom(p, misses);
}

void TieredTable::FindRows(int64_t p, Batch* batch) {
  const DramPartition& rows = *partitions_[p].rows;
  const auto uniques = batch->keys.uniques(p);
  Prepared& prepared = batch->prepared[p];
  prepared.positions.resize(uniques.size());
  const auto search_of = [&](int64_t u) -> RowSearch {
    return {uniques[u].key, uniques[u].hash, &rows};
  };
  const auto locate = [](const DramPartition&, DramPartition::Position position) {
    return position;
  };
  const auto found = [&](int64_t u, DramPartition::Position position) {
    prepared.positions[u] = position;
    if (position == DramPartition::kNone) prepared.misses.push_back(static_cast<int32_t>(u));
  };
  FindAll(0, static_cast<int64_t>(uniques.size()), search_of, locate, found);
}

void TieredTable::Abandon(int64_t p, Batch* batch) {
  Unpin(p, batch);
  UpdateUsage(p);
}

void TieredTable::Pin(int64_t p, Batch* batch) {
  DramPartition& rows = *partitions_[p].rows;
  for (const DramPartition::Position position : batch->prepared[p].positions) {
    if (position != DramPartition::kNone) rows.RowAt(position).header->flags |= kRowPinned;
  }
  batch->prepared[p].pinned = true;
}

void TieredTable::Unpin(int64_t p, Batch* batch) {
  if (!batch->prepared[p].pinned) return;
  DramPartition& rows = *partitions_[p].rows;
  for (const DramPartition::Position position : batch->prepared[p].positions) {
    if (position != DramPartition::kNone) rows.RowAt(position).header->flags &= ~kRowPinned;
  }
  batch->prepared[p].pinned = false;
}

void TieredTable::InsertFetched(int64_t p, Batch* batch) {
  DramPartition& rows = *partitions_[p].rows;
  Prepared& prepared = batch->prepared[p];
  int64_t created = 0;
  for (size_t i = 0; i < prepared.misses.size(); ++i) {
    const Row row = prepared.fetched[i];
    const int32_t u = prepared.misses[i];
    const KeyBatch::Unique& unique = batch->keys.uniques(p)[u];
    if (!(row.header->flags & kRowOnSsd)) ++created;
    if (rows.free_slots() == 0) rows.Grow(/*overdraw=*/true);
    prepared.positions[u] = InsertRow(p, unique.key, unique.hash, row);
  }
  prepared.misses = {};
  prepared.fetched = {};
  // Making room moved rows, but none of these, which were pinned.
  prepared.moves = rows.moves();
  rows_.fetch_add(created, std::memory_order_relaxed);
}

DramPartition::Position TieredTable::InsertRow(int64_t p, int64_t key, uint64_t hash,
                                               const Row& row) {
  DramPartition& rows = *partitions_[p].rows;
  const DramPartition::Position position = rows.Insert(key, hash);
  const Row slot = rows.RowAt(position);
  const RowHeader fresh = *slot.header;
  *slot.header = *row.header;
  slot.header->epoch = fresh.epoch;
  slot.header->flags |= fresh.flags;
  rows.NotePast(slot.header);
  std::memcpy(slot.weights, row.weights, 4 * static_cast<size_t>(layout_.floats()));
  if (slot.header->flags & kRowDirty) rows.NoteDirty(hash);
  Counters::Add(&counters_.dram_inserts, 1);
  return position;
}

int64_t TieredTable::KeepRows(int64_t p, absl::Span<const FetchedRow> rows) {
  Partition& partition = partitions_[p];
  std::vector<FetchedRow> absent;
  for (const FetchedRow& row : rows) {
    if (partition.rows->Find(row.key, row.hash) == DramPartition::kNone) {
      absent.push_back(row);
    }
  }
  partition.rows->set_limit(quota() / partition_count_);
  // Room that cannot be had is no error here: the rows are on SSD.
  MakeRoom(p, static_cast<int64_t>(absent.size())).IgnoreError();
  int64_t kept = 0;
  {
    ExclusivePass pass(&partition.gate);
    kept = std::min<int64_t>(static_cast<int64_t>(absent.size()), partition.rows->free_slots());
    for (int64_t i = 0; i < kept; ++i) InsertRow(p, absent[i].key, absent[i].hash, absent[i].row);
  }
  Trim(p).IgnoreError();  // the index may have grown
  UpdateUsage(p);
  return kept;
}

void TieredTable::Settle(int64_t p, Batch* batch) {
  Unpin(p, batch);
  // A row that cannot be written stays in dram, beyond the limit, and the next operation fails
  // before it changes anything.
  Trim(p).IgnoreError();
  UpdateUsage(p);
}

absl::Status TieredTable::Modify(absl::Span<const int64_t> keys, ParallelFor parallel_for,
                                 absl::FunctionRef<void(int64_t p, Batch* batch)> commit,
                                 const absl::FunctionRef<void(const KeyBatch& batch)>* read) {
  PressureReport report;
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  report.Of(this);
  StageTimer timer(context_.get(), Stage::kUpdate);
  MutexLock training(&training_mu_);
  context_->NoteChange();
  last_lookup_.reset();
  // The small batches of a model's many tables come at the same time. Each of them on one thread,
  // they share the cores with the least ado; what is read from SSD is read in parallel all the
  // same.
  const ParallelFor memory_for = keys.size() <= kSerialKeys ? ParallelFor(SerialFor) : parallel_for;
  auto batch = std::make_unique<Batch>(keys, partition_count_, memory_for);
  const absl::Status status = Prepare(batch.get(), memory_for, parallel_for);
  memory_for(partition_count_, [&](int64_t p) {
    context_->gate.AssertShared();
    if (!status.ok()) return Abandon(p, batch.get());
    commit(p, batch.get());
    if (read == nullptr) Settle(p, batch.get());
  });
  TF_HPS_RETURN_IF_ERROR(status);
  if (read == nullptr) return absl::OkStatus();
  (*read)(batch->keys);
  memory_for(partition_count_, [&](int64_t p) {
    context_->gate.AssertShared();
    Settle(p, batch.get());
  });
  last_lookup_ = std::move(batch);
  return absl::OkStatus();
}

void TieredTable::ReportPressure() {
  // The quota may have shrunk while the operation went on.
  if (dram_bytes() > quota()) TrimIfIdle();
  if (hungry()) context_->balancer.OnPressure();
}

absl::Status TieredTable::LookupOrCreate(absl::Span<const int64_t> keys, float* out,
                                         ParallelFor parallel_for) {
  UninitializedVector<const float*> weights(keys.size());  // by the numbers of unique keys
  const auto commit = [&](int64_t p, Batch* batch) {
    context_->gate.AssertShared();
    const auto uniques = batch->keys.uniques(p);
    Counters::Add(&counters_.dram_hits, static_cast<int64_t>(batch->keys.members(p).size()) -
                                            static_cast<int64_t>(batch->prepared[p].misses.size()));
    DramPartition& rows = *partitions_[p].rows;
    const float** const weights_of = weights.data() + batch->keys.begin(p);
    ChangeRows(p, 4ll * dim_, batch, [&](int64_t u, const Row& row) {
      const uint64_t frequency = uint64_t{row.header->frequency} + uniques[u].count;
      row.header->frequency = static_cast<uint32_t>(std::min<uint64_t>(frequency, UINT32_MAX));
      rows.NoteUse(row.header);
      weights_of[u] = row.weights;
      if (optimizer_.idle()) {
        float* const first = out + int64_t{uniques[u].first} * dim_;
        ReadWeights(row, first);
        weights_of[u] = first;
      }
      return true;
    });
  };
  // In the order of the batch, as that of the output is the larger of both.
  const auto read = [&](const KeyBatch& batch) {
    const int64_t n = batch.size();
    parallel_for((n + kReadKeys - 1) / kReadKeys, [&](int64_t shard) {
      const int64_t begin = shard * kReadKeys, end = std::min(n, begin + kReadKeys);
      const int32_t* const numbers = batch.numbers().data() + begin;
      WithDim(dim_, [&](auto dim) {
        const auto prefetch = [&](int64_t i) { PrefetchFloats(weights[numbers[i]], 4ll * dim); };
        VisitPrefetched(end - begin, prefetch, [&](int64_t i) {
          float* const to = out + (begin + i) * dim;
          if (weights[numbers[i]] != to) CopyFloats(weights[numbers[i]], dim, to);
        });
      });
    });
  };
  const absl::FunctionRef<void(const KeyBatch&)> read_ref = read;
  return Modify(keys, parallel_for, commit, &read_ref);
}

absl::Status TieredTable::Upsert(absl::Span<const int64_t> keys, const float* values,
                                 ParallelFor parallel_for) {
  const auto commit = [&](int64_t p, Batch* batch) {
    context_->gate.AssertShared();
    std::vector<int32_t> last(batch->keys.uniques(p).size());
    for (const KeyBatch::Member& member : batch->keys.members(p)) {
      last[member.unique] = member.index;
    }
    DramPartition& batch_rows = *partitions_[p].rows;
    ChangeRows(p, 4ll * dim_, batch, [&](int64_t u, const Row& row) {
      batch_rows.NoteUse(row.header);
      CatchUp(row);
      CopyFloats(values + int64_t{last[u]} * dim_, dim_, row.weights);
      row.header->version += 1;
      return true;
    });
  };
  return Modify(keys, parallel_for, commit, /*read=*/nullptr);
}

absl::Status TieredTable::Remove(absl::Span<const int64_t> keys, ParallelFor parallel_for) {
  PressureReport report;
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  report.Of(this);
  MutexLock training(&training_mu_);
  context_->NoteChange();
  const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
  return ForEachPartition(parallel_for, [&](int64_t p) {
    context_->gate.AssertShared();
    return RemovePartition(batch, p);
  });
}

absl::Status TieredTable::RemovePartition(const KeyBatch& batch, int64_t p) {
  Partition& partition = partitions_[p];
  const auto uniques = batch.uniques(p);
  std::vector<int64_t> absent;  // from dram
  std::vector<const KeyBatch::Unique*> present;
  SsdTier::Batch removals;
  int64_t on_ssd = 0;
  int64_t only_in_dram = 0;
  for (const KeyBatch::Unique& unique : uniques) {
    const DramPartition::Position position = partition.rows->Find(unique.key, unique.hash);
    if (position == DramPartition::kNone) {
      absent.push_back(unique.key);
      continue;
    }
    present.push_back(&unique);
    if (!(partition.rows->RowAt(position).header->flags & kRowOnSsd)) {
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
  if (!removals.empty()) {
    TF_HPS_RETURN_IF_ERROR(context_->ssd->Write(instance, &removals));
    NoteWritten(p, [&](std::vector<int64_t>* keys) {
      for (const KeyBatch::Unique& unique : uniques) keys->push_back(unique.key);
    });
  }
  ExclusivePass pass(&partition.gate);
  for (const KeyBatch::Unique* unique : present) partition.rows->Erase(unique->key, unique->hash);
  ssd_rows_.fetch_sub(on_ssd, std::memory_order_relaxed);
  rows_.fetch_sub(removed, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace tf_hps
