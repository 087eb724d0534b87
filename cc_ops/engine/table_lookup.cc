// Reads of a TieredTable: nothing here changes a row.

#include <algorithm>
#include <numeric>
#include <utility>

#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {
namespace {

// Keys that one task looks up.
constexpr int64_t kShardKeys = 4096;

}  // namespace

// Keeps the rows of all partitions as they are. A loop of locks is beyond Clang's analysis.
class TieredTable::AllRowsShared {
 public:
  explicit AllRowsShared(TieredTable* table) ABSL_NO_THREAD_SAFETY_ANALYSIS : table_(table) {
    for (int64_t p = 0; p < table_->partition_count_; ++p)
      table_->partitions_[p].gate.EnterShared();
  }
  ~AllRowsShared() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (int64_t p = 0; p < table_->partition_count_; ++p)
      table_->partitions_[p].gate.LeaveShared();
  }
  AllRowsShared(const AllRowsShared&) = delete;
  AllRowsShared& operator=(const AllRowsShared&) = delete;

 private:
  TieredTable* const table_;
};

template <typename Dim>
void TieredTable::ReadShard(absl::Span<const int64_t> keys, int64_t begin, int64_t end, Dim dim,
                            float* out, std::vector<int32_t>* missing) {
  const uint32_t partitions = static_cast<uint32_t>(partition_count_);
  const bool idle = optimizer_.idle();
  const auto search_of = [&](int64_t i) -> RowSearch {
    const uint64_t hash = HashKey(keys[i]);
    return {keys[i], hash, partitions_[PartitionOf(hash, partitions)].rows.get()};
  };
  const auto locate = [&](const DramPartition& rows, DramPartition::Position position) -> Row {
    if (position == DramPartition::kNone) return {nullptr, nullptr};
    const Row row = rows.RowAt(position);
    if (idle) PrefetchLine(row.header);
    PrefetchFloats(row.weights, 4ll * dim);
    return row;
  };
  const auto found = [&](int64_t i, const Row& row) {
    if (row.header == nullptr) {
      missing->push_back(static_cast<int32_t>(i));
    } else if (idle) {
      ReadWeights(row, out + i * dim);
    } else {
      CopyFloats(row.weights, dim, out + i * dim);
    }
  };
  FindAll(begin, end, search_of, locate, found);
}

absl::Status TieredTable::Lookup(absl::Span<const int64_t> keys, float* out,
                                 ParallelFor parallel_for) {
  PressureReport report;
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  if (context_->cache_reads) report.Of(this);
  StageTimer timer(context_.get(), Stage::kRead);
  const int64_t n = static_cast<int64_t>(keys.size());
  const int64_t shards = (n + kShardKeys - 1) / kShardKeys;
  std::vector<std::vector<int32_t>> missing_of(static_cast<size_t>(shards));
  {
    const AllRowsShared shared(this);
    parallel_for(shards, [&](int64_t shard) {
      const int64_t begin = shard * kShardKeys, end = std::min(n, begin + kShardKeys);
      WithDim(dim_, [&](auto dim) { ReadShard(keys, begin, end, dim, out, &missing_of[shard]); });
    });
  }
  std::vector<int32_t> missing;
  for (const auto& of_shard : missing_of) {
    missing.insert(missing.end(), of_shard.begin(), of_shard.end());
  }
  if (!missing.empty() && context_->cache_reads) {
    // No row may change between being read from SSD and being kept.
    MutexLock training(&training_mu_);
    TF_HPS_RETURN_IF_ERROR(ReadMissing(keys, missing, out, parallel_for));
  } else if (!missing.empty()) {
    TF_HPS_RETURN_IF_ERROR(ReadMissing(keys, missing, out, parallel_for));
  }
  Counters::Add(&counters_.dram_hits, n - static_cast<int64_t>(missing.size()));
  return absl::OkStatus();
}

absl::Status TieredTable::ReadMissing(absl::Span<const int64_t> keys,
                                      absl::Span<const int32_t> missing, float* out,
                                      ParallelFor parallel_for) {
  std::vector<int64_t> missing_keys(missing.size());
  for (size_t i = 0; i < missing.size(); ++i) missing_keys[i] = keys[missing[i]];
  Batch batch(missing_keys, partition_count_, parallel_for);
  for (int64_t p = 0; p < partition_count_; ++p) {
    std::vector<int32_t>& misses = batch.prepared[p].misses;
    misses.resize(batch.keys.uniques(p).size());
    std::iota(misses.begin(), misses.end(), 0);
  }
  TF_HPS_RETURN_IF_ERROR(ReadMisses(&batch, parallel_for));
  parallel_for(partition_count_, [&](int64_t p) {
    InitializeOthers(p, &batch);
    const auto members = batch.keys.members(p);
    RowBuffer& rows = batch.prepared[p].fetched;
    for (const KeyBatch::Member& member : members) {
      ReadWeights(rows[member.unique], out + int64_t{missing[member.index]} * dim_);
    }
    const int64_t uniques = static_cast<int64_t>(batch.keys.uniques(p).size());
    Counters::Add(&counters_.dram_misses, uniques);
    Counters::Add(&counters_.dram_hits, static_cast<int64_t>(members.size()) - uniques);
  });
  if (context_->cache_reads) {
    parallel_for(partition_count_, [&](int64_t p) {
      context_->gate.AssertShared();
      CacheFetched(p, &batch);
    });
  }
  return absl::OkStatus();
}

void TieredTable::CacheFetched(int64_t p, Batch* batch) {
  Prepared& prepared = batch->prepared[p];
  std::vector<FetchedRow> rows;
  for (size_t i = 0; i < prepared.misses.size(); ++i) {
    const KeyBatch::Unique& unique = batch->keys.uniques(p)[prepared.misses[i]];
    const Row row = prepared.fetched[i];
    if (row.header->flags & kRowOnSsd) rows.push_back({unique.key, unique.hash, row});
  }
  KeepRows(p, rows);
}

absl::Status TieredTable::Contains(absl::Span<const int64_t> keys, bool* out,
                                   ParallelFor parallel_for) {
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  const KeyBatch batch(keys, static_cast<uint32_t>(partition_count_), parallel_for);
  return ForEachPartition(parallel_for, [&](int64_t p) {
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
    SharedPass pass(&partitions_[p].gate);
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
