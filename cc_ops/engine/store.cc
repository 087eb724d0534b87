#include "cc_ops/engine/store.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

constexpr int kMaxDim = 1 << 20;

absl::Status CheckTableOptions(const TableOptions& options) {
  if (options.name.empty()) return absl::InvalidArgumentError("a table needs a name, got \"\"");
  if (options.dim < 1 || options.dim > kMaxDim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", options.name, "\": dim must be in [1, ", kMaxDim, "], got ", options.dim));
  }
  return Initializer::Parse(options.initializer).status();
}

std::string LayoutOf(const TableState& s) {
  return absl::StrCat("dim=", s.dim, " initializer=", s.initializer, " seed=", s.seed,
                      s.salt == s.name ? "" : absl::StrCat(" salt=\"", s.salt, "\""));
}

bool SameLayout(const TableState& x, const TableState& y) {
  return x.dim == y.dim && x.initializer == y.initializer && x.seed == y.seed && x.salt == y.salt;
}

}  // namespace

Store::Store(std::shared_ptr<StoreContext> context, std::unique_ptr<FileLock> lock, bool temporary)
    : context_(std::move(context)), lock_(std::move(lock)), temporary_(temporary) {}

Store::~Store() {
  if (!context_->forked()) {
    Close(/*commit=*/false).IgnoreError();
    return;
  }
  // What would wait for threads that only the parent has, or take the parent's lock away.
  context_->gate.AssertExclusive();
  static_cast<void>(new std::shared_ptr<StoreContext>(context_));
  static_cast<void>(removals_.release());
  static_cast<void>(lock_.release());
}

absl::Status Store::CheckOpen() {
  TF_HPS_RETURN_IF_ERROR(context_->CheckProcess());
  if (context_->ssd != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("store ", path(), " is closed"));
}

absl::StatusOr<std::shared_ptr<TieredTable>> Store::Attach(const TableOptions& options) {
  TF_HPS_RETURN_IF_ERROR(CheckTableOptions(options));
  std::shared_ptr<TieredTable> table;
  {
    ExclusivePass pass(&context_->gate);
    TF_HPS_RETURN_IF_ERROR(CheckOpen());
    TF_HPS_ASSIGN_OR_RETURN(table, AttachLocked(options));
  }
  context_->balancer.Add(table);
  return table;
}

absl::StatusOr<std::shared_ptr<TieredTable>> Store::AttachLocked(const TableOptions& options) {
  TableState state;
  state.name = options.name;
  state.dim = options.dim;
  TF_HPS_ASSIGN_OR_RETURN(const Initializer initializer, Initializer::Parse(options.initializer));
  state.initializer = initializer.ToString();
  state.seed = options.seed;
  state.salt = options.salt.empty() ? options.name : options.salt;
  const auto it = tables_.find(options.name);
  if (it != tables_.end()) {
    it->second->AssertGateExclusive();
    const TableState existing = it->second->GetState();
    // A restored table has the salt of the one that was saved.
    if (options.salt.empty()) state.salt = existing.salt;
    if (SameLayout(existing, state)) return it->second;
    return absl::InvalidArgumentError(absl::StrCat(
        "store ", path(), " has a table \"", options.name, "\" with ", LayoutOf(existing),
        ", asked for ", LayoutOf(state), ". Ask for the same layout, or use another name"));
  }
  state.id = next_table_id_;
  TF_HPS_ASSIGN_OR_RETURN(std::shared_ptr<TieredTable> table, TieredTable::Create(context_, state));
  ++next_table_id_;
  tables_[options.name] = table;
  context_->NoteChange();
  return table;
}

absl::Status Store::Drop(TieredTable* table) {
  ExclusivePass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  TF_HPS_RETURN_IF_ERROR(CheckOwned(table));
  table->AssertGateExclusive();
  const uint32_t id = table->id();
  context_->NoteChange();
  table->Release(/*dropped=*/true);
  tables_.erase(table->name());
  // Rows left under an id that no table has any more take room, no more.
  context_->ssd->DropTable(id).IgnoreError();
  return absl::OkStatus();
}

absl::Status Store::CheckOwned(TieredTable* table) {
  const auto it = tables_.find(table->name());
  if (it != tables_.end() && it->second.get() == table) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("store ", path(), " has no table \"", table->name(),
                                          "\" (any more): it was dropped, or is another store's"));
}

absl::Status Store::CheckNamedTables(absl::Span<const NamedTable> tables) {
  std::set<TieredTable*> seen;
  std::set<std::string> names;
  for (const NamedTable& named : tables) {
    TF_HPS_RETURN_IF_ERROR(CheckOwned(named.table.get()));
    if (!seen.insert(named.table.get()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", named.table->name(), "\" is named twice, expected once"));
    }
    if (!names.insert(named.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tables are named \"", named.name, "\", expected different names"));
    }
  }
  return absl::OkStatus();
}

std::vector<TableState> Store::Tables() {
  ExclusivePass pass(&context_->gate);
  std::vector<TableState> states;
  for (const auto& [name, table] : tables_) {
    table->AssertGateExclusive();
    states.push_back(table->GetState());
  }
  return states;
}

absl::Status Store::FlushTables(ParallelFor parallel_for) {
  for (const auto& [name, table] : tables_) {
    table->AssertGateExclusive();
    TF_HPS_RETURN_IF_ERROR(table->FlushDirty(parallel_for));
  }
  return absl::OkStatus();
}

absl::Status Store::Close(bool commit) {
  TF_HPS_RETURN_IF_ERROR(context_->CheckProcess());
  {
    SharedPass pass(&context_->gate);
    if (context_->ssd == nullptr) return absl::OkStatus();
  }
  if (commit && !temporary_ && context_->changed) TF_HPS_RETURN_IF_ERROR(Commit().status());
  MutexLock files(&files_mu_);
  ExclusivePass pass(&context_->gate);
  if (context_->ssd == nullptr) return absl::OkStatus();
  CancelExports();
  for (const auto& [name, table] : tables_) {
    table->AssertGateExclusive();
    table->Release(/*dropped=*/false);
  }
  tables_.clear();
  context_->ssd.reset();
  removals_->Wait();
  // Before the lock goes: another process may open the store at once.
  const absl::Status removed = RemoveTree(temporary_ ? path() : LiveDirectory());
  lock_.reset();
  return removed;
}

void Store::CancelExports() {
  for (const auto& weak : exports_) {
    if (const auto table_export = weak.lock()) table_export->Cancel();
  }
  exports_.clear();
}

absl::StatusOr<std::shared_ptr<TableExport>> Store::Export(TieredTable* table) {
  ExclusivePass pass(&context_->gate);
  TF_HPS_RETURN_IF_ERROR(CheckOpen());
  TF_HPS_RETURN_IF_ERROR(CheckOwned(table));
  table->AssertGateExclusive();
  TF_HPS_RETURN_IF_ERROR(table->FlushDirty(SerialFor));
  TF_HPS_ASSIGN_OR_RETURN(std::shared_ptr<TableExport> result, table->NewExport());
  exports_.erase(std::remove_if(exports_.begin(), exports_.end(),
                                [](const auto& weak) { return weak.expired(); }),
                 exports_.end());
  exports_.push_back(result);
  return result;
}

std::vector<std::pair<std::string, double>> Store::Stats() {
  std::vector<std::pair<std::string, double>> stats;
  std::vector<std::shared_ptr<TieredTable>> tables;
  {
    SharedPass pass(&context_->gate);
    for (const auto& [name, table] : tables_) tables.push_back(table);
    stats.emplace_back("store/commit", last_commit_.load());
    stats.emplace_back("store/dense_step", context_->dense_step.load());
    const SsdTier* ssd = context_->ssd.get();
    stats.emplace_back("store/bytes_read",
                       context_->former_bytes_read + (ssd ? ssd->bytes_read() : 0));
    stats.emplace_back("store/bytes_written",
                       context_->former_bytes_written + (ssd ? ssd->bytes_written() : 0));
    stats.emplace_back("store/unwritten_bytes", ssd ? ssd->buffered_bytes() : 0);
    stats.emplace_back("store/dram_bytes", context_->budget.used());
    stats.emplace_back("store/dram_budget_bytes", context_->budget.limit());
  }
  for (int i = 0; i < kStages; ++i) {
    stats.emplace_back(absl::StrCat("store/seconds/", kStageNames[i]),
                       1e-9 * static_cast<double>(context_->stage_nanoseconds[i].load()));
  }
  for (const auto& table : tables) {
    std::vector<std::pair<std::string, double>> counters;
    table->AppendStats(&counters);
    for (auto& [counter, value] : counters) {
      stats.emplace_back(absl::StrCat("tables/", table->name(), "/", counter), value);
    }
  }
  return stats;
}

}  // namespace tf_hps
