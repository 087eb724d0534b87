#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// keys [n] and values [n, dim], as inputs of these numbers.
absl::Status CheckPair(InferenceContext* c, int keys_input, int values_input) {
  ShapeHandle keys;
  ShapeHandle values;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(keys_input), 1, &keys));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(values_input), 2, &values));
  return c->Merge(c->Dim(keys, 0), c->Dim(values, 0), &unused);
}

}  // namespace

REGISTER_OP("TfHps>ApplyGradients")
    .Input("tables: N * resource")
    .Input("keys: N * int64")
    .Input("grads: N * float")
    .Input("hyperparameters: float")
    .Input("dense_step: int64")
    .Attr("N: int >= 1")
    .Attr("optimizer: string")
    .Attr("non_finite: {'error', 'skip', 'propagate'} = 'error'")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int n;
      TF_RETURN_IF_ERROR(c->GetAttr("N", &n));
      ShapeHandle unused;
      for (int i = 0; i < n; ++i) {
        TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
        TF_RETURN_IF_ERROR(CheckPair(c, n + i, 2 * n + i));
      }
      TF_RETURN_IF_ERROR(c->WithRank(c->input(3 * n), 1, &unused));
      return c->WithRank(c->input(3 * n + 1), 0, &unused);
    })
    .Doc(R"doc(
One optimizer step on rows of tables, creating the rows that keys lack.

Duplicate keys get one update by the sum of their gradients, summed in the order in which they
stand, also over entries that name one table. Every input of every table is checked and every row
read before anything changes.

The first step gives a table its optimizer, which fixes the state that rows carry. A step with
another one starts the state of all rows afresh; weights stay.

tables: N resources [].
keys: N times int64 [n_i].
grads: N times float32 [n_i, dim_i], dim_i being the table's.
hyperparameters: float32 [h]. sgd: learning rate. momentum: learning rate, momentum. adagrad:
  learning rate, epsilon. adam: learning rate, beta_1, beta_2, epsilon, t, the step's number from 1.
dense_step: int64 []. The step of the dense weights that goes with this one, from 1; the stores'
  commits carry it.
optimizer: canonical spec: "sgd", "momentum(momentum=0.9,nesterov=0)",
  "adagrad(initial_accumulator_value=0.1)" or "adam(amsgrad=0)".
non_finite: what to do about a row whose summed gradient is not finite. "error": InvalidArgument
  that names table and key. "skip": leave the row as it is. "propagate": apply it.
)doc");

REGISTER_OP("TfHps>Upsert")
    .Input("table: resource")
    .Input("keys: int64")
    .Input("values: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      return CheckPair(c, 1, 2);
    })
    .Doc(R"doc(
Sets the weights of rows. Rows that exist keep their optimizer state, new ones get a fresh one.

table: resource [].
keys: int64 [n]. Of duplicates the last one counts.
values: float32 [n, dim], dim being the table's.
)doc");

REGISTER_OP("TfHps>Remove")
    .Input("table: resource")
    .Input("keys: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      return c->WithRank(c->input(1), 1, &unused);
    })
    .Doc(R"doc(
Removes rows, optimizer state and all. Keys that have none are no error.

table: resource [].
keys: int64 [n].
)doc");

}  // namespace tf_hps
