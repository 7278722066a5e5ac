/* Replaces cuda_runtime.c in a build without the CUDA toolkit. */

#include "runtime/device/cuda_runtime.h"

const CudaRuntime *const cuda_runtime = NULL;
