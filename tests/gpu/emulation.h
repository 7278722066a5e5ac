#ifndef TESTS_GPU_EMULATION_H
#define TESTS_GPU_EMULATION_H

/* The kernels of runtime/device/kernels on the processor: threads are fibers, memory is the host's. What is found wrong
   is reported, not only wrong numbers: barriers that not all threads reach, collective instructions of which a warp's
   lanes disagree, copies that nobody waits for, misaligned addresses, and (in builds without a sanitizer, which see
   every access) races in shared memory and accesses beyond it. */

#include "runtime/device/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs kernel `name` (as in KERNELS, with its suffix); NULL or what went wrong, valid until the next call. Blocks run
   one after another, or all at once where they wait for each other. */
const char *emulate(const char *name, const void *parameters, Launch launch);
const char *emulate_together(const char *name, const void *parameters, Launch launch);

/* What cuTensorMapEncodeTiled makes on a GPU; `base` and the map are the caller's. */
void emulated_tensor_map(TensorMap *map, const void *base, const TensorMapShape *shape);

/* ldmatrix's rows that met in a bank since the last call. */
unsigned long emulated_bank_conflicts(void);

#ifdef __cplusplus
}
#endif

#endif
