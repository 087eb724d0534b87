#include "cc_ops/engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cc_ops/engine/canonical_spec.h"

namespace tf_hps {
namespace {

using Kind = OptimizerSpec::Kind;
using Names = absl::Span<const absl::string_view>;

constexpr absl::string_view kKindNames[] = {"", "sgd", "momentum", "adagrad", "adam"};

Names ParametersOf(Kind kind) {
  static constexpr absl::string_view kMomentum[] = {"momentum", "nesterov"};
  static constexpr absl::string_view kAdagrad[] = {"initial_accumulator_value"};
  static constexpr absl::string_view kAdam[] = {"amsgrad"};
  if (kind == Kind::kMomentum) return kMomentum;
  if (kind == Kind::kAdagrad) return kAdagrad;
  if (kind == Kind::kAdam) return kAdam;
  return {};
}

Names HyperparametersOf(Kind kind) {
  static constexpr absl::string_view kSgd[] = {"learning_rate"};
  static constexpr absl::string_view kMomentum[] = {"learning_rate", "momentum"};
  static constexpr absl::string_view kAdagrad[] = {"learning_rate", "epsilon"};
  static constexpr absl::string_view kAdam[] = {"learning_rate", "beta_1", "beta_2", "epsilon",
                                                "t"};
  if (kind == Kind::kSgd) return kSgd;
  if (kind == Kind::kMomentum) return kMomentum;
  if (kind == Kind::kAdagrad) return kAdagrad;
  if (kind == Kind::kAdam) return kAdam;
  return {};
}

absl::Status Unexpected(absl::string_view spec, absl::string_view name, double received,
                        absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("optimizer ", spec, " received ", name, "=",
                                                 PythonRepr(received), ", expected ", expected));
}

// What a hyperparameter's finite value must be, or "" where `value` is that.
absl::string_view ExpectedRange(absl::string_view name, float value) {
  if (name == "beta_1" || name == "beta_2") {
    return value >= 0 && value < 1 ? "" : "a value in [0, 1)";
  }
  if (name == "epsilon") return value >= 0 ? "" : "a value >= 0";
  if (name == "t") return value >= 1 ? "" : "the number of the step, from 1";
  return "";
}

// 1 - beta as tf_keras computes it: in double, from the number that the user wrote, of which `beta`
// is the nearest float. The shortest decimal that reads as that float is taken for the number:
// 1 - 0.999f is off by 1e-5 of itself, 1 - 0.999 is not.
float OneMinus(float beta) {
  for (int digits = 1; digits <= 9; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, beta);
    float back;
    double written;
    if (absl::SimpleAtof(text, &back) && back == beta && absl::SimpleAtod(text, &written)) {
      return static_cast<float>(1 - written);
    }
  }
  return 1 - beta;
}

template <bool kAmsgrad>
AdamRule<kAmsgrad> BindAdam(absl::Span<const float> h) {
  const float beta_1 = h[1], beta_2 = h[2], t = h[4];
  AdamRule<kAmsgrad> rule;
  const float beta_1_power = std::pow(beta_1, t);
  const float beta_2_power = std::pow(beta_2, t);
  rule.alpha = h[0] * std::sqrt(1 - beta_2_power) / (1 - beta_1_power);
  rule.one_minus_beta_1 = OneMinus(beta_1);
  rule.one_minus_beta_2 = OneMinus(beta_2);
  rule.epsilon = h[3];
  return rule;
}

template <bool kNesterov>
MomentumRule<kNesterov> BindMomentum(float learning_rate, double momentum) {
  MomentumRule<kNesterov> rule;
  rule.learning_rate = learning_rate;
  rule.momentum = static_cast<float>(momentum);
  return rule;
}

SgdRule BindSgd(float learning_rate) {
  SgdRule rule;
  rule.learning_rate = learning_rate;
  return rule;
}

AdagradRule BindAdagrad(float learning_rate, float epsilon) {
  AdagradRule rule;
  rule.learning_rate = learning_rate;
  rule.epsilon = epsilon;
  return rule;
}

}  // namespace

absl::StatusOr<OptimizerSpec> OptimizerSpec::Parse(absl::string_view spec) {
  if (spec.empty()) return OptimizerSpec();
  absl::StatusOr<CanonicalSpec> parsed = CanonicalSpec::Parse(spec);
  if (!parsed.ok()) return parsed.status();
  const auto* name = std::find(std::begin(kKindNames), std::end(kKindNames), parsed->name);
  if (name == std::end(kKindNames)) {
    return absl::InvalidArgumentError(absl::StrCat("received the optimizer \"", spec,
                                                   "\", expected sgd, momentum, adagrad or adam"));
  }
  const Kind kind = static_cast<Kind>(name - std::begin(kKindNames));
  absl::StatusOr<std::vector<double>> values = parsed->Values(ParametersOf(kind));
  if (!values.ok()) return values.status();
  const bool has_flag = kind == Kind::kMomentum || kind == Kind::kAdam;
  if (has_flag && values->back() != 0 && values->back() != 1) {
    return Unexpected(spec, ParametersOf(kind).back(), values->back(), "0 or 1");
  }
  const bool flag = has_flag && values->back() == 1;
  if (kind == Kind::kSgd || kind == Kind::kAdam) return OptimizerSpec(kind, 0, flag);
  const double value = values->front();
  if (kind == Kind::kMomentum && !(value >= 0 && value <= 1)) {
    return Unexpected(spec, "momentum", value, "a value in [0, 1]");
  }
  if (!(value >= 0)) return Unexpected(spec, "initial_accumulator_value", value, "a value >= 0");
  return OptimizerSpec(kind, value, flag);
}

std::string OptimizerSpec::ToString() const {
  const absl::string_view name = kKindNames[static_cast<int>(kind_)];
  const int flag = flag_ ? 1 : 0;
  switch (kind_) {
    case Kind::kMomentum:
      return absl::StrCat(name, "(momentum=", PythonRepr(value_), ",nesterov=", flag, ")");
    case Kind::kAdagrad:
      return absl::StrCat(name, "(initial_accumulator_value=", PythonRepr(value_), ")");
    case Kind::kAdam:
      return absl::StrCat(name, "(amsgrad=", flag, ")");
    case Kind::kNone:
    case Kind::kSgd:
      break;
  }
  return std::string(name);
}

int OptimizerSpec::slots() const {
  switch (kind_) {
    case Kind::kNone:
    case Kind::kSgd:
      return 0;
    case Kind::kMomentum:
    case Kind::kAdagrad:
      return 1;
    case Kind::kAdam:
      return flag_ ? 3 : 2;
  }
  return 0;
}

void OptimizerSpec::InitState(float* state, int dim) const {
  const float initial = kind_ == Kind::kAdagrad ? static_cast<float>(value_) : 0.0f;
  std::fill(state, state + slots() * static_cast<int64_t>(dim), initial);
}

absl::Status OptimizerSpec::CheckHyperparameters(absl::Span<const float> hyperparameters) const {
  const Names names = HyperparametersOf(kind_);
  if (hyperparameters.size() != names.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer ", ToString(), " received ", hyperparameters.size(),
        " hyperparameters, expected ", names.size(), " (", absl::StrJoin(names, ", "), ")"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const float value = hyperparameters[i];
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer ", ToString(), " received ",
                                                     names[i], "=", value,
                                                     ", expected a finite value"));
    }
    const absl::string_view expected = ExpectedRange(names[i], value);
    if (!expected.empty()) return Unexpected(ToString(), names[i], value, expected);
  }
  if (kind_ == Kind::kMomentum && hyperparameters[1] != static_cast<float>(value_)) {
    return Unexpected(ToString(), "momentum", hyperparameters[1], "the momentum of its spec");
  }
  return absl::OkStatus();
}

absl::StatusOr<RuleVariant> OptimizerSpec::Bind(absl::Span<const float> hyperparameters) const {
  if (kind_ == Kind::kNone) {
    return absl::FailedPreconditionError(
        "received hyperparameters for no optimizer, expected a spec such as sgd or adam");
  }
  if (absl::Status s = CheckHyperparameters(hyperparameters); !s.ok()) return s;
  const absl::Span<const float> h = hyperparameters;
  switch (kind_) {
    case Kind::kMomentum:
      if (flag_) return BindMomentum<true>(h[0], value_);
      return BindMomentum<false>(h[0], value_);
    case Kind::kAdagrad:
      return BindAdagrad(h[0], h[1]);
    case Kind::kAdam:
      if (flag_) return BindAdam<true>(h);
      return BindAdam<false>(h);
    case Kind::kNone:
    case Kind::kSgd:
      break;
  }
  return BindSgd(h[0]);
}

RuleVariant OptimizerSpec::ReadRule() const {
  switch (kind_) {
    case Kind::kMomentum:
      if (flag_) return BindMomentum<true>(0, value_);
      return BindMomentum<false>(0, value_);
    case Kind::kAdagrad:
      return AdagradRule();
    case Kind::kAdam:
      if (flag_) return AdamRule<true>();
      return AdamRule<false>();
    case Kind::kNone:
    case Kind::kSgd:
      break;
  }
  return SgdRule();
}

}  // namespace tf_hps
