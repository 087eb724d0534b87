#include "tests/crash/crash_world.h"

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc_ops/engine/status_macros.h"

namespace tf_hps {
namespace {

constexpr char kInitializer[] = "uniform(minval=-0.05,maxval=0.05)";
constexpr char kSaveId[] = "crash";
constexpr size_t kKeptCheckpoints = 2;

struct TableKind {
  const char* name;
  int dim;
  const char* optimizer;
  std::vector<float> hyperparameters;
};

const std::vector<TableKind>& Kinds() {
  static const auto* const kinds = new std::vector<TableKind>{
      {"adagrad", 5, "adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}},
      {"nesterov", 3, "momentum(momentum=0.9,nesterov=1)", {0.05f, 0.9f}},
      {"adam", 8, "adam(amsgrad=1)", {0.01f, 0.9f, 0.999f, 1e-7f, 3.0f}},
  };
  return *kinds;
}

std::mt19937_64 RngOf(uint64_t seed, int64_t i) {
  std::seed_seq sequence{seed, seed >> 32, static_cast<uint64_t>(i)};
  return std::mt19937_64(sequence);
}

absl::Status Differs(absl::string_view what) {
  return absl::InternalError(absl::StrCat("DIFFERENCE: ", what));
}

}  // namespace

absl::StatusOr<CrashTables> CrashTables::Open(const std::string& path, uint64_t seed,
                                              int64_t keep_commits, int64_t commit) {
  StoreOptions options;
  options.path = path;
  options.dram_bytes = seed % 3 == 0 ? 1000 : seed % 3 == 1 ? 20000 : 60000;
  options.eviction = seed % 2 == 0 ? "lfu" : "lru";
  options.write_buffer_bytes = 8 << 10;  // so that LevelDB writes and compacts all the time
  options.keep_commits = keep_commits;
  options.commit = commit;
  CrashTables result;
  TF_HPS_ASSIGN_OR_RETURN(result.store_, Store::Open(options));
  for (const TableKind& kind : Kinds()) {
    TF_HPS_ASSIGN_OR_RETURN(result.tables_.emplace_back(),
                            result.store_->Attach({kind.name, kind.dim, kInitializer, 7, ""}));
  }
  return result;
}

int64_t CrashTables::last_commit() {
  for (const auto& [name, value] : store_->Stats()) {
    if (name == "store/commit") return static_cast<int64_t>(value);
  }
  return -1;
}

std::vector<NamedTable> CrashTables::Named(size_t first, size_t count) const {
  std::vector<NamedTable> named;
  for (size_t t = first; t < first + count; ++t) {
    named.push_back({tables_[t]->name(), tables_[t]});
  }
  return named;
}

// The keys, values and table of an operation.
struct CrashWorld::Batch {
  Batch(std::mt19937_64* rng, const Models& models) : table((*rng)() % Kinds().size()) {
    keys.resize((*rng)() % 200);
    for (int64_t& key : keys) key = static_cast<int64_t>((*rng)() % 1200) * 7919 - 4000000;
    values.resize(keys.size() * static_cast<size_t>(models[table].dim()));
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(*rng);
  }

  size_t table;
  std::vector<int64_t> keys;
  std::vector<float> values;
};

CrashWorld::CrashWorld(const std::string& folder) : folder_(folder) {
  for (const TableKind& kind : Kinds()) {
    models_.emplace_back(kind.dim, kInitializer, 7, kind.name, "");
  }
}

CrashWorld::Kind CrashWorld::KindOf(uint64_t seed, int64_t i) {
  std::mt19937_64 rng = RngOf(seed, i);
  static constexpr Kind kKinds[] = {Kind::kLookup, Kind::kCreate,  Kind::kCreate, Kind::kUpsert,
                                    Kind::kRemove, Kind::kTrain,   Kind::kTrain,  Kind::kTrain,
                                    Kind::kTrain,  Kind::kTrain,   Kind::kCommit, Kind::kCommit,
                                    Kind::kCommit, Kind::kRestore, Kind::kExport, Kind::kSave};
  return kKinds[rng() % std::size(kKinds)];
}

std::string CrashWorld::CheckpointName(uint64_t seed, int64_t i) {
  return absl::StrCat("c", seed, "-", i);
}

absl::Status CrashWorld::Do(uint64_t seed, int64_t i, CrashTables* tables) {
  std::mt19937_64 rng = RngOf(seed, i);
  rng();  // KindOf took it
  const Batch batch(&rng, models_);
  TableModel& model = models_[batch.table];
  TieredTable* const table = tables != nullptr ? tables->table(batch.table) : nullptr;
  switch (KindOf(seed, i)) {
    case Kind::kLookup:
    case Kind::kCreate: {
      const bool create = KindOf(seed, i) == Kind::kCreate;
      if (create) {
        for (const int64_t key : batch.keys) model.Create(key);
      }
      if (table == nullptr) return absl::OkStatus();
      TF_HPS_RETURN_IF_ERROR(table->Prefetch(batch.keys, SerialFor));
      std::vector<float> rows(batch.values.size()), expected;
      TF_HPS_RETURN_IF_ERROR(create ? table->LookupOrCreate(batch.keys, rows.data(), SerialFor)
                                    : table->Lookup(batch.keys, rows.data(), SerialFor));
      for (const int64_t key : batch.keys) {
        const std::vector<float> row = model.Read(key);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      return rows == expected ? absl::OkStatus() : Differs("a lookup");
    }
    case Kind::kUpsert:
      for (size_t k = 0; k < batch.keys.size(); ++k) {
        model.Upsert(batch.keys[k], batch.values.data() + k * model.dim());
      }
      return table == nullptr ? absl::OkStatus()
                              : table->Upsert(batch.keys, batch.values.data(), SerialFor);
    case Kind::kRemove:
      for (const int64_t key : batch.keys) model.Remove(key);
      return table == nullptr ? absl::OkStatus() : table->Remove(batch.keys, SerialFor);
    case Kind::kTrain: {
      const TableKind& kind = Kinds()[batch.table];
      model.Apply(batch.keys, batch.values, kind.optimizer, kind.hyperparameters);
      if (table == nullptr) return absl::OkStatus();
      return TieredTable::ApplyGradients(
          {{table, batch.keys, batch.values.data()}}, *OptimizerSpec::Parse(kind.optimizer),
          kind.hyperparameters, TieredTable::NonFinite::kError, SerialFor);
    }
    case Kind::kCommit:
      return tables == nullptr ? absl::OkStatus() : tables->store()->Commit().status();
    case Kind::kSave: {
      // All tables (their files are linked) or one (its rows are copied).
      const bool all = batch.keys.size() % 2 == 0;
      const size_t first = all ? 0 : batch.table, count = all ? models_.size() : 1;
      const std::string name = CheckpointName(seed, i);
      if (checkpoints_.size() >= kKeptCheckpoints) {
        if (tables != nullptr) RemoveFiles(checkpoints_.begin()->first);
        checkpoints_.erase(checkpoints_.begin());
      }
      checkpoints_.insert_or_assign(
          name,
          Checkpoint{first, Models(models_.begin() + first, models_.begin() + first + count)});
      if (tables == nullptr) return absl::OkStatus();
      return tables->store()->Save(Prefix(name), kSaveId, tables->Named(first, count));
    }
    case Kind::kRestore: {
      if (checkpoints_.empty()) return absl::OkStatus();
      const auto it = std::next(checkpoints_.begin(), rng() % checkpoints_.size());
      const Checkpoint& checkpoint = it->second;
      for (size_t t = 0; t < checkpoint.models.size(); ++t) {
        models_[checkpoint.first + t] = checkpoint.models[t];
      }
      return tables == nullptr ? absl::OkStatus() : Restore(it->first, tables);
    }
    case Kind::kExport:
      return tables == nullptr ? absl::OkStatus()
                               : Compare({models_[batch.table]}, batch.table, tables);
  }
  return absl::OkStatus();
}

absl::Status CrashWorld::Restore(const std::string& name, CrashTables* tables) const {
  const Checkpoint& checkpoint = checkpoints_.at(name);
  return tables->store()->Restore(Prefix(name), kSaveId,
                                  tables->Named(checkpoint.first, checkpoint.models.size()));
}

void CrashWorld::RemoveFiles(const std::string& name) const {
  const absl::StatusOr<std::vector<std::string>> files = ListDirectory(folder_);
  if (!files.ok()) return;
  for (const std::string& file : *files) {
    if (absl::StartsWith(file, absl::StrCat(name, ".data-"))) {
      RemoveTree(JoinPath(folder_, file)).IgnoreError();
    }
  }
}

absl::Status CrashWorld::Compare(const Models& models, size_t first, CrashTables* tables) {
  for (size_t t = 0; t < models.size(); ++t) {
    TieredTable* const table = tables->table(first + t);
    const auto expected = models[t].Rows();
    TF_HPS_ASSIGN_OR_RETURN(const int64_t size, table->Size());
    if (size != static_cast<int64_t>(expected.size())) {
      return Differs(absl::StrCat("table ", table->name(), " says it has ", size, " rows, not ",
                                  expected.size()));
    }
    TF_HPS_ASSIGN_OR_RETURN(const auto rows, tables->store()->Export(table));
    const size_t dim = static_cast<size_t>(rows->dim());
    const size_t state = dim * static_cast<size_t>(rows->slots());
    auto next = expected.begin();
    for (;;) {
      TableExport::Rows part;
      TF_HPS_RETURN_IF_ERROR(rows->Next(100, &part));
      if (part.keys.empty()) break;
      for (size_t k = 0; k < part.keys.size(); ++k, ++next) {
        const ExportedRow row = {
            {part.weights.begin() + k * dim, part.weights.begin() + (k + 1) * dim},
            {part.state.begin() + k * state, part.state.begin() + (k + 1) * state}};
        if (next == expected.end() || next->first != part.keys[k] || !(next->second == row)) {
          return Differs(absl::StrCat(
              "table ", table->name(), ", key ", part.keys[k], " has ",
              absl::StrJoin(row.weights, ","), "; ", absl::StrJoin(row.state, ","), ", expected ",
              next == expected.end()
                  ? "no such key"
                  : absl::StrCat(next->first, " ", absl::StrJoin(next->second.weights, ","), "; ",
                                 absl::StrJoin(next->second.state, ","))));
        }
      }
    }
    if (next != expected.end()) {
      return Differs(absl::StrCat("table ", table->name(), " lacks key ", next->first));
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_hps
