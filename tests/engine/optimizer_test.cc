#include "cc_ops/engine/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "cc_ops/engine/optimizer_rules.h"

namespace tf_hps {
namespace {

using Floats = std::vector<float>;

OptimizerSpec Parsed(const std::string& spec) {
  absl::StatusOr<OptimizerSpec> parsed = OptimizerSpec::Parse(spec);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

RuleVariant Bound(const OptimizerSpec& spec, const Floats& hyperparameters) {
  absl::StatusOr<RuleVariant> rule = spec.Bind(hyperparameters);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *rule;
}

// One row, its state after its weights, with a guard behind both.
struct Row {
  Row(const OptimizerSpec& spec, const Floats& weights)
      : dim(static_cast<int>(weights.size())), data((1 + spec.slots()) * dim + 1, -77.0f) {
    std::copy(weights.begin(), weights.end(), data.begin());
    spec.InitState(state(), dim);
  }
  ~Row() { EXPECT_EQ(data.back(), -77.0f); }

  float* weights() { return data.data(); }
  float* state() { return data.data() + dim; }

  void Update(const RuleVariant& rule, const Floats& grad) {
    std::visit([&](const auto& r) { r.UpdateRow(weights(), state(), grad.data(), dim); }, rule);
  }
  void CatchUp(const RuleVariant& rule, uint32_t idle) {
    std::visit([&](const auto& r) { r.CatchUp(weights(), state(), dim, idle); }, rule);
  }
  Floats Read(const RuleVariant& rule, uint32_t idle) {
    Floats out(dim);
    std::visit([&](const auto& r) { r.ReadCaughtUp(weights(), state(), out.data(), dim, idle); },
               rule);
    return out;
  }
  Floats Weights() { return Floats(weights(), weights() + dim); }

  int dim;
  Floats data;
};

// One float32 operation of the oracle: rounded to memory, so that no compiler fuses it with
// another.
float Rounded(volatile float x) { return x; }
float Times(float x, float y) { return Rounded(x * y); }
float Plus(float x, float y) { return Rounded(x + y); }
float Over(float x, float y) { return Rounded(x / y); }
float Root(float x) { return Rounded(static_cast<float>(std::sqrt(static_cast<double>(x)))); }

// One element of tf_keras 2.21's sparse update, operation by operation; s[0..2] are its slots.
using Oracle = void (*)(const Floats& h, float* w, float* s, float g);

void SgdOracle(const Floats& h, float* w, float*, float g) { *w = Plus(*w, Times(-g, h[0])); }

void MomentumOracle(const Floats& h, float* w, float* s, float g) {
  s[0] = Times(s[0], h[1]);
  s[0] = Plus(s[0], Times(-g, h[0]));
  *w = Plus(*w, s[0]);
}

void NesterovOracle(const Floats& h, float* w, float* s, float g) {
  s[0] = Times(s[0], h[1]);
  s[0] = Plus(s[0], Times(-g, h[0]));
  *w = Plus(*w, Times(-g, h[0]));
  *w = Plus(*w, Times(s[0], h[1]));
}

void AdagradOracle(const Floats& h, float* w, float* s, float g) {
  s[0] = Plus(s[0], Times(g, g));
  *w = Plus(*w, Over(Times(-h[0], g), Root(Plus(s[0], h[1]))));
}

// The betas of the tests are 0.9 and 0.999; Python computes 1 - beta in double.
void AdamMoments(float* s, float g) {
  const float c1 = static_cast<float>(1 - 0.9), c2 = static_cast<float>(1 - 0.999);
  s[0] = Plus(s[0], Times(-s[0], c1));
  s[0] = Plus(s[0], Times(g, c1));
  s[1] = Plus(s[1], Times(-s[1], c2));
  s[1] = Plus(s[1], Times(Times(g, g), c2));
}

void AdamWeight(const Floats& h, float* w, float m, float v) {
  const float p1 = Rounded(std::pow(h[1], h[4])), p2 = Rounded(std::pow(h[2], h[4]));
  const float alpha = Over(Times(h[0], Root(Plus(1, -p2))), Plus(1, -p1));
  *w = Plus(*w, -Over(Times(m, alpha), Plus(Root(v), h[3])));
}

void AdamOracle(const Floats& h, float* w, float* s, float g) {
  AdamMoments(s, g);
  AdamWeight(h, w, s[0], s[1]);
}

void AmsgradOracle(const Floats& h, float* w, float* s, float g) {
  AdamMoments(s, g);
  s[2] = std::max(s[2], s[1]);
  AdamWeight(h, w, s[0], s[2]);
}

struct RuleCase {
  const char* spec;
  int slots;
  Floats hyperparameters;  // Adam's t is set to the step
  Oracle oracle;
};

const RuleCase kCases[] = {
    {"sgd", 0, {0.1f}, SgdOracle},
    {"momentum(momentum=0.9,nesterov=0)", 1, {0.1f, 0.9f}, MomentumOracle},
    {"momentum(momentum=0.9,nesterov=1)", 1, {0.1f, 0.9f}, NesterovOracle},
    {"adagrad(initial_accumulator_value=0.1)", 1, {0.1f, 1e-7f}, AdagradOracle},
    {"adam(amsgrad=0)", 2, {0.01f, 0.9f, 0.999f, 1e-7f, 1}, AdamOracle},
    {"adam(amsgrad=1)", 3, {0.01f, 0.9f, 0.999f, 1e-7f, 1}, AmsgradOracle},
};

class EveryRuleTest : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const RuleCase& rule_case() const { return kCases[std::get<0>(GetParam())]; }
  int dim() const { return std::get<1>(GetParam()); }
  OptimizerSpec spec() const { return Parsed(rule_case().spec); }

  Floats HyperparametersAt(int step) const {
    Floats h = rule_case().hyperparameters;
    if (h.size() == 5) h[4] = static_cast<float>(step);
    return h;
  }

  Floats Random(float scale) {
    std::normal_distribution<float> normal(0, scale);
    Floats values(dim());
    for (float& x : values) x = normal(random_);
    return values;
  }

  std::mt19937 random_{17};
};

INSTANTIATE_TEST_SUITE_P(RulesAndDims, EveryRuleTest,
                         testing::Combine(testing::Range(0, 6), testing::Values(1, 3, 16, 129)));

TEST_P(EveryRuleTest, UpdatesBitForBitAsTfKerasDoes) {
  Row row(spec(), Random(1));
  Floats w = row.Weights();
  Floats slots = Floats(3 * dim(), spec().kind() == OptimizerSpec::Kind::kAdagrad ? 0.1f : 0.0f);
  for (int step = 1; step <= 50; ++step) {
    const Floats grad = Random(step % 7 == 0 ? 0 : 1.0f / step);
    const Floats h = HyperparametersAt(step);
    row.Update(Bound(spec(), h), grad);
    for (int j = 0; j < dim(); ++j) rule_case().oracle(h, &w[j], &slots[3 * j], grad[j]);
    ASSERT_EQ(row.Weights(), w) << rule_case().spec << " at step " << step;
    for (int k = 0; k < spec().slots(); ++k) {
      for (int j = 0; j < dim(); ++j) {
        ASSERT_EQ(row.state()[k * dim() + j], slots[3 * j + k]) << "slot " << k;
      }
    }
  }
}

TEST_P(EveryRuleTest, AReadAfterIdleStepsIsWhatCatchUpLeaves) {
  for (uint32_t idle : {0u, 1u, 2u, 3u, 17u, 1000u, 4294967295u}) {
    Row row(spec(), Random(1));
    const RuleVariant rule = Bound(spec(), HyperparametersAt(1));
    row.Update(rule, Random(1));
    const Floats before = row.data;
    const Floats read = row.Read(rule, idle);
    EXPECT_EQ(row.data, before);
    EXPECT_EQ(row.Read(spec().ReadRule(), idle), read);
    row.CatchUp(rule, idle);
    EXPECT_EQ(row.Weights(), read);
    if (idle == 0 || !spec().idle()) {
      EXPECT_EQ(row.data, before);
    }
  }
}

TEST_P(EveryRuleTest, TheSpecSaysWhatTheRuleSays) {
  EXPECT_EQ(spec().ToString(), rule_case().spec);
  EXPECT_EQ(spec().slots(), rule_case().slots);
  const RuleVariant rule = Bound(spec(), HyperparametersAt(1));
  EXPECT_EQ(spec().ReadRule().index(), rule.index());
  std::visit(
      [&](const auto& r) {
        EXPECT_EQ(r.kSlots, spec().slots());
        EXPECT_EQ(r.kIdle, spec().idle());
      },
      rule);
}

TEST_P(EveryRuleTest, RefusesAnotherCountAndWhatIsNotFinite) {
  const Floats good = HyperparametersAt(1);
  Floats longer = good, shorter = good;
  longer.push_back(1);
  shorter.pop_back();
  for (const Floats& h : {longer, shorter, Floats()}) {
    const absl::Status status = spec().Bind(h).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string want = "received " + std::to_string(h.size()) +
                             " hyperparameters, expected " + std::to_string(good.size()) +
                             " (learning_rate";
    EXPECT_NE(status.message().find(want), absl::string_view::npos) << status;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      Floats h = good;
      h[i] = bad;
      EXPECT_EQ(spec().Bind(h).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

class IdleTest : public testing::TestWithParam<std::tuple<double, int>> {
 protected:
  float mu() const { return static_cast<float>(std::get<0>(GetParam())); }
  bool nesterov() const { return std::get<1>(GetParam()) == 1; }
  OptimizerSpec spec() const {
    return Parsed("momentum(momentum=" + std::to_string(std::get<0>(GetParam())) +
                  ",nesterov=" + std::to_string(std::get<1>(GetParam())) + ")");
  }
  Row Moving() const {
    Row row(spec(), {0.5f, -1.0f, 0.25f});
    const float velocity[] = {0.125f, -0.3f, 1e-3f};
    std::copy(velocity, velocity + 3, row.state());
    return row;
  }
};

INSTANTIATE_TEST_SUITE_P(Momenta, IdleTest,
                         testing::Combine(testing::Values(0.0, 0.5, 0.9, 0.99, 0.999999, 1.0),
                                          testing::Values(0, 1)));

// In float32, as tf_keras moves an untouched row of a dense variable.
void IdleStep(float mu, bool nesterov, float* w, float* m) {
  *m = Times(*m, mu);
  *w = Plus(*w, nesterov ? Times(*m, mu) : *m);
}

TEST_P(IdleTest, OneIdleStepIsTfKerassBitForBit) {
  Row row = Moving(), oracle = Moving();
  row.CatchUp(spec().ReadRule(), 1);
  for (int j = 0; j < 3; ++j) {
    IdleStep(mu(), nesterov(), &oracle.weights()[j], &oracle.state()[j]);
  }
  EXPECT_EQ(row.data, oracle.data);
}

TEST_P(IdleTest, TheClosedFormIsTheStepsOneByOne) {
  for (uint32_t idle : {2u, 3u, 5u, 10u, 31u, 64u, 1000u, 100000u}) {
    Row row = Moving();
    row.CatchUp(spec().ReadRule(), idle);
    Row start = Moving();
    for (int j = 0; j < 3; ++j) {
      double w = start.weights()[j], m = start.state()[j], path = std::abs(w);
      for (uint32_t i = 0; i < idle; ++i) {
        m *= mu();
        w += nesterov() ? m * mu() : m;
        path += std::abs(m);
      }
      EXPECT_NEAR(row.weights()[j], w, 3e-7 * path) << idle << " steps";
      EXPECT_NEAR(row.state()[j], m, 2e-7 * std::abs(m) + 1e-44) << idle << " steps";
    }
  }
}

TEST_P(IdleTest, ManyFloatStepsAgreeToTheirRounding) {
  Row row = Moving(), steps = Moving();
  constexpr int kIdle = 200;
  row.CatchUp(spec().ReadRule(), kIdle);
  for (int i = 0; i < kIdle; ++i) {
    for (int j = 0; j < 3; ++j) {
      IdleStep(mu(), nesterov(), &steps.weights()[j], &steps.state()[j]);
    }
  }
  for (int j = 0; j < 3; ++j) {
    EXPECT_NEAR(row.weights()[j], steps.weights()[j], 2e-5 * std::abs(steps.weights()[j]) + 1e-6);
  }
}

TEST(OptimizerSpecTest, NoOptimizerHasNoStateAndCannotBeBound) {
  const OptimizerSpec none = Parsed("");
  EXPECT_EQ(none, OptimizerSpec());
  EXPECT_EQ(none.kind(), OptimizerSpec::Kind::kNone);
  EXPECT_EQ(none.ToString(), "");
  EXPECT_EQ(none.slots(), 0);
  EXPECT_FALSE(none.idle());
  EXPECT_EQ(none.Bind({}).status().code(), absl::StatusCode::kFailedPrecondition);
  Row row(none, {1, 2});
  EXPECT_EQ(row.Read(none.ReadRule(), 9), (Floats{1, 2}));
}

TEST(OptimizerSpecTest, EqualityIsOfKindAndParameters) {
  const char* specs[] = {"",
                         "sgd",
                         "momentum(momentum=0.9,nesterov=0)",
                         "momentum(momentum=0.8,nesterov=0)",
                         "momentum(momentum=0.9,nesterov=1)",
                         "adagrad(initial_accumulator_value=0.1)",
                         "adagrad(initial_accumulator_value=0.0)",
                         "adam(amsgrad=0)",
                         "adam(amsgrad=1)"};
  for (const char* x : specs) {
    for (const char* y : specs) EXPECT_EQ(Parsed(x) == Parsed(y), x == y) << x << " and " << y;
  }
}

TEST(OptimizerSpecTest, ParseRefusesOtherSpecsAndSaysWhatItReceived) {
  for (const char* spec :
       {"rmsprop", "sgd()", "sgd(momentum=0.9)", "momentum", "momentum(momentum=0.9)",
        "momentum(momentum=1.5,nesterov=0)", "momentum(momentum=-0.1,nesterov=0)",
        "momentum(momentum=0.9,nesterov=2)", "adagrad(initial_accumulator_value=-1)",
        "adagrad(initial_accumulator_value=nan)", "adam", "adam(amsgrad=0.5)", "adam(amsgrad=true)",
        "adam(amsgrad=0,amsgrad=0)", "adam(amsgrad=0", "(amsgrad=0)"}) {
    const absl::Status status = OptimizerSpec::Parse(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_NE(status.message().find("received"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("expected"), absl::string_view::npos) << status;
  }
}

TEST(OptimizerSpecTest, BindRefusesWhatIsOutOfRangeAndNamesIt) {
  const std::pair<const char*, Floats> cases[] = {
      {"adam(amsgrad=0)", {0.1f, 1.0f, 0.999f, 1e-7f, 1}},
      {"adam(amsgrad=0)", {0.1f, 0.9f, -0.1f, 1e-7f, 1}},
      {"adam(amsgrad=0)", {0.1f, 0.9f, 0.999f, -1e-7f, 1}},
      {"adam(amsgrad=0)", {0.1f, 0.9f, 0.999f, 1e-7f, 0}},
      {"adagrad(initial_accumulator_value=0.1)", {0.1f, -1.0f}},
      {"momentum(momentum=0.9,nesterov=0)", {0.1f, 0.8f}}};
  for (const auto& [spec, h] : cases) {
    const absl::Status status = Parsed(spec).Bind(h).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_NE(status.message().find("expected"), absl::string_view::npos) << status;
  }
}

TEST(OptimizerSpecTest, AnyFiniteLearningRateBinds) {
  for (float rate : {0.0f, -0.1f, 1e30f}) EXPECT_TRUE(Parsed("sgd").Bind({rate}).ok());
}

TEST(AdamRuleTest, BetaIsTakenAsTheNumberThatTheUserWrote) {
  const auto one_minus = [](float beta_2) {
    const RuleVariant rule = Bound(Parsed("adam(amsgrad=0)"), {0.1f, 0.9f, beta_2, 1e-7f, 1});
    return std::get<AdamRule<false>>(rule).one_minus_beta_2;
  };
  for (double beta : {0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.99999}) {
    EXPECT_EQ(one_minus(static_cast<float>(beta)), static_cast<float>(1 - beta)) << beta;
  }
}

TEST(AdamRuleTest, LateStepsHaveNoBiasCorrectionLeft) {
  const RuleVariant rule =
      Bound(Parsed("adam(amsgrad=0)"), {0.5f, 0.9f, 0.999f, 1e-7f, 16777216.0f});
  EXPECT_EQ(std::get<AdamRule<false>>(rule).alpha, 0.5f);
}

TEST(AdamRuleTest, AmsgradShowsANan) {
  AdamRule<true> rule;
  float w = 0, m = 0, v = std::numeric_limits<float>::quiet_NaN(), v_hat = 1;
  rule.Update(w, m, v, v_hat, 1.0f);
  EXPECT_TRUE(std::isnan(v_hat));
}

}  // namespace
}  // namespace tf_hps
