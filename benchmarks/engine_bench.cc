// The engine alone, without TensorFlow's operations: what a lookup and an update cost per id.
//
//   tf_hps_engine_bench --case=lookup --threads=1 --seconds=10
//
// runs one case for long enough to profile it (`perf record -g`). All rows are in DRAM.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "cc_ops/engine/key_batch.h"
#include "cc_ops/engine/optimizer.h"
#include "cc_ops/engine/parallel.h"
#include "cc_ops/engine/stable_hash.h"
#include "cc_ops/engine/store.h"
#include "cc_ops/engine/tiered_table.h"

namespace tf_hps {
namespace {

struct Flags {
  std::map<std::string, std::string> values = {
      {"case", "all"},    {"rows", "5000000"},      {"dim", "16"},    {"ids", "106496"},
      {"batches", "16"},  {"exponent", "1.05"},     {"threads", "2"}, {"seconds", "2"},
      {"dram_bytes", ""}, {"optimizer", "adagrad"},
  };

  bool Parse(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      const bool named = argument.rfind("--", 0) == 0 && equals != std::string::npos;
      const auto value = values.find(named ? argument.substr(2, equals - 2) : "");
      if (value == values.end()) return false;
      value->second = argument.substr(equals + 1);
    }
    return true;
  }
  int64_t Int(const std::string& name) const { return std::atoll(values.at(name).c_str()); }
  double Double(const std::string& name) const { return std::atof(values.at(name).c_str()); }
};

// Threads that wait for work, as those of TensorFlow's pool do.
class Threads {
 public:
  explicit Threads(int64_t threads) {
    for (int64_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
  }
  ~Threads() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  void operator()(int64_t n, absl::FunctionRef<void(int64_t i)> task) {
    if (helpers_.empty()) return SerialFor(n, task);
    {
      std::lock_guard<std::mutex> lock(mu_);
      task_ = &task;
      n_ = n;
      next_.store(0);
      busy_ = static_cast<int64_t>(helpers_.size());
      ++round_;
    }
    changed_.notify_all();
    Run(n, task);
    std::unique_lock<std::mutex> lock(mu_);
    finished_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void Run(int64_t n, absl::FunctionRef<void(int64_t i)> task) {
    for (int64_t i = next_.fetch_add(1); i < n; i = next_.fetch_add(1)) task(i);
  }

  void Help() {
    std::unique_lock<std::mutex> lock(mu_);
    for (int64_t seen = 0;;) {
      changed_.wait(lock, [&] { return ended_ || round_ != seen; });
      if (ended_) return;
      seen = round_;
      lock.unlock();
      Run(n_, *task_);
      lock.lock();
      if (--busy_ == 0) finished_.notify_one();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::condition_variable finished_;
  absl::FunctionRef<void(int64_t)>* task_ = nullptr;
  std::atomic<int64_t> next_{0};
  int64_t n_ = 0;
  int64_t round_ = 0;
  int64_t busy_ = 0;
  bool ended_ = false;
  std::vector<std::thread> helpers_;
};

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Floats that begin on a cache line, as those of a tensor do.
std::unique_ptr<float, decltype(&std::free)> NewTensor(size_t floats, float value) {
  constexpr size_t kLine = 64;
  const size_t bytes = (floats * sizeof(float) + kLine - 1) / kLine * kLine;
  auto* const tensor = static_cast<float*>(std::aligned_alloc(kLine, bytes));
  std::fill(tensor, tensor + floats, value);
  return {tensor, &std::free};
}

int64_t KeyOf(int64_t index) { return static_cast<int64_t>(Mix64(static_cast<uint64_t>(index))); }

// Keys of [batches, ids], drawn by a Zipf distribution.
std::vector<std::vector<int64_t>> DrawBatches(const Flags& flags) {
  std::vector<double> cumulative(static_cast<size_t>(flags.Int("rows")));
  double sum = 0;
  for (size_t rank = 0; rank < cumulative.size(); ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -flags.Double("exponent"));
    cumulative[rank] = sum;
  }
  std::mt19937_64 random(20);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<std::vector<int64_t>> batches(static_cast<size_t>(flags.Int("batches")));
  for (auto& batch : batches) {
    for (int64_t i = 0; i < flags.Int("ids"); ++i) {
      const auto at = std::lower_bound(cumulative.begin(), cumulative.end() - 1, uniform(random));
      batch.push_back(KeyOf(at - cumulative.begin()));
    }
  }
  return batches;
}

class Bench {
 public:
  explicit Bench(const Flags& flags)
      : flags_(flags),
        dim_(static_cast<int>(flags.Int("dim"))),
        threads_(flags.Int("threads")),
        batches_(DrawBatches(flags)),
        optimizer_(*OptimizerSpec::Parse(flags.values.at("optimizer") == "adam"
                                             ? "adam(amsgrad=0)"
                                             : "adagrad(initial_accumulator_value=0.0)")),
        hyperparameters_(flags.values.at("optimizer") == "adam"
                             ? std::vector<float>{0.001f, 0.9f, 0.999f, 1e-7f, 1.0f}
                             : std::vector<float>{0.1f, 1e-7f}),
        out_(NewTensor(batches_[0].size() * static_cast<size_t>(dim_), 0)),
        gradient_(NewTensor(batches_[0].size() * static_cast<size_t>(dim_), 0.01f)) {
    StoreOptions options;
    options.dram_bytes = flags.Int("dram_bytes");
    if (options.dram_bytes == 0) {
      options.dram_bytes = (int64_t{64} << 20) + flags.Int("rows") * (16 * dim_ + 64);
    }
    auto store = Store::Open(options);
    Check(store.status());
    store_ = *store;
    auto table = store_->Attach({"rows", dim_, "constant(value=0.0)", 0, ""});
    Check(table.status());
    table_ = *table;
    Update({KeyOf(0)});  // so that rows are made with their state
    Fill();
  }

  void Lookup(const std::vector<int64_t>& keys) {
    Check(table_->Lookup(keys, out_.get(), std::ref(threads_)));
  }
  void Create(const std::vector<int64_t>& keys) {
    Check(table_->LookupOrCreate(keys, out_.get(), std::ref(threads_)));
  }
  void Update(const std::vector<int64_t>& keys) {
    Check(TieredTable::ApplyGradients({{table_.get(), keys, gradient_.get()}}, optimizer_,
                                      hyperparameters_, TieredTable::NonFinite::kError,
                                      std::ref(threads_)));
  }
  void Deduplicate(const std::vector<int64_t>& keys) {
    const KeyBatch batch(keys, 64, std::ref(threads_));
    if (batch.size() != static_cast<int64_t>(keys.size())) std::abort();
  }

  // Runs a case for the time that the flags say and prints a line.
  void Run(const std::string& name, const std::function<void(const std::vector<int64_t>&)>& work) {
    if (flags_.values.at("case") != "all" && flags_.values.at("case") != name) return;
    for (const auto& batch : batches_) work(batch);
    std::vector<double> seconds;
    double sum = 0;
    const std::clock_t cpu_begin = std::clock();
    while (sum < flags_.Double("seconds") || seconds.size() < 5) {
      const auto begin = std::chrono::steady_clock::now();
      work(batches_[seconds.size() % batches_.size()]);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      seconds.push_back(elapsed.count());
      sum += elapsed.count();
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    const std::vector<int64_t>& keys = batches_[0];
    const auto distinct = std::unordered_set<int64_t>(keys.begin(), keys.end()).size();
    const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC /
                       static_cast<double>(seconds.size());
    std::printf(
        "%-8s %8.3f ms, best %8.3f  %6.1f ns per id  %6.1f ns per distinct id  "
        "%8.3f ms of all cores  (%zu runs)\n",
        name.c_str(), median * 1e3, seconds[0] * 1e3,
        median * 1e9 / static_cast<double>(keys.size()),
        median * 1e9 / static_cast<double>(distinct), cpu * 1e3, seconds.size());
  }

 private:
  void Fill() {
    constexpr int64_t kChunk = 250000;
    std::vector<float> rows(static_cast<size_t>(kChunk * dim_), 0.5f);
    for (int64_t begin = 0; begin < flags_.Int("rows"); begin += kChunk) {
      std::vector<int64_t> keys;
      for (int64_t i = begin; i < std::min(begin + kChunk, flags_.Int("rows")); ++i) {
        keys.push_back(KeyOf(i * 1'000'000'007 % flags_.Int("rows")));  // hot rows lie apart
      }
      Check(table_->Upsert(keys, rows.data(), std::ref(threads_)));
    }
  }

  const Flags flags_;
  const int dim_;
  Threads threads_;
  const std::vector<std::vector<int64_t>> batches_;
  const OptimizerSpec optimizer_;
  const std::vector<float> hyperparameters_;
  const std::unique_ptr<float, decltype(&std::free)> out_;
  const std::unique_ptr<float, decltype(&std::free)> gradient_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<TieredTable> table_;
};

int Main(int argc, char** argv) {
  Flags flags;
  if (!flags.Parse(argc, argv)) {
    std::fprintf(stderr, "usage: %s [--flag=value]...; flags and their defaults:\n", argv[0]);
    for (const auto& [name, value] : flags.values) {
      std::fprintf(stderr, "  --%s=%s\n", name.c_str(), value.c_str());
    }
    std::fprintf(stderr, "cases: all, lookup, create, update, dedup\n");
    return 2;
  }
  Bench bench(flags);
  using Keys = std::vector<int64_t>;
  bench.Run("lookup", [&](const Keys& keys) { bench.Lookup(keys); });
  bench.Run("create", [&](const Keys& keys) { bench.Create(keys); });
  bench.Run("update", [&](const Keys& keys) { bench.Update(keys); });
  bench.Run("dedup", [&](const Keys& keys) { bench.Deduplicate(keys); });
  return 0;
}

}  // namespace
}  // namespace tf_hps

int main(int argc, char** argv) { return tf_hps::Main(argc, argv); }
