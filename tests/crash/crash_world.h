// What a process of the crash test does to a store: a sequence of operations that depends on its
// seed alone, so that the same sequence, done to models in memory, tells what must be in the store.

#ifndef TF_HPS_TESTS_CRASH_CRASH_WORLD_H_
#define TF_HPS_TESTS_CRASH_CRASH_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc_ops/engine/store.h"
#include "tests/engine/table_model.h"

namespace tf_hps {

// A store's tables, to be opened and attached by every process.
class CrashTables {
 public:
  // `seed` chooses budget and eviction policy: small, so that rows go to SSD all the time.
  static absl::StatusOr<CrashTables> Open(const std::string& path, uint64_t seed,
                                          int64_t keep_commits, int64_t commit = 0);

  Store* store() { return store_.get(); }
  TieredTable* table(size_t i) { return tables_[i].get(); }
  int64_t last_commit();
  absl::Status Close(bool commit) { return store_->Close(commit); }

  // All tables as Store::Save and Store::Restore want them, or `count` of them from `first`.
  std::vector<NamedTable> Named(size_t first, size_t count) const;

 private:
  std::shared_ptr<Store> store_;
  std::vector<std::shared_ptr<TieredTable>> tables_;
};

class CrashWorld {
 public:
  using Models = std::vector<TableModel>;

  // A checkpoint: the tables first .. first + models.size() - 1 as they were.
  struct Checkpoint {
    size_t first;
    Models models;
  };

  enum class Kind { kLookup, kCreate, kUpsert, kRemove, kTrain, kCommit, kSave, kRestore, kExport };

  // Checkpoints go to and come from `folder`.
  explicit CrashWorld(const std::string& folder);

  // What operation number `i` of the process with this seed is.
  static Kind KindOf(uint64_t seed, int64_t i);

  // Does it to the models and, unless null, to the store. InternalError: they differ.
  absl::Status Do(uint64_t seed, int64_t i, CrashTables* tables);

  // Whether the tables hold exactly these rows.
  static absl::Status Compare(const Models& models, size_t first, CrashTables* tables);

  const Models& models() const { return models_; }
  void set_models(const Models& models) { models_ = models; }

  // By name; those that may be restored.
  std::map<std::string, Checkpoint>& checkpoints() { return checkpoints_; }
  static std::string CheckpointName(uint64_t seed, int64_t i);
  std::string Prefix(const std::string& checkpoint) const { return folder_ + "/" + checkpoint; }
  absl::Status Restore(const std::string& name, CrashTables* tables) const;
  // As TensorFlow removes a checkpoint.
  void RemoveFiles(const std::string& name) const;

 private:
  struct Batch;

  const std::string folder_;
  Models models_;
  std::map<std::string, Checkpoint> checkpoints_;
};

}  // namespace tf_hps

#endif  // TF_HPS_TESTS_CRASH_CRASH_WORLD_H_
