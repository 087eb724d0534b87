#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_hps {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// One scalar in, one scalar out.
absl::Status ScalarOfScalar(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

// One scalar in, vectors of one length out.
absl::Status VectorsOfScalar(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
  const ShapeHandle vector = c->Vector(c->UnknownDim());
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, vector);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfHps>StoreHandle")
    .Output("store: resource")
    .Attr("path: string")
    .Attr("dram_bytes: int >= 0")
    .Attr("hbm_bytes: int >= 0")
    .Attr("eviction: {'lfu', 'lru'}")
    .Attr("cache_reads: bool = false")
    .Attr("keep_commits: int >= 0 = 0")
    .Attr("commit: int >= 0 = 0")
    .Attr("shared_name: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Returns the store of the name `shared_name`, opened at its last commit by the first execution.

Fails with FailedPrecondition if this or another process has the store open or the directory
holds something else, with DataLoss if it is damaged, and with the file system's error if it
cannot be made or read; all of them name the path.

store: resource []. Lives until it is destroyed, or the device's resources are.
path: directory, made if it does not exist. "" is a temporary one, removed when the store is closed.
dram_bytes: bytes of DRAM for rows, their state and index, of all tables together. With
  `cache_reads`, the environment variable TF_HPS_SERVING_DRAM_BYTES ("8GiB") overrides it.
hbm_bytes: bytes of GPU memory, likewise. This build has no GPU tier: 0, else InvalidArgument.
eviction: which rows leave DRAM first: the least frequently or the least recently used.
cache_reads: whether lookups outside training keep in DRAM what they read from SSD, for serving.
keep_commits: how many of the last commits stay, remembered by the next one. 0: what is remembered,
  1 in a new store.
commit: the commit to open at; 0 is the last. NotFound if there is none of that number (any more).
  With a number the store opens even if its file CURRENT is damaged.
shared_name: name of the resource on its device; unique for each store.
)doc");

REGISTER_OP("TfHps>StoreCommit")
    .Input("store: resource")
    .Output("commit: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarOfScalar)
    .Doc(R"doc(
Makes the present state of all tables durable, as one point: what the store reopens at.

When it fails, with an error that names the path, the former commit holds, or this one if it was in
its place already.

store: resource [].
commit: int64 []. The commit's number, which grows by 1.
)doc");

REGISTER_OP("TfHps>StoreCommits")
    .Input("store: resource")
    .Output("commits: int64")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalar)
    .Doc(R"doc(
Lists the commits that a store can be opened at.

store: resource [].
commits: int64 [n]. Numbers, ascending.
)doc");

REGISTER_OP("TfHps>StoreClose")
    .Input("store: resource")
    .Input("commit: bool")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle unused;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &unused));
      return c->WithRank(c->input(1), 0, &unused);
    })
    .Doc(R"doc(
Frees memory and files of a store; its tables and exports fail with FailedPrecondition from then on.

Closing twice is fine. When the commit fails the store stays open.

store: resource [].
commit: bool []. Whether to commit first.
)doc");

REGISTER_OP("TfHps>StoreStats")
    .Input("store: resource")
    .Output("names: string")
    .Output("values: float64")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalar)
    .Doc(R"doc(
Returns the store's counters since it was opened.

store: resource [].
names: string [n]. "tables/<table>/<tier>/<counter>" and "store/<counter>".
values: float64 [n]. Rows, bytes, events or seconds.
)doc");

REGISTER_OP("TfHps>StorePath")
    .Input("store: resource")
    .Output("path: string")
    .SetIsStateful()
    .SetShapeFn(ScalarOfScalar)
    .Doc(R"doc(
Returns the store's directory.

store: resource [].
path: string [].
)doc");

REGISTER_OP("TfHps>StoreTables")
    .Input("store: resource")
    .Output("names: string")
    .Output("dims: int64")
    .Output("initializers: string")
    .Output("seeds: int64")
    .Output("optimizers: string")
    .SetIsStateful()
    .SetShapeFn(VectorsOfScalar)
    .Doc(R"doc(
Lists the tables in a store, those of former processes included.

store: resource [].
names: string [n].
dims: int64 [n]. Lengths of rows.
initializers: string [n]. Canonical specs, as TableHandle takes them.
seeds: int64 [n].
optimizers: string [n]. Canonical specs, as ApplyGradients takes them; "" before the first step.
)doc");

}  // namespace tf_hps
