#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

}  // namespace

REGISTER_OP("TfHps>ExportBegin")
    .Input("table: resource")
    .Output("iterator: resource")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Starts going through all rows of a table as they are now, by ascending key.

table: resource [].
iterator: resource []. Freed with its tensor.
)doc");

REGISTER_OP("TfHps>ExportNext")
    .Input("iterator: resource")
    .Input("max_rows: int64")
    .Output("keys: int64")
    .Output("values: float")
    .Output("state: float")
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &unused));
      int64_t dim;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      const DimensionHandle n = c->UnknownDim();
      c->set_output(0, c->Vector(n));
      c->set_output(1, c->Matrix(n, c->MakeDim(dim)));
      c->set_output(2, c->Matrix(n, c->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the next rows, as of the table's step at ExportBegin.

Fails with FailedPrecondition once the store is closed.

iterator: resource [], of ExportBegin.
max_rows: int64 [], at least 1.
keys: int64 [n], n <= max_rows; n = 0 at the end.
values: float32 [n, dim].
state: float32 [n, slots * dim]. The optimizer's slots one after another: momentum's m; adagrad's
  accumulator; adam's m, v and, with amsgrad, v_hat. slots = 0 before any step.
dim: the table's dim.
)doc");

}  // namespace tf_hps
