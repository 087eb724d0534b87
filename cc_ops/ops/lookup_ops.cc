#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// (table [], keys [...], anchor) -> [..., dim]
absl::Status RowsShape(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
  int64_t dim;
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  ShapeHandle rows;
  TF_RETURN_IF_ERROR(c->Concatenate(c->input(1), c->Vector(dim), &rows));
  c->set_output(0, rows);
  return absl::OkStatus();
}

}  // namespace

#define TF_HPS_REGISTER_LOOKUP_OP(name) \
  REGISTER_OP(name)                     \
      .Input("table: resource")         \
      .Input("keys: Tkeys")             \
      .Input("anchor: float")           \
      .Output("rows: float")            \
      .Attr("Tkeys: {int32, int64}")    \
      .Attr("dim: int >= 1")            \
      .Attr("input_dim: int >= 0 = 0")  \
      .SetIsStateful()                  \
      .SetShapeFn(RowsShape)

TF_HPS_REGISTER_LOOKUP_OP("TfHps>Lookup").Doc(R"doc(
Returns the rows of `keys`, and changes nothing. Unseen keys read as their initial rows.

Fails with InvalidArgument if a key is outside [0, input_dim), or `dim` is not the table's; with
FailedPrecondition if the table's store is closed; with an error that names the path if a row
cannot be read from SSD.

>>> rows = Lookup(table, keys=[[7, 8, 7]], anchor=0.0, dim=4)   # [1, 3, 4]

table: resource [].
keys: int32 or int64, any shape [...].
anchor: float32, any shape. Not read: the gradient of the rows arrives here, as slices by key.
rows: float32 [..., dim].
dim: the table's dim.
input_dim: keys are in [0, input_dim). 0: every int64 is a key.
)doc");

TF_HPS_REGISTER_LOOKUP_OP("TfHps>LookupOrCreate").Doc(R"doc(
Returns the rows of `keys` for training: unseen keys get their initial rows, uses are counted.

Fails as Lookup does, and if rows that leave DRAM cannot be written to SSD; nothing has changed then.

table: resource [].
keys: int32 or int64, any shape [...].
anchor: float32, any shape. Not read: the gradient of the rows arrives here, as slices by key.
rows: float32 [..., dim].
dim: the table's dim.
input_dim: keys are in [0, input_dim). 0: every int64 is a key.
)doc");

REGISTER_OP("TfHps>Prefetch")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Attr("Tkeys: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      return c->WithRank(c->input(0), 0, &unused);
    })
    .Doc(R"doc(
Brings rows that are on SSD into DRAM, for training that will soon use them.

Changes no row and creates none, so it can run beside all else. Rows for which there is no room stay
where they are. Fails with FailedPrecondition if the table's store is closed, and with an error that
names the path if a row cannot be read from SSD.

table: resource [].
keys: int32 or int64, any shape. Keys without a row are fine.
)doc");

REGISTER_OP("TfHps>Contains")
    .Input("table: resource")
    .Input("keys: int64")
    .Output("contained: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      c->set_output(0, c->input(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Tells which keys have a row: were created or written, and not removed.

table: resource [].
keys: int64, any shape [...].
contained: bool [...].
)doc");

}  // namespace tf_hps
