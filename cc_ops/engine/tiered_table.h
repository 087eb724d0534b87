// One table: rows of one layout, moved between the dram and the ssd tier.
//
// Every operation on a batch runs the same way. The keys are grouped by partition and deduplicated
// (KeyBatch). A training operation then prepares: it finds the rows in dram, fetches the others
// from SSD or makes their initial rows, and makes room; all that can fail happens here, before any
// row has changed. Then it commits: rows are changed in memory, fetched ones are put into the dram
// tier, beyond its limit when a batch is larger than that, and the excess is evicted at the end.

#ifndef TF_HPS_CC_OPS_ENGINE_TIERED_TABLE_H_
#define TF_HPS_CC_OPS_ENGINE_TIERED_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc_ops/engine/dram_partition.h"
#include "cc_ops/engine/initializer.h"
#include "cc_ops/engine/key_batch.h"
#include "cc_ops/engine/mutex.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/parallel.h"
#include "cc_ops/engine/row.h"
#include "cc_ops/engine/store_context.h"
#include "cc_ops/engine/table_export.h"
#include "cc_ops/engine/table_state.h"

namespace tf_hps {

class TieredTable {
 public:
  // A table as `state` describes it, whose rows, if any, are on SSD. The caller holds the gate
  // exclusively.
  static absl::StatusOr<std::shared_ptr<TieredTable>> Create(std::shared_ptr<StoreContext> context,
                                                             const TableState& state);
  ~TieredTable();
  TieredTable(const TieredTable&) = delete;
  TieredTable& operator=(const TieredTable&) = delete;

  const std::string& name() const { return name_; }
  int dim() const { return dim_; }

  // Thread-safe: all of the following. FailedPrecondition once the store is closed or the table
  // dropped. Errors of the ssd tier come through, and leave the rows as they were.

  // Reads rows into out [keys, dim]; unseen keys read as their initial rows. Changes nothing.
  absl::Status Lookup(absl::Span<const int64_t> keys, float* out, ParallelFor parallel_for);

  // The same for training: unseen keys get their rows, frequencies are counted.
  absl::Status LookupOrCreate(absl::Span<const int64_t> keys, float* out, ParallelFor parallel_for);

  // Brings rows that are on SSD into dram, where they stay, if they can, until training uses them.
  // Creates none and changes none; may run beside everything else.
  absl::Status Prefetch(absl::Span<const int64_t> keys, ParallelFor parallel_for);

  // Sets weights from values [keys, dim]; of duplicates the last one counts. New rows get fresh
  // state, others keep theirs.
  absl::Status Upsert(absl::Span<const int64_t> keys, const float* values,
                      ParallelFor parallel_for);

  // Removes rows with their state. Keys without a row are fine.
  absl::Status Remove(absl::Span<const int64_t> keys, ParallelFor parallel_for);

  // out [keys]: whether the key has a row.
  absl::Status Contains(absl::Span<const int64_t> keys, bool* out, ParallelFor parallel_for);

  // Rows on all tiers.
  absl::StatusOr<int64_t> Size();

  // What to do with a row whose summed gradient is not finite.
  enum class NonFinite { kError, kSkip, kPropagate };

  struct Gradients {
    TieredTable* table;
    absl::Span<const int64_t> keys;
    const float* values;  // [keys, dim]
  };

  // One optimizer step on all of `gradients`, which may name a table several times; duplicate keys
  // are summed in the order in which they stand. Nothing has changed when it fails. All tables live
  // in open stores. `dense_step`, if positive, is the step of the dense weights that goes with it.
  static absl::Status ApplyGradients(absl::Span<const Gradients> gradients,
                                     const OptimizerSpec& optimizer,
                                     absl::Span<const float> hyperparameters, NonFinite non_finite,
                                     ParallelFor parallel_for, int64_t dense_step = 0);

  // Names and values of counters, "dram/hits" and so on.
  void AppendStats(std::vector<std::pair<std::string, double>>* stats);

  // For the store, which holds the gate: its tables' one.

  void AssertGateShared() const ABSL_ASSERT_SHARED_LOCK(context_->gate) {}
  void AssertGateExclusive() const ABSL_ASSERT_EXCLUSIVE_LOCK(context_->gate) {}
  uint32_t id() const ABSL_SHARED_LOCKS_REQUIRED(context_->gate) { return id_; }

  // For the store, which holds the gate exclusively during these.

  // Writes every dirty row to the ssd tier.
  absl::Status FlushDirty(ParallelFor parallel_for) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  TableState GetState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // A scan of the rows, which FlushDirty() must have put on SSD.
  absl::StatusOr<std::unique_ptr<TableExport>> NewExport()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // Forgets what is in dram and takes another state, whose rows are on SSD under its id.
  absl::Status Reset(const TableState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  // The end of a table that its store drops, or whose store closes: frees its memory.
  void Release(bool dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);

  // For the store's balancing of tables, which holds no lock.

  int64_t dram_bytes() const { return dram_bytes_.load(std::memory_order_relaxed); }
  int64_t quota() const { return quota_.load(std::memory_order_relaxed); }
  bool hungry() const { return hungry_.load(std::memory_order_relaxed); }
  void SetQuota(int64_t bytes);
  // Evicts down to the quota if no training operation is under way; that one does it by itself
  // otherwise.
  void TrimIfIdle();

 private:
  struct Partition;
  struct Prepared;
  struct Batch;
  struct FetchedRow;
  struct DirtyRow;

  // Since the store was opened. Of a batch, a miss is a distinct key that has to be fetched, a hit
  // is any other occurrence.
  struct Counters {
    std::atomic<int64_t> dram_hits{0};
    std::atomic<int64_t> dram_misses{0};
    std::atomic<int64_t> dram_inserts{0};
    std::atomic<int64_t> dram_evictions{0};
    std::atomic<int64_t> dram_prefetched{0};
    std::atomic<int64_t> ssd_hits{0};
    std::atomic<int64_t> ssd_misses{0};
    std::atomic<int64_t> ssd_inserts{0};
    std::atomic<int64_t> ssd_writes{0};

    static void Add(std::atomic<int64_t>* counter, int64_t n) {
      counter->fetch_add(n, std::memory_order_relaxed);
    }
  };

  TieredTable(std::shared_ptr<StoreContext> context, const TableState& state);

  absl::Status CheckOpen() const ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void ResetPartitions();

  // Rows, in tiered_table.cc. ReadWeights gives the weights as of the table's step, CatchUp brings
  // the row there.
  void ReadWeights(const Row& row, float* out) const;
  void CatchUp(const Row& row) const;
  void InitializeRow(int64_t key, const Row& row) const;

  // Fetching, in table_fetch.cc. ReadMisses reads the batch's misses, as far as they are on SSD:
  // they then have kRowOnSsd in their flags, the others none: InitializeOthers is for these.
  absl::Status ReadMisses(Batch* batch, ParallelFor parallel_for)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status DecodeFetched(int64_t key, absl::string_view value, const Row& row) const;
  void InitializeOthers(int64_t p, Batch* batch);

  // Reads, in table_lookup.cc.
  class AllRowsShared;
  template <typename Dim>
  void ReadShard(absl::Span<const int64_t> keys, int64_t begin, int64_t end, Dim dim, float* out,
                 std::vector<int32_t>* missing);
  absl::Status ReadMissing(absl::Span<const int64_t> keys, absl::Span<const int32_t> missing,
                           float* out, ParallelFor parallel_for)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void CacheFetched(int64_t p, Batch* batch) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status ContainsPartition(const KeyBatch& batch, int64_t p, bool* out)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);

  // Prefetching, in table_prefetch.cc.
  void BeginReadingAhead(int64_t p);
  std::vector<int64_t> EndReadingAhead(int64_t p);  // keys written since, ascending
  // Has add() put keys that have just been written to or removed from SSD into a list, if a
  // prefetch has to know.
  void NoteWritten(int64_t p, absl::FunctionRef<void(std::vector<int64_t>* keys)> add);
  void FindAhead(int64_t p, Batch* batch);
  void KeepAhead(int64_t p, absl::Span<const int64_t> written, Batch* batch)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);

  // Changes, in table_training.cc; the training lock is held.
  // read(batch), if there is one, comes when all rows are changed and still in dram.
  absl::Status Modify(absl::Span<const int64_t> keys, ParallelFor parallel_for,
                      absl::FunctionRef<void(int64_t p, Batch* batch)> commit,
                      const absl::FunctionRef<void(const KeyBatch& batch)>* read);
  // What can fail: makes all of the batch's rows of a partition ready.
  absl::Status Prepare(Batch* batch, ParallelFor search_for, ParallelFor parallel_for)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  // Its steps, with ReadMisses between them: finds what dram has; makes initial rows and room.
  absl::Status Search(int64_t p, Batch* batch) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status MakeReady(int64_t p, Batch* batch) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void Abandon(int64_t p, Batch* batch);
  // What cannot: ChangeRows once for each partition, then Settle.
  template <typename Change>
  void ChangeRows(int64_t p, int64_t bytes, Batch* batch, Change change)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void Settle(int64_t p, Batch* batch) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void FindRows(int64_t p, Batch* batch);
  void InsertFetched(int64_t p, Batch* batch);
  DramPartition::Position InsertRow(int64_t p, int64_t key, uint64_t hash, const Row& row);
  // Puts clean rows into dram that are not there yet, as many as there is room for. Returns how
  // many.
  int64_t KeepRows(int64_t p, absl::Span<const FetchedRow> rows)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void Pin(int64_t p, Batch* batch);
  void Unpin(int64_t p, Batch* batch);
  absl::Status RemovePartition(const KeyBatch& batch, int64_t p)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  // What every operation that may put rows into dram, or holds the training lock, ends with,
  // whether it failed or not, when it has given up its locks.
  void ReportPressure();
  class PressureReport;

  // What leaves dram, in table_eviction.cc; the training lock is held.
  absl::Status MakeRoom(int64_t p, int64_t slots) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status Evict(int64_t p, absl::Span<const DramPartition::Entry> victims)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status WriteRows(int64_t p, absl::Span<const DramPartition::Entry> entries)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  // Rows of an instance's partitions; sorts them.
  absl::Status WriteToInstance(int instance, std::vector<DirtyRow>* dirty)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  absl::Status FlushInstance(int instance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  absl::Status Trim(int64_t p) ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  void UpdateUsage(int64_t p);

  // Optimizer steps, in table_update.cc.
  struct Step;
  static std::vector<std::unique_ptr<Step>> GroupByTable(absl::Span<const Gradients> gradients);
  static absl::Status ApplySteps(absl::Span<const std::unique_ptr<Step>> steps,
                                 const RuleVariant& rule, NonFinite non_finite,
                                 ParallelFor parallel_for);
  // The same where tables have another optimizer until now, or none: they keep it if the step
  // fails. Gates are held exclusively.
  static absl::Status ApplyFirstSteps(absl::Span<const std::unique_ptr<Step>> steps,
                                      const OptimizerSpec& optimizer, const RuleVariant& rule,
                                      NonFinite non_finite, ParallelFor parallel_for);
  bool HasOptimizer(const OptimizerSpec& optimizer);
  // Puts all rows on SSD, with the weights that they have at the table's step: another optimizer
  // does not know how they would have moved.
  absl::Status SettleRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  void SwitchOptimizer(const OptimizerSpec& optimizer, uint32_t state_epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(context_->gate);
  void MakeBatch(Step* step, ParallelFor parallel_for);
  absl::Status SumGradients(int64_t p, Step* step, NonFinite non_finite);
  template <typename Rule>
  void ApplyRule(int64_t p, Step* step, const Rule& rule)
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);

  // The i-th partition in an order in which neighbors belong to different LevelDB instances, so
  // that those who go through it in parallel do not wait for each other.
  int64_t PartitionAt(int64_t i) const ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  // Runs task(p) for all partitions and returns one of their errors, if any failed.
  absl::Status ForEachPartition(ParallelFor parallel_for,
                                absl::FunctionRef<absl::Status(int64_t p)> task) const
      ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  int InstanceOf(int64_t p) const ABSL_SHARED_LOCKS_REQUIRED(context_->gate);
  uint32_t IdleSteps(const Row& row) const;

  const std::shared_ptr<StoreContext> context_;
  const std::string name_;
  const int dim_;

  // Change only under an exclusive gate.
  uint32_t id_ = 0;
  uint32_t state_epoch_ = 0;
  bool dropped_ = false;
  std::string initializer_spec_;
  Initializer initializer_;
  int64_t seed_ = 0;
  std::string salt_;
  uint64_t salt_hash_ = 0;
  OptimizerSpec optimizer_;
  RuleVariant read_rule_;
  RowLayout layout_;
  std::unique_ptr<Partition[]> partitions_;
  int64_t partition_count_ = 0;

  // One prefetch at a time. Taken after the gate, before the training lock.
  Mutex prefetch_mu_;
  // One training operation at a time. Taken after the gate, before a partition's lock; of several
  // tables in the order of ids.
  Mutex training_mu_;
  // The last batch that training looked up, with the places of its rows: its gradients come next.
  // For the holder of the training lock, or of the gate exclusively.
  std::unique_ptr<Batch> last_lookup_;

  Counters counters_;
  std::atomic<uint32_t> step_{0};  // optimizer steps that named the table
  std::atomic<int64_t> rows_{0};
  std::atomic<int64_t> ssd_rows_{0};
  std::atomic<int64_t> dram_bytes_{0};
  std::atomic<int64_t> quota_{0};
  std::atomic<bool> hungry_{true};
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_TIERED_TABLE_H_
