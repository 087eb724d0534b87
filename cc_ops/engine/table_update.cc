// Optimizer steps over one or several tables.

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/prefetch.h"
#include "cc_ops/engine/status_macros.h"
#include "cc_ops/engine/table_partition.h"

namespace tf_hps {

// One table's part of ApplyGradients.
struct TieredTable::Step {
  TieredTable* table;
  absl::Span<const int64_t> keys;
  const float* values;  // [keys, dim]
  // What the two above point to when several entries named the table.
  std::vector<int64_t> merged_keys;
  std::vector<float> merged_values;

  std::unique_ptr<Batch> batch;
};

namespace {

// sum = value, or sum += value; the first one is added to zero, as any sum of floats starts.
template <typename Dim>
void AddFloats(const float* __restrict value, Dim n, bool first, float* __restrict sum) {
  if (first) {
    for (int j = 0; j < n; ++j) sum[j] = 0.0f + value[j];
  } else {
    for (int j = 0; j < n; ++j) sum[j] += value[j];
  }
}

bool AllFinite(const float* values, int n) {
  // Zero times a finite number is zero; times any other it is not a number.
  float sum = 0;
  for (int j = 0; j < n; ++j) sum += values[j] * 0.0f;
  return sum == 0.0f;
}

}  // namespace

bool TieredTable::HasOptimizer(const OptimizerSpec& optimizer) {
  SharedPass pass(&context_->gate);
  return optimizer_ == optimizer;
}

absl::Status TieredTable::SettleRows() {
  TF_HPS_RETURN_IF_ERROR(FlushDirty(SerialFor));
  if (!optimizer_.idle()) return absl::OkStatus();
  TF_HPS_ASSIGN_OR_RETURN(const auto scan, context_->ssd->NewScan(id_));
  SsdTier::Writer writer(context_->ssd.get());
  RowBuffer buffer(layout_, 1);
  const Row row = buffer[0];
  std::string encoded;
  for (; scan->Valid(); scan->Next()) {
    bool fresh_state = false;
    TF_HPS_RETURN_IF_ERROR(DecodeRow(layout_, state_epoch_, scan->row(), row, &fresh_state));
    if (fresh_state || IdleSteps(row) == 0) continue;
    CatchUp(row);
    encoded.clear();
    EncodeRow(layout_, state_epoch_, row, &encoded);
    TF_HPS_RETURN_IF_ERROR(writer.Put(id_, scan->key(), encoded));
  }
  TF_HPS_RETURN_IF_ERROR(scan->status());
  return writer.Finish();
}

void TieredTable::SwitchOptimizer(const OptimizerSpec& optimizer, uint32_t state_epoch) {
  optimizer_ = optimizer;
  read_rule_ = optimizer.ReadRule();
  state_epoch_ = state_epoch;  // rows on SSD of another epoch now read with fresh state
  ResetPartitions();
}

void TieredTable::MakeBatch(Step* step, ParallelFor parallel_for) {
  if (last_lookup_ != nullptr && last_lookup_->keys.IsOf(step->keys)) {
    step->batch = std::move(last_lookup_);
  } else {
    step->batch = std::make_unique<Batch>(step->keys, partition_count_, parallel_for);
  }
}

absl::Status TieredTable::SumGradients(int64_t p, Step* step, NonFinite non_finite) {
  const auto uniques = step->batch->keys.uniques(p);
  const auto members = step->batch->keys.members(p);
  Prepared* prepared = &step->batch->prepared[p];
  prepared->sums.resize(uniques.size() * static_cast<size_t>(dim_));
  float* const sums = prepared->sums.data();
  WithDim(dim_, [&](auto dim) {
    const auto value_of = [&](int64_t m) { return step->values + int64_t{members[m].index} * dim; };
    const auto prefetch = [&](int64_t m) { PrefetchFloats(value_of(m), 4ll * dim); };
    VisitPrefetched(static_cast<int64_t>(members.size()), prefetch, [&](int64_t m) {
      const int32_t unique = members[m].unique;
      AddFloats(value_of(m), dim, members[m].index == uniques[unique].first,
                sums + int64_t{unique} * dim);
    });
  });
  if (non_finite == NonFinite::kPropagate) return absl::OkStatus();
  for (size_t u = 0; u < uniques.size(); ++u) {
    if (AllFinite(sums + static_cast<int64_t>(u) * dim_, dim_)) continue;
    if (non_finite == NonFinite::kError) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", name_, "\": the gradient of key ", uniques[u].key,
          " is not finite; nothing was updated. Lower the learning rate, clip gradients, or pass "
          "non_finite=\"skip\" to leave such rows as they are"));
    }
    prepared->skip.resize(uniques.size());
    prepared->skip[u] = true;
  }
  return absl::OkStatus();
}

template <typename Rule>
void TieredTable::ApplyRule(int64_t p, Step* step, const Rule& rule) {
  const Prepared& prepared = step->batch->prepared[p];
  const uint32_t this_step = step_.load(std::memory_order_relaxed) + 1;
  ChangeRows(p, 4ll * layout_.floats(), step->batch.get(), [&](int64_t u, const Row& row) {
    if (!prepared.skip.empty() && prepared.skip[u]) return false;
    if constexpr (Rule::kIdle) CatchUp(row);
    rule.UpdateRow(row.weights, row.weights + dim_, prepared.sums.data() + u * dim_, dim_);
    row.header->version += 1;
    row.header->last_step = this_step;
    return true;
  });
  Settle(p, step->batch.get());
}

std::vector<std::unique_ptr<TieredTable::Step>> TieredTable::GroupByTable(
    absl::Span<const Gradients> gradients) {
  std::map<TieredTable*, std::vector<const Gradients*>> by_table;
  for (const Gradients& entry : gradients) by_table[entry.table].push_back(&entry);
  std::vector<std::unique_ptr<Step>> steps;
  for (const auto& [table, entries] : by_table) {
    auto step = std::make_unique<Step>();
    step->table = table;
    if (entries.size() > 1) {
      for (const Gradients* entry : entries) {
        const int64_t floats = static_cast<int64_t>(entry->keys.size()) * table->dim();
        step->merged_keys.insert(step->merged_keys.end(), entry->keys.begin(), entry->keys.end());
        step->merged_values.insert(step->merged_values.end(), entry->values,
                                   entry->values + floats);
      }
    }
    step->keys = entries.size() > 1 ? step->merged_keys : entries[0]->keys;
    step->values = entries.size() > 1 ? step->merged_values.data() : entries[0]->values;
    steps.push_back(std::move(step));
  }
  return steps;
}

absl::Status TieredTable::ApplySteps(absl::Span<const std::unique_ptr<Step>> steps,
                                     const RuleVariant& rule, NonFinite non_finite,
                                     ParallelFor parallel_for) {
  // A model may have dozens of small tables: the partitions of all of them are one pool of tasks, a
  // few at a time where they are small.
  struct Part {
    Step* step;
    int64_t begin, end;  // see PartitionAt
  };
  std::vector<Part> parts;
  for (const auto& step : steps) {
    const int64_t partitions = step->table->partition_count_;
    const int64_t at_a_time = step->keys.size() <= kSerialKeys ? 8 : 1;
    for (int64_t i = 0; i < partitions; i += at_a_time) {
      parts.push_back({step.get(), i, std::min(i + at_a_time, partitions)});
    }
  }
  // Calls work(table, step, p) for all partitions of all tables.
  const auto for_all = [&](auto work) {
    return ParallelForStatus(parallel_for, static_cast<int64_t>(parts.size()), [&](int64_t n) {
      Step* const step = parts[n].step;
      step->table->AssertGateShared();
      for (int64_t i = parts[n].begin; i < parts[n].end; ++i) {
        TF_HPS_RETURN_IF_ERROR(work(step->table, step, step->table->PartitionAt(i)));
      }
      return absl::OkStatus();
    });
  };
  if (steps.size() == 1) {
    steps[0]->table->MakeBatch(steps[0].get(), parallel_for);
  } else {
    parallel_for(static_cast<int64_t>(steps.size()),
                 [&](int64_t i) { steps[i]->table->MakeBatch(steps[i].get(), SerialFor); });
  }
  absl::Status status = for_all([&](TieredTable* table, Step* step, int64_t p) {
    return table->SumGradients(p, step, non_finite);
  });
  // As Prepare does, for all tables together.
  if (status.ok()) {
    status = for_all([](TieredTable* table, Step* step, int64_t p) {
      table->AssertGateShared();
      return table->Search(p, step->batch.get());
    });
  }
  bool misses = false;
  for (size_t i = 0; status.ok() && i < steps.size(); ++i) {
    if (!steps[i]->batch->HasMisses()) continue;
    misses = true;
    steps[i]->table->AssertGateShared();
    status = steps[i]->table->ReadMisses(steps[i]->batch.get(), parallel_for);
  }
  if (status.ok() && misses) {
    status = for_all([](TieredTable* table, Step* step, int64_t p) {
      table->AssertGateShared();
      return table->MakeReady(p, step->batch.get());
    });
  }
  for_all([&](TieredTable* table, Step* step, int64_t p) {
    table->AssertGateShared();
    if (!status.ok()) {
      table->Abandon(p, step->batch.get());
    } else {
      std::visit(
          [&](const auto& bound_rule) {
            table->AssertGateShared();
            table->ApplyRule(p, step, bound_rule);
          },
          rule);
    }
    return absl::OkStatus();
  }).IgnoreError();  // there is none
  if (!status.ok()) return status;
  for (const auto& step : steps) step->table->step_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status TieredTable::ApplyFirstSteps(absl::Span<const std::unique_ptr<Step>> steps,
                                          const OptimizerSpec& optimizer, const RuleVariant& rule,
                                          NonFinite non_finite, ParallelFor parallel_for) {
  struct Former {
    TieredTable* table;
    OptimizerSpec optimizer;
    uint32_t state_epoch;
  };
  std::vector<Former> formers;
  absl::Status status;
  for (const auto& step : steps) {
    TieredTable* table = step->table;
    if (table->optimizer_ == optimizer) continue;
    table->AssertGateExclusive();
    status = table->SettleRows();
    if (!status.ok()) break;
    formers.push_back({table, table->optimizer_, table->state_epoch_});
    table->SwitchOptimizer(optimizer, table->state_epoch_ + 1);
  }
  if (status.ok()) status = ApplySteps(steps, rule, non_finite, parallel_for);
  if (status.ok()) return status;
  // Nothing of the new epoch has been written: with the former one all rows have their former state
  // again.
  for (const Former& former : formers) {
    former.table->AssertGateExclusive();
    former.table->SwitchOptimizer(former.optimizer, former.state_epoch);
  }
  return status;
}

absl::Status TieredTable::ApplyGradients(absl::Span<const Gradients> gradients,
                                         const OptimizerSpec& optimizer,
                                         absl::Span<const float> hyperparameters,
                                         NonFinite non_finite, ParallelFor parallel_for,
                                         int64_t dense_step) {
  TF_HPS_ASSIGN_OR_RETURN(const RuleVariant rule, optimizer.Bind(hyperparameters));
  const std::vector<std::unique_ptr<Step>> steps = GroupByTable(gradients);
  std::set<StoreContext*> contexts;
  bool first = false;  // for some table with this optimizer
  for (const auto& step : steps) {
    contexts.insert(step->table->context_.get());
    first = first || !step->table->HasOptimizer(optimizer);
  }
  std::deque<PressureReport> reports;
  // One order of locks for everybody: gates by address, then tables by address (`steps` is in that
  // order).
  std::vector<std::unique_ptr<SharedPass>> shared;
  std::vector<std::unique_ptr<ExclusivePass>> exclusive;
  for (StoreContext* context : contexts) {
    if (first) {
      exclusive.push_back(std::make_unique<ExclusivePass>(&context->gate));
    } else {
      shared.push_back(std::make_unique<SharedPass>(&context->gate));
    }
  }
  for (StoreContext* context : contexts) context->NoteChange();
  std::vector<std::unique_ptr<MutexLock>> training;
  for (const auto& step : steps) {
    step->table->AssertGateShared();
    TF_HPS_RETURN_IF_ERROR(step->table->CheckOpen());
    reports.emplace_back().Of(step->table);
    training.push_back(std::make_unique<MutexLock>(&step->table->training_mu_));
  }
  if (first) {
    TF_HPS_RETURN_IF_ERROR(ApplyFirstSteps(steps, optimizer, rule, non_finite, parallel_for));
  } else {
    for (const auto& step : steps) {
      if (step->table->optimizer_ == optimizer) continue;
      return absl::AbortedError(
          absl::StrCat("table \"", step->table->name_, "\" was given another optimizer, ",
                       step->table->optimizer_.ToString(), ", while a step with ",
                       optimizer.ToString(), " was about to start; nothing was updated"));
    }
    TF_HPS_RETURN_IF_ERROR(ApplySteps(steps, rule, non_finite, parallel_for));
  }
  for (StoreContext* context : contexts) {
    if (dense_step > 0) context->dense_step.store(dense_step, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
