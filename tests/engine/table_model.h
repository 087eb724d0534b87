// A table as a plain map of rows: what a TieredTable must equal, bit by bit.

#ifndef TF_HPS_TESTS_ENGINE_TABLE_MODEL_H_
#define TF_HPS_TESTS_ENGINE_TABLE_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "cc_ops/engine/initializer.h"
#include "cc_ops/engine/optimizer.h"

namespace tf_hps {

struct ExportedRow {
  std::vector<float> weights;
  std::vector<float> state;
  bool operator==(const ExportedRow& other) const {
    return weights == other.weights && state == other.state;
  }
};

// Copyable: a copy is a snapshot.
class TableModel {
 public:
  // `optimizer` may be "", for none yet.
  TableModel(int dim, const std::string& initializer, int64_t seed, const std::string& salt,
             const std::string& optimizer)
      : dim_(dim),
        initializer_(*Initializer::Parse(initializer)),
        seed_(seed),
        salt_(salt),
        optimizer_(*OptimizerSpec::Parse(optimizer)) {}

  int dim() const { return dim_; }
  size_t size() const { return rows_.size(); }
  bool Contains(int64_t key) const { return rows_.count(key) > 0; }

  std::vector<float> Read(int64_t key) const {
    const auto it = rows_.find(key);
    return it == rows_.end() ? Initial(key).weights : CaughtUp(it->second).weights;
  }

  void Create(int64_t key) { Find(key); }

  void Upsert(int64_t key, const float* values) {
    Row& row = Find(key);
    row = CaughtUp(row);
    row.weights.assign(values, values + dim_);
  }

  void Remove(int64_t key) { rows_.erase(key); }

  void Apply(const std::vector<int64_t>& keys, const std::vector<float>& gradients,
             const std::string& optimizer, const std::vector<float>& hyperparameters) {
    const OptimizerSpec spec = *OptimizerSpec::Parse(optimizer);
    if (spec != optimizer_) SwitchTo(spec);
    std::map<int64_t, std::vector<float>> sums;
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& sum = sums[keys[i]];
      sum.resize(static_cast<size_t>(dim_));
      for (int j = 0; j < dim_; ++j) sum[j] += gradients[i * dim_ + j];
    }
    const RuleVariant rule = *optimizer_.Bind(hyperparameters);
    for (const auto& [key, sum] : sums) {
      Row& row = Find(key);
      row = CaughtUp(row);
      std::visit(
          [&, &gradient = sum](const auto& r) {
            r.UpdateRow(row.weights.data(), row.state.data(), gradient.data(), dim_);
          },
          rule);
      row.last_step = step_ + 1;
    }
    ++step_;
  }

  std::map<int64_t, ExportedRow> Rows() const {
    std::map<int64_t, ExportedRow> rows;
    for (const auto& [key, row] : rows_) {
      const Row now = CaughtUp(row);
      rows[key] = {now.weights, now.state};
    }
    return rows;
  }

 private:
  struct Row {
    std::vector<float> weights, state;
    uint32_t last_step;
  };

  Row Initial(int64_t key) const {
    Row row{std::vector<float>(static_cast<size_t>(dim_)), FreshState(), step_};
    initializer_.Fill(seed_, SaltOf(salt_), key, row.weights.data(), dim_);
    return row;
  }

  std::vector<float> FreshState() const {
    std::vector<float> state(static_cast<size_t>(dim_ * optimizer_.slots()));
    optimizer_.InitState(state.data(), dim_);
    return state;
  }

  Row& Find(int64_t key) {
    const auto it = rows_.find(key);
    return it != rows_.end() ? it->second : rows_.emplace(key, Initial(key)).first->second;
  }

  Row CaughtUp(Row row) const {
    if (optimizer_.idle() && step_ > row.last_step) {
      std::visit(
          [&](const auto& rule) {
            rule.CatchUp(row.weights.data(), row.state.data(), dim_, step_ - row.last_step);
          },
          optimizer_.ReadRule());
    }
    row.last_step = step_;
    return row;
  }

  // Rows keep the weights that they have now, and start with fresh state.
  void SwitchTo(const OptimizerSpec& optimizer) {
    for (auto& [key, row] : rows_) row = CaughtUp(row);
    optimizer_ = optimizer;
    for (auto& [key, row] : rows_) row.state = FreshState();
  }

  int dim_;
  Initializer initializer_;
  int64_t seed_;
  std::string salt_;
  OptimizerSpec optimizer_;
  uint32_t step_ = 0;
  std::map<int64_t, Row> rows_;
};

}  // namespace tf_hps

#endif  // TF_HPS_TESTS_ENGINE_TABLE_MODEL_H_
