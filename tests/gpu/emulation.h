#pragma once

/* Runs the kernels of runtime/cuda/kernels on the CPU: threads are fibers, memory is the host's. Tests compare the
   numbers. The emulation itself finds barriers that not all threads reach, collective instructions on which a warp's
   lanes disagree, asynchronous copies that no thread waits for, and misaligned addresses. In builds without a sanitizer
   it sees every access, and also finds races in shared memory and accesses beyond its end. */

#include "runtime/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs kernel `name` (as in KERNELS, with its suffix). Returns NULL or a description of the error, valid until the next
   call. emulate runs one cluster of blocks after the other. emulate_together runs all blocks concurrently, for kernels
   whose blocks wait for each other. */
const char *emulate(const char *name, const void *parameters, Launch launch);
const char *emulate_together(const char *name, const void *parameters, Launch launch);

/* Fills in a tensor map, as cuTensorMapEncodeTiled does for a GPU. The caller owns `base` and the map. */
void emulated_tensor_map(TensorMap *map, const void *base, const TensorMapShape *shape);

/* How many bank conflicts ldmatrix has had since the last call of this function. */
unsigned long emulated_bank_conflicts(void);

#ifdef __cplusplus
}
#endif
