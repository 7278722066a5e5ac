#ifndef TESTS_CUDA_STANDIN_FUSED_H
#define TESTS_CUDA_STANDIN_FUSED_H

/* Fused launches on the stand-in: a table is read when its launch is enqueued, as the GPU will find it, and checked;
   its operations run whole, in any order that what they come after allows and nothing else. */

#include "tests/cuda/standin/standin.h"

typedef struct StandinFused StandinFused;

/* The launch's table, and what is wrong with it in `problem` (of 256; "": nothing): tiles or order by fused_check,
   accesses of two operations of which neither comes after the other. `forget`: operation so-and-so, from 1, comes after
   nothing. */
StandinFused *standin_fused_take(CudaStream *stream, const Fused *table, size_t element_size, size_t forget,
                                 char *problem);
unsigned standin_fused_count(const StandinFused *fused);
const StandinKernel *standin_fused_operation(const StandinFused *fused, unsigned index, const void **parameters,
                                             size_t *element_size);
/* NULL, or what is wrong: the GPU's memory is not what was taken. */
const char *standin_fused_run(StandinFused *fused, uint64_t (*random)(void));
void standin_fused_free(StandinFused *fused);

/* --- standin.c --- */
/* What is in the GPU's memory when the stream has come to its present end. */
void standin_read(const CudaStream *stream, const void *memory, size_t bytes, void *copy);

#endif
