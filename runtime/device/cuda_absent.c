/* In the place of cuda_runtime.c where the build has found no CUDA toolkit. */

#include "runtime/device/cuda_runtime.h"

const CudaRuntime *const cuda_runtime = NULL;
