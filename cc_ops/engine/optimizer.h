#ifndef TF_HPS_CC_OPS_ENGINE_OPTIMIZER_H_
#define TF_HPS_CC_OPS_ENGINE_OPTIMIZER_H_

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc_ops/engine/optimizer_rules.h"

namespace tf_hps {

// A rule with its hyperparameters bound. std::visit it around a batch's loop, not once per row.
using RuleVariant =
    std::variant<SgdRule, MomentumRule</*kNesterov=*/false>, MomentumRule</*kNesterov=*/true>,
                 AdagradRule, AdamRule</*kAmsgrad=*/false>, AdamRule</*kAmsgrad=*/true>>;

// What a table remembers of its optimizer: the kind, and what fixes the layout, the first value and
// the meaning of a row's state. Hyperparameters are not part of it: they come with every step. A
// small immutable value: copy it freely, use it from any thread.
//
//   spec                                    state slots    hyperparameters of a step
//   ""                                      none           cannot be bound
//   sgd                                     none           learning_rate
//   momentum(momentum=0.9,nesterov=0)       m              learning_rate, momentum
//   adagrad(initial_accumulator_value=0.1)  accumulator    learning_rate, epsilon
//   adam(amsgrad=0)                         m, v           learning_rate, beta_1, beta_2, epsilon,
//   t adam(amsgrad=1)                         m, v, v_hat    the same
//
// t is the number of this step, from 1. Momentum is in the spec also because untouched rows move by
// it when read.
class OptimizerSpec {
 public:
  enum class Kind { kNone, kSgd, kMomentum, kAdagrad, kAdam };

  // Kind kNone, the spec "": no optimizer yet.
  OptimizerSpec() = default;

  // Parses one of the specs above. InvalidArgument: an unknown name, a parameter that is missing,
  // unknown, repeated or out of its range (momentum in [0, 1], initial_accumulator_value >= 0 and
  // finite, flags 0 or 1).
  static absl::StatusOr<OptimizerSpec> Parse(absl::string_view spec);

  // The canonical spec, floats as Python's repr prints them.
  std::string ToString() const;

  Kind kind() const { return kind_; }

  // Floats of state per weight: a row is (1 + slots()) * dim floats.
  int slots() const;

  // Whether rows move in steps that do not touch them, so that reads and updates must catch up (the
  // rule's kIdle).
  bool idle() const { return kind_ == Kind::kMomentum; }

  // Writes the state of a fresh row to state [slots(), dim].
  void InitState(float* state, int dim) const;

  // The rule for one step. InvalidArgument names what was received and expected: another number of
  // hyperparameters, one that is not finite or out of its range (beta_1 and beta_2 in [0, 1),
  // epsilon >= 0, t >= 1), or a momentum that is not the spec's. FailedPrecondition: kind kNone.
  absl::StatusOr<RuleVariant> Bind(absl::Span<const float> hyperparameters) const;

  // The rule for reads alone (CatchUp and ReadCaughtUp), which need no step's hyperparameters. Kind
  // kNone gives the rule of sgd: no state, nothing to catch up.
  RuleVariant ReadRule() const;

  friend bool operator==(const OptimizerSpec& x, const OptimizerSpec& y) {
    return x.kind_ == y.kind_ && x.value_ == y.value_ && x.flag_ == y.flag_;
  }
  friend bool operator!=(const OptimizerSpec& x, const OptimizerSpec& y) { return !(x == y); }

 private:
  OptimizerSpec(Kind kind, double value, bool flag) : kind_(kind), value_(value), flag_(flag) {}

  absl::Status CheckHyperparameters(absl::Span<const float> hyperparameters) const;

  Kind kind_ = Kind::kNone;
  double value_ = 0;   // momentum or initial_accumulator_value, else 0
  bool flag_ = false;  // nesterov or amsgrad, else false
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_OPTIMIZER_H_
