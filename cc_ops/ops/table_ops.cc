#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

}  // namespace

REGISTER_OP("TfHps>TableHandle")
    .Input("store: resource")
    .Output("table: resource")
    .Attr("table_name: string")
    .Attr("dim: int >= 1")
    .Attr("initializer: string")
    .Attr("seed: int")
    .Attr("salt: string = ''")
    .Attr("shared_name: string")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns a table of a store, made if the store has none of that name.

Initial rows are a function of (seed, salt, key). Fails with InvalidArgument, naming both
layouts, if the store has a table of that name with another dim, initializer, seed or salt.

store: resource [].
table: resource []. Keeps the store alive. Lives until it is destroyed, or the device's resources
  are; the table in the store lives on.
table_name: name of the table within the store.
dim: length of a row.
initializer: canonical spec: "uniform(minval=-0.05,maxval=0.05)", "normal(mean=0.0,stddev=0.05)",
  "truncated_normal(mean=0.0,stddev=0.05)" or "constant(value=0.0)".
seed: of the initial rows.
salt: what initial rows depend on besides; "" is the table's name.
shared_name: name of the resource on its device; unique for each table.
)doc");

REGISTER_OP("TfHps>TableDrop")
    .Input("table: resource")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      return c->WithRank(c->input(0), 0, &unused);
    })
    .Doc(R"doc(
Forgets a table and all of its rows. Operations on it fail with FailedPrecondition from then on.

table: resource [].
)doc");

REGISTER_OP("TfHps>Size")
    .Input("table: resource")
    .Output("size: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the number of rows of a table, on all tiers.

table: resource [].
size: int64 [].
)doc");

}  // namespace tf_hps
