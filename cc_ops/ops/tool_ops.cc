#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Scalars in, vectors out.
absl::Status VectorsOfScalars(InferenceContext* c) {
  ShapeHandle unused;
  for (int i = 0; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &unused));
  }
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfHps>Inspect")
    .Input("path: string")
    .Input("save_id: string")
    .Input("commit: int64")
    .Output("manifest: string")
    .Output("counters: int64")
    .Output("table_texts: string")
    .Output("table_numbers: int64")
    .Output("file_names: string")
    .Output("file_numbers: int64")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalars)
    .Doc(R"doc(
Says what a store's commit, or a checkpoint's tables, consist of.

Reads the manifest alone, without a lock: the store may be in use. Fails with NotFound, DataLoss,
..., naming the path.

path: string []. A store's directory; with a save_id the prefix of a checkpoint.
save_id: string []. "" for a store; else the id in the names of the checkpoint's files.
commit: int64 []. The number of the store's commit; 0: the last.
manifest: string [1]. Its path.
counters: int64 [4]. The commit's number (0: none, or a checkpoint), LevelDB instances, dense step,
  how many commits are kept (0: a checkpoint).
table_texts: string [5 * t]. For each table: its name in the checkpoint, name, initializer, salt,
  optimizer.
table_numbers: int64 [5 * t]. For each table: dim, seed, step, rows, bytes of a row on SSD.
file_names: string [f]. Paths.
file_numbers: int64 [2 * f]. For each file: LevelDB instance, bytes.
)doc");

REGISTER_OP("TfHps>VerifyBegin")
    .Input("path: string")
    .Input("save_id: string")
    .Input("commit: int64")
    .Output("verifier: resource")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &unused));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 0, &unused));
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Starts a full check of a store's commit or of a checkpoint's tables.

path: string []. As for Inspect.
save_id: string []. As for Inspect.
commit: int64 []. The commit's number, then nothing else of the store is looked at; 0: the store's
  directory and its last commit.
verifier: resource []. Freed, and its temporary files removed, with its tensor.
)doc");

REGISTER_OP("TfHps>VerifyNext")
    .Input("verifier: resource")
    .Input("seconds: float")
    .Output("progress: float64")
    .Output("counters: int64")
    .Output("paths: string")
    .Output("findings: string")
    .Output("damage: bool")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalars)
    .Doc(R"doc(
Checks for some more time. What is wrong is in the outputs and is no error of the op.

verifier: resource [], of VerifyBegin.
seconds: float [].
progress: float64 [1]. The part that is done, in [0, 1]; 2: all of it.
counters: int64 [2]. Files and rows checked so far.
paths: string [n]. The files that this call found something wrong with.
findings: string [n]. What.
damage: bool [n]. False: it is harmless.
)doc");

REGISTER_OP("TfHps>StoreCompact")
    .Input("store: resource")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      return c->WithRank(c->input(0), 0, &unused);
    })
    .Doc(R"doc(
Rewrites a store's files without rows of dropped tables and without what was overwritten.

The next commit has the smaller files.

store: resource [].
)doc");

REGISTER_OP("TfHps>Estimate")
    .Output("bytes: float64")
    .Attr("rows: int >= 0")
    .Attr("dim: int >= 1")
    .Attr("optimizer: string")
    .Attr("dram_bytes: int = -1")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalars)
    .Doc(R"doc(
Says what rows take on each tier.

bytes: float64 [6]. DRAM per row, SSD per row, rows that DRAM holds, bytes that they take of the
  budget, SSD of all rows, memory besides the budget.
rows: of the table.
dim: of the table.
optimizer: canonical spec; "" for none.
dram_bytes: the budget; negative: as much as all rows take.
)doc");

}  // namespace tf_hps
