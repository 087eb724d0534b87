#ifndef TF_HPS_CC_OPS_KERNELS_OP_PARALLEL_FOR_H_
#define TF_HPS_CC_OPS_KERNELS_OP_PARALLEL_FOR_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/denormal.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_hps {

// The engine's ParallelFor over the intra-op pool of a kernel's device. The calling thread works
// too, and waits only for tasks that have begun: a pool whose threads are all busy, even with
// callers like this one, delays nothing.
//
// An object on the stack of Compute(). While it lives, and in all tasks, denormal floats are
// flushed to zero: TensorFlow's own threads do that, an eager caller's thread does not, and bits
// must not depend on which of them computed a row.
class OpParallelFor {
 public:
  explicit OpParallelFor(tensorflow::OpKernelContext* ctx);

  void operator()(int64_t n, absl::FunctionRef<void(int64_t i)> task) const;

 private:
  const tensorflow::port::ScopedFlushDenormal flush_denormal_;
  tensorflow::thread::ThreadPool* const pool_;
};

}  // namespace tf_hps

#endif  // TF_HPS_CC_OPS_KERNELS_OP_PARALLEL_FOR_H_
