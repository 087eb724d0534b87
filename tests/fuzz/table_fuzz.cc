// A libFuzzer target: the bytes choose operations on a table, which must equal a plain map.
//
// The first bytes choose budget, policy, dim and threads; then every operation is a byte and a few
// keys: lookups, prefetches, upserts, removals, optimizer steps with changing optimizers, exports,
// commits, reopening with another budget, saving and restoring. A difference or an error aborts.

#include <fuzzer/FuzzedDataProvider.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc_ops/engine/store.h"
#include "tests/engine/table_model.h"

namespace tf_hps {
namespace {

constexpr char kInitializer[] = "uniform(minval=-0.05,maxval=0.05)";
constexpr char kSaveId[] = "fuzzy";

struct Rule {
  const char* optimizer;
  std::vector<float> hyperparameters;
};

const std::vector<Rule>& Rules() {
  static const auto* const rules = new std::vector<Rule>{
      {"sgd", {0.1f}},
      {"adagrad(initial_accumulator_value=0.1)", {0.1f, 1e-7f}},
      {"momentum(momentum=0.9,nesterov=0)", {0.1f, 0.9f}},
      {"momentum(momentum=0.5,nesterov=1)", {0.1f, 0.5f}},
      {"adam(amsgrad=0)", {0.01f, 0.9f, 0.999f, 1e-7f, 3.0f}},
      {"adam(amsgrad=1)", {0.01f, 0.9f, 0.999f, 1e-7f, 3.0f}},
  };
  return *rules;
}

void Check(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "DIFFERENCE: %s\n", what.c_str());
  std::abort();
}

void CheckOk(const absl::Status& status) { Check(status.ok(), status.ToString()); }

template <typename T>
T Take(absl::StatusOr<T> result) {
  CheckOk(result.status());
  return *std::move(result);
}

// Two threads at least where there is something to do: locks are under test too.
void InThreads(int64_t n, absl::FunctionRef<void(int64_t)> task) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < n; i = next++) task(i);
  };
  std::thread helper(work);
  work();
  helper.join();
}

class Session {
 public:
  Session(const std::string& directory, FuzzedDataProvider* data)
      : directory_(directory),
        data_(data),
        dim_(data->ConsumeIntegralInRange(1, 9)),
        eviction_(data->ConsumeBool() ? "lfu" : "lru"),
        parallel_for_(data->ConsumeBool() ? ParallelFor(InThreads) : ParallelFor(SerialFor)),
        model_(dim_, kInitializer, 7, "t", ""),
        saved_(model_),
        committed_(model_) {
    Open();
  }

  void Run() {
    while (data_->remaining_bytes() > 0) Step();
    CheckAll();
    CheckOk(store_->Close(true));
  }

 private:
  void Open() {
    static constexpr int64_t kBudgets[] = {0, 1000, 4000, 20000, 1 << 20};
    store_.reset();
    StoreOptions options;
    options.path = directory_ + "/store";
    options.dram_bytes = data_->PickValueInArray(kBudgets);
    options.write_buffer_bytes = 2048;
    options.eviction = eviction_;
    store_ = Take(Store::Open(options));
    table_ = Take(store_->Attach({"t", dim_, kInitializer, 7, ""}));
  }

  // A stretch of neighbours or single keys, some of them at the ends of int64.
  std::vector<int64_t> Keys() {
    std::vector<int64_t> keys;
    if (data_->ConsumeBool()) {
      const int64_t first = data_->ConsumeIntegral<uint8_t>() * 8;
      const int64_t count = data_->ConsumeIntegralInRange(0, 80);
      for (int64_t i = 0; i < count; ++i) keys.push_back(first + i);
      return keys;
    }
    keys.resize(data_->ConsumeIntegralInRange<size_t>(0, 8));
    for (int64_t& key : keys) {
      static constexpr int64_t kOdd[] = {INT64_MIN, INT64_MIN + 1, -2, -1, 0, INT64_MAX};
      key =
          data_->ConsumeBool() ? data_->PickValueInArray(kOdd) : data_->ConsumeIntegral<int16_t>();
    }
    return keys;
  }

  std::vector<float> Values(size_t n) {
    std::vector<float> values(n * dim_);
    float value = static_cast<float>(data_->ConsumeIntegral<int8_t>()) / 16;
    for (float& v : values) v = value += 0.25f;
    return values;
  }

  void CheckRows(const std::vector<int64_t>& keys, const std::vector<float>& rows) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> row(rows.begin() + i * dim_, rows.begin() + (i + 1) * dim_);
      Check(row == model_.Read(keys[i]), "row of key " + std::to_string(keys[i]));
    }
  }

  void Step() {
    const int operation = data_->ConsumeIntegralInRange(0, 15);
    if (operation >= 10) return Manage(operation);
    const std::vector<int64_t> keys = Keys();
    std::vector<float> rows(keys.size() * dim_);
    if (operation < 2) {
      if (operation == 0) CheckOk(table_->Prefetch(keys, parallel_for_));
      CheckOk(table_->Lookup(keys, rows.data(), parallel_for_));
      CheckRows(keys, rows);
    } else if (operation < 4) {
      CheckOk(table_->LookupOrCreate(keys, rows.data(), parallel_for_));
      CheckRows(keys, rows);
      for (const int64_t key : keys) model_.Create(key);
    } else if (operation == 4) {
      rows = Values(keys.size());
      CheckOk(table_->Upsert(keys, rows.data(), parallel_for_));
      for (size_t i = 0; i < keys.size(); ++i) model_.Upsert(keys[i], rows.data() + i * dim_);
    } else if (operation == 5) {
      CheckOk(table_->Remove(keys, parallel_for_));
      for (const int64_t key : keys) model_.Remove(key);
    } else if (operation == 6) {
      const auto found = std::make_unique<bool[]>(keys.size());
      CheckOk(table_->Contains(keys, found.get(), parallel_for_));
      for (size_t i = 0; i < keys.size(); ++i) {
        Check(found[i] == model_.Contains(keys[i]), "contains " + std::to_string(keys[i]));
      }
    } else {
      if (operation == 7) rule_ = data_->ConsumeIntegralInRange<size_t>(0, Rules().size() - 1);
      rows = Values(keys.size());
      CheckOk(TieredTable::ApplyGradients(
          {{table_.get(), keys, rows.data()}}, *OptimizerSpec::Parse(Rules()[rule_].optimizer),
          Rules()[rule_].hyperparameters, TieredTable::NonFinite::kError, parallel_for_));
      model_.Apply(keys, rows, Rules()[rule_].optimizer, Rules()[rule_].hyperparameters);
    }
  }

  void Manage(int operation) {
    switch (operation) {
      case 10:
        CheckOk(store_->Commit().status());
        committed_ = model_;
        return;
      case 11:  // as if the process had been killed
        model_ = committed_;
        return Open();
      case 12:
        CheckOk(store_->Close(true));
        committed_ = model_;
        return Open();
      case 13:
        ++saves_;
        CheckOk(store_->Save(Prefix(), kSaveId, {{"t", table_}}));
        saved_ = model_;
        return;
      case 14:
        if (saves_ == 0) return;
        CheckOk(store_->Restore(Prefix(), kSaveId, {{"t", table_}}));
        model_ = saved_;
        return;
      default:
        return CheckAll();
    }
  }

  std::string Prefix() const { return directory_ + "/save-" + std::to_string(saves_); }

  void CheckAll() {
    const auto expected = model_.Rows();
    Check(Take(table_->Size()) == static_cast<int64_t>(expected.size()), "size");
    const std::shared_ptr<TableExport> all = Take(store_->Export(table_.get()));
    const int64_t chunk = data_->ConsumeIntegralInRange(1, 100);
    const size_t state = static_cast<size_t>(all->slots()) * dim_;
    auto next = expected.begin();
    for (;;) {
      TableExport::Rows rows;
      CheckOk(all->Next(chunk, &rows));
      if (rows.keys.empty()) break;
      for (size_t i = 0; i < rows.keys.size(); ++i, ++next) {
        Check(next != expected.end() && next->first == rows.keys[i], "keys of an export");
        const ExportedRow row = {
            {rows.weights.begin() + i * dim_, rows.weights.begin() + (i + 1) * dim_},
            {rows.state.begin() + i * state, rows.state.begin() + (i + 1) * state}};
        Check(row == next->second, "export of key " + std::to_string(rows.keys[i]));
      }
    }
    Check(next == expected.end(), "rows of an export");
  }

  const std::string directory_;
  FuzzedDataProvider* const data_;
  const int dim_;
  const std::string eviction_;
  const ParallelFor parallel_for_;
  TableModel model_, saved_, committed_;
  size_t rule_ = 0;
  int saves_ = 0;
  std::shared_ptr<Store> store_;
  std::shared_ptr<TieredTable> table_;
};

}  // namespace
}  // namespace tf_hps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size > 4096) return 0;
  FuzzedDataProvider data(bytes, size);
  const std::string directory = tf_hps::Take(tf_hps::MakeTemporaryDirectory());
  tf_hps::Session(directory, &data).Run();
  tf_hps::CheckOk(tf_hps::RemoveTree(directory));
  return 0;
}
