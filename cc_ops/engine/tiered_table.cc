#include "cc_ops/engine/tiered_table.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/key_hash.h"
#include "cc_ops/engine/ssd_key.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {

absl::StatusOr<std::shared_ptr<TieredTable>> TieredTable::Create(
    std::shared_ptr<StoreContext> context, const TableState& state) {
  auto table = std::shared_ptr<TieredTable>(new TieredTable(std::move(context), state));
  table->AssertGateExclusive();
  TF_HPS_RETURN_IF_ERROR(table->Reset(state));
  return table;
}

TieredTable::TieredTable(std::shared_ptr<StoreContext> context, const TableState& state)
    : context_(std::move(context)), name_(state.name), dim_(state.dim) {}

TieredTable::~TieredTable() = default;

absl::Status TieredTable::Reset(const TableState& state) {
  TF_HPS_ASSIGN_OR_RETURN(initializer_, Initializer::Parse(state.initializer));
  TF_HPS_ASSIGN_OR_RETURN(optimizer_, OptimizerSpec::Parse(state.optimizer));
  id_ = state.id;
  state_epoch_ = state.state_epoch;
  initializer_spec_ = state.initializer;
  seed_ = state.seed;
  salt_ = state.salt;
  salt_hash_ = SaltOf(salt_);
  read_rule_ = optimizer_.ReadRule();
  step_ = state.step;
  rows_ = state.rows;
  ssd_rows_ = state.rows;
  ResetPartitions();
  return absl::OkStatus();
}

void TieredTable::ResetPartitions() {
  layout_ = RowLayout{dim_, optimizer_.slots()};
  if (partitions_ == nullptr) {
    partition_count_ = context_->partitions;
    partitions_ = std::make_unique<Partition[]>(partition_count_);
  }
  last_lookup_.reset();
  const auto slabs = std::make_shared<SlabAllocator>(layout_.row_bytes(), context_->slab_bytes);
  const auto segments = RowIndex::NewSegments(context_->slab_bytes);
  for (int64_t p = 0; p < partition_count_; ++p) {
    partitions_[p].rows = std::make_unique<DramPartition>(layout_, context_->eviction, slabs,
                                                          segments, &context_->budget);
    UpdateUsage(p);
  }
}

void TieredTable::Release(bool dropped) {
  dropped_ = dropped;
  ResetPartitions();
  hungry_ = false;  // another table's share is not kept for it
}

TableState TieredTable::GetState() {
  TableState state;
  state.name = name_;
  state.dim = dim_;
  state.initializer = initializer_spec_;
  state.seed = seed_;
  state.salt = salt_;
  state.optimizer = optimizer_.ToString();
  state.id = id_;
  state.state_epoch = state_epoch_;
  state.step = step_;
  state.rows = rows_;
  return state;
}

absl::Status TieredTable::CheckOpen() const {
  TF_HPS_RETURN_IF_ERROR(context_->CheckProcess());
  if (context_->ssd == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("table \"", name_, "\": its store ", context_->path,
                     " is closed. Close it only after the last use of its tables and models"));
  }
  if (dropped_) {
    return absl::FailedPreconditionError(absl::StrCat("table \"", name_, "\" was dropped"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TieredTable::Size() {
  SharedPass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  return rows_.load(std::memory_order_relaxed);
}

int TieredTable::InstanceOf(int64_t p) const {
  return static_cast<int>(p * context_->ssd->instances() / partition_count_);
}

int64_t TieredTable::PartitionAt(int64_t i) const {
  const int64_t instances = context_->ssd->instances();
  return i % instances * (partition_count_ / instances) + i / instances;
}

absl::Status TieredTable::ForEachPartition(ParallelFor parallel_for,
                                           absl::FunctionRef<absl::Status(int64_t p)> task) const {
  return ParallelForStatus(parallel_for, partition_count_, [&](int64_t i) {
    context_->gate.AssertShared();
    return task(PartitionAt(i));
  });
}

uint32_t TieredTable::IdleSteps(const Row& row) const {
  // A reader may meet a row of the step that is being applied, whose number the table does not have
  // yet.
  const uint32_t step = step_.load(std::memory_order_relaxed);
  const uint32_t last_step = row.header->last_step;
  return step > last_step ? step - last_step : 0;
}

void TieredTable::ReadWeights(const Row& row, float* out) const {
  const float* weights = row.weights;
  const uint32_t idle = optimizer_.idle() ? IdleSteps(row) : 0;
  if (idle == 0) {
    CopyFloats(weights, dim_, out);
    return;
  }
  std::visit([&](const auto& rule) { rule.ReadCaughtUp(weights, weights + dim_, out, dim_, idle); },
             read_rule_);
}

void TieredTable::CatchUp(const Row& row) const {
  const uint32_t idle = optimizer_.idle() ? IdleSteps(row) : 0;
  if (idle > 0) {
    std::visit([&](const auto& rule) { rule.CatchUp(row.weights, row.weights + dim_, dim_, idle); },
               read_rule_);
  }
  row.header->last_step = step_.load(std::memory_order_relaxed);
}

void TieredTable::InitializeRow(int64_t key, const Row& row) const {
  *row.header = {0, 0, step_.load(std::memory_order_relaxed), 0, kRowDirty, 0};
  initializer_.Fill(static_cast<uint64_t>(seed_), salt_hash_, key, row.weights, dim_);
  optimizer_.InitState(row.weights + dim_, dim_);
}

absl::StatusOr<std::unique_ptr<TableExport>> TieredTable::NewExport() {
  TF_HPS_ASSIGN_OR_RETURN(std::unique_ptr<SsdTier::Scan> scan, context_->ssd->NewScan(id_));
  return std::make_unique<TableExport>(name_, std::move(scan), layout_, state_epoch_, step_.load(),
                                       optimizer_);
}

void TieredTable::AppendStats(std::vector<std::pair<std::string, double>>* stats) {
  SharedPass pass(&context_->gate);
  int64_t dram_rows = 0;
  for (int64_t p = 0; p < partition_count_; ++p) {
    SharedPass partition(&partitions_[p].gate);
    dram_rows += partitions_[p].rows->size();
  }
  const std::pair<const char*, const std::atomic<int64_t>*> counters[] = {
      {"dram/hits", &counters_.dram_hits},
      {"dram/misses", &counters_.dram_misses},
      {"dram/inserts", &counters_.dram_inserts},
      {"dram/evictions", &counters_.dram_evictions},
      {"ssd/hits", &counters_.ssd_hits},
      {"ssd/misses", &counters_.ssd_misses},
      {"ssd/inserts", &counters_.ssd_inserts},
      {"ssd/writes", &counters_.ssd_writes},
      {"dram/prefetched", &counters_.dram_prefetched}};
  for (const auto& [name, counter] : counters) {
    stats->emplace_back(name, counter->load(std::memory_order_relaxed));
  }
  const double ssd_rows = static_cast<double>(ssd_rows_.load());
  stats->emplace_back("dram/rows", dram_rows);
  stats->emplace_back("dram/bytes", dram_bytes());
  stats->emplace_back("dram/quota_bytes", quota());
  stats->emplace_back("ssd/rows", ssd_rows);
  stats->emplace_back("ssd/bytes", ssd_rows * static_cast<double>(EntryBytes(layout_)));
  stats->emplace_back("ssd/evictions", 0);
  stats->emplace_back("rows", rows_.load());
}

}  // namespace tf_hps
