#ifndef TF_HPS_CC_OPS_ENGINE_OPTIMIZER_RULES_H_
#define TF_HPS_CC_OPS_ENGINE_OPTIMIZER_RULES_H_

#include <cmath>
#include <cstdint>

#include "cc_ops/engine/host_device.h"

// One functor per update rule, for the CPU loop and the CUDA kernels alike. Each has
//
//   kSlots                          floats of state per weight
//   kIdle                           whether a row also moves in steps that do not touch it
//   Update(w, slots..., g)          one element, by reference: the rule itself
//   UpdateRow(w, state, grad, dim)  one row: w [dim], state [kSlots, dim], grad [dim], disjoint
//   CatchUp(w, state, dim, idle)    lets `idle` untouched steps pass over a row
//   ReadCaughtUp(w, state, out, dim, idle)  writes to out [dim] the weights that CatchUp would
//                                           leave, bit for bit; the row stays as it is
//
// The formulas are those of the sparse branch of tf_keras 2.21's optimizers, float32 operation by
// operation and in their order, so a touched row gets the same bits. Members are the bound
// hyperparameters; OptimizerSpec::Bind sets them. Rules are immutable while in use and safe to
// share between threads; two threads must not work on one row.
//
// A caller brings a row up to date with CatchUp before UpdateRow. Reads use ReadCaughtUp and write
// nothing back: CatchUp(a) then CatchUp(b) rounds differently from CatchUp(a + b), so if reads
// wrote, they would change results.

namespace tf_hps {

// For the rules that leave untouched rows alone: nothing to catch up.
struct RuleWithoutIdle {
  static constexpr bool kIdle = false;

  TF_HPS_HOST_DEVICE void CatchUp(float* /*w*/, float* /*state*/, int /*dim*/,
                                  uint32_t /*idle*/) const {}

  TF_HPS_HOST_DEVICE void ReadCaughtUp(const float* __restrict w, const float* /*state*/,
                                       float* __restrict out, int dim, uint32_t /*idle*/) const {
    for (int j = 0; j < dim; ++j) out[j] = w[j];
  }
};

// tf_keras SGD without momentum.
struct SgdRule : RuleWithoutIdle {
  static constexpr int kSlots = 0;

  float learning_rate = 0;

  TF_HPS_HOST_DEVICE void Update(float& w, float g) const { w += -g * learning_rate; }

  TF_HPS_HOST_DEVICE void UpdateRow(float* __restrict w, float* /*state*/,
                                    const float* __restrict grad, int dim) const {
    for (int j = 0; j < dim; ++j) Update(w[j], grad[j]);
  }
};

// tf_keras SGD with momentum. There the velocity m of every row decays and moves the row's weights
// at every step, whether the batch touches the row or not:
//
//   touched:  m = m * mu - g * lr;  w += m   (Nesterov: w += -g * lr, then w += m * mu)
//   idle:     m = m * mu;           w += m   (Nesterov: w += m * mu)
//
// so k idle steps are w += m * (mu + mu^2 + ... + mu^k), once more times mu for Nesterov, and
// m *= mu^k. One idle step gives tf_keras's very bits; more agree to the rounding of single steps.
template <bool kNesterov>
struct MomentumRule {
  static constexpr int kSlots = 1;
  static constexpr bool kIdle = true;

  float learning_rate = 0;
  float momentum = 0;  // in [0, 1]

  TF_HPS_HOST_DEVICE void Update(float& w, float& m, float g) const {
    const float add = -g * learning_rate;
    m = m * momentum + add;
    w = kNesterov ? (w + add) + m * momentum : w + m;
  }

  TF_HPS_HOST_DEVICE void UpdateRow(float* __restrict w, float* __restrict state,
                                    const float* __restrict grad, int dim) const {
    for (int j = 0; j < dim; ++j) Update(w[j], state[j], grad[j]);
  }

  TF_HPS_HOST_DEVICE void CatchUp(float* __restrict w, float* __restrict state, int dim,
                                  uint32_t idle) const {
    if (idle == 0) return;
    const Decay decay = DecayOver(idle);
    for (int j = 0; j < dim; ++j) {
      w[j] = Moved(w[j], state[j], decay);
      state[j] *= decay.power;
    }
  }

  TF_HPS_HOST_DEVICE void ReadCaughtUp(const float* __restrict w, const float* __restrict state,
                                       float* __restrict out, int dim, uint32_t idle) const {
    if (idle == 0) {
      for (int j = 0; j < dim; ++j) out[j] = w[j];
      return;
    }
    const Decay decay = DecayOver(idle);
    for (int j = 0; j < dim; ++j) out[j] = Moved(w[j], state[j], decay);
  }

 private:
  struct Decay {
    float power;  // mu^k
    float sum;    // mu + mu^2 + ... + mu^k
  };

  // By doubling, k's bits from the lowest: sum(a + b) = sum(a) + mu^a * sum(b). Adds only terms >=
  // 0, so it holds its precision up to mu = 1, where (1 - mu^k) / (1 - mu) does not.
  TF_HPS_HOST_DEVICE Decay DecayOver(uint32_t k) const {
    double power = 1, sum = 0;                        // of the bits seen so far
    double bit_power = momentum, bit_sum = momentum;  // of the current bit alone
    for (; k != 0; k >>= 1) {
      if (k & 1) {
        sum += power * bit_sum;
        power *= bit_power;
      }
      bit_sum += bit_power * bit_sum;
      bit_power *= bit_power;
    }
    return {static_cast<float>(power), static_cast<float>(sum)};
  }

  TF_HPS_HOST_DEVICE float Moved(float w, float m, const Decay& decay) const {
    return kNesterov ? w + (m * decay.sum) * momentum : w + m * decay.sum;
  }
};

// tf_keras Adagrad. (In a graph, TensorFlow's optimizer may turn its division by a square root into
// a product with rsqrt, an ulp away from its own eager result; this is the eager one.)
struct AdagradRule : RuleWithoutIdle {
  static constexpr int kSlots = 1;

  float learning_rate = 0;
  float epsilon = 0;

  TF_HPS_HOST_DEVICE void Update(float& w, float& accumulator, float g) const {
    accumulator += g * g;
    w += (-learning_rate * g) / std::sqrt(accumulator + epsilon);
  }

  TF_HPS_HOST_DEVICE void UpdateRow(float* __restrict w, float* __restrict state,
                                    const float* __restrict grad, int dim) const {
    for (int j = 0; j < dim; ++j) Update(w[j], state[j], grad[j]);
  }
};

// tf_keras Adam, lazily: moments decay and weights move only in the steps that touch the row.
template <bool kAmsgrad>
struct AdamRule : RuleWithoutIdle {
  static constexpr int kSlots = kAmsgrad ? 3 : 2;

  float alpha = 0;             // lr * sqrt(1 - beta_2^t) / (1 - beta_1^t)
  float one_minus_beta_1 = 0;  // of the double that the user wrote, rounded once
  float one_minus_beta_2 = 0;
  float epsilon = 0;

  TF_HPS_HOST_DEVICE void UpdateMoments(float& m, float& v, float g) const {
    m += -m * one_minus_beta_1;
    m += g * one_minus_beta_1;
    v += -v * one_minus_beta_2;
    v += (g * g) * one_minus_beta_2;
  }

  TF_HPS_HOST_DEVICE void UpdateWeight(float& w, float m, float v) const {
    w -= (m * alpha) / (std::sqrt(v) + epsilon);
  }

  TF_HPS_HOST_DEVICE void Update(float& w, float& m, float& v, float g) const {
    UpdateMoments(m, v, g);
    UpdateWeight(w, m, v);
  }

  TF_HPS_HOST_DEVICE void Update(float& w, float& m, float& v, float& v_hat, float g) const {
    UpdateMoments(m, v, g);
    v_hat = v_hat > v ? v_hat : v;  // a NaN in v shows
    UpdateWeight(w, m, v_hat);
  }

  TF_HPS_HOST_DEVICE void UpdateRow(float* __restrict w, float* __restrict state,
                                    const float* __restrict grad, int dim) const {
    float* __restrict m = state;
    float* __restrict v = state + dim;
    if constexpr (kAmsgrad) {
      float* __restrict v_hat = v + dim;
      for (int j = 0; j < dim; ++j) Update(w[j], m[j], v[j], v_hat[j], grad[j]);
    } else {
      for (int j = 0; j < dim; ++j) Update(w[j], m[j], v[j], grad[j]);
    }
  }
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_ENGINE_OPTIMIZER_RULES_H_
