#ifndef TF_HPS_CC_OPS_ENGINE_HOST_DEVICE_H_
#define TF_HPS_CC_OPS_ENGINE_HOST_DEVICE_H_

// Marks the functions that the CPU loop and the CUDA kernels share.
//
// Shared arithmetic must give the same bits on every build, so the functions so marked use only +,
// -, *, / and sqrt, which IEEE 754 defines exactly, and every build keeps them apart:
// -ffp-contract=off for the host compiler, --fmad=false for nvcc (its defaults for division, square
// root and denormals are already exact).
#if defined(__CUDACC__)
#define TF_HPS_HOST_DEVICE __host__ __device__
#else
#define TF_HPS_HOST_DEVICE
#endif

#endif  // TF_HPS_CC_OPS_ENGINE_HOST_DEVICE_H_
