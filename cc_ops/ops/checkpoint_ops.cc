#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Scalars, then names [N] and N tables [].
absl::Status CheckInputs(InferenceContext* c, int scalars) {
  int n;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &n));
  ShapeHandle unused;
  for (int i = 0; i < scalars; ++i) TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
  ShapeHandle names;
  DimensionHandle unused_dim;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(scalars), 1, &names));
  TF_RETURN_IF_ERROR(c->WithValue(c->Dim(names, 0), n, &unused_dim));
  for (int i = 0; i < n; ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(scalars + 1 + i), 0, &unused));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfHps>SaveTables")
    .Input("prefix: string")
    .Input("names: string")
    .Input("tables: N * resource")
    .Output("save_id: string")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return CheckInputs(c, /*scalars=*/1);
    })
    .Doc(R"doc(
Writes tables, rows and their optimizer state, to files beside a TensorFlow checkpoint.

The files are <prefix>.data-hNNNN-of-<save_id>; h0000 is their manifest. TensorFlow removes files of
such names together with the checkpoint. The tables are saved as they are at one instant.

Fails with InvalidArgument if the prefix is not a local path or a name comes twice, with Unimplemented
if the tables are of several stores, and with an error that names the path if writing fails.

prefix: string []. The checkpoint's, without "scheme://".
names: string [N]. What identifies the tables in the checkpoint, all different.
tables: N resources [].
save_id: string []. Five random characters of [0-9a-z], needed for RestoreTables.
)doc");

REGISTER_OP("TfHps>RestoreTables")
    .Input("prefix: string")
    .Input("save_id: string")
    .Input("names: string")
    .Input("tables: N * resource")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) { return CheckInputs(c, /*scalars=*/2); })
    .Doc(R"doc(
Replaces all rows of tables, their initializer, seed, salt, optimizer and step by saved ones.

The tables are unchanged when it fails: with NotFound if a name or a file is missing, with DataLoss if
a file is damaged, with InvalidArgument if a table's dim is another or the prefix is not a local path,
and with Unimplemented if the tables are of several stores.

prefix: string []. As given to SaveTables; the files may have moved together.
save_id: string []. What SaveTables returned.
names: string [N]. All different; may be some of those saved.
tables: N resources [].
)doc");

}  // namespace tf_hps
