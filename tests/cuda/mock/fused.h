#ifndef TESTS_CUDA_MOCK_FUSED_H
#define TESTS_CUDA_MOCK_FUSED_H

/* Fused launches on the mock runtime. A table is read and checked when its launch is enqueued, as the GPU will find it.
   Its operations run whole, in a random order that its dependences allow. */

#include "tests/cuda/mock/mock.h"

typedef struct MockFused MockFused;

/* The launch's table. `problem` (of 256; "": none) is what is wrong with it: tiles or order, by fused_check, or
   accesses of two operations without a dependence between them. `forget`: this operation, from 1, loses its
   dependences. */
MockFused *mock_fused_take(CudaStream *stream, const Fused *table, size_t element_size, size_t forget, char *problem);
unsigned mock_fused_count(const MockFused *fused);
const MockKernel *mock_fused_operation(const MockFused *fused, unsigned index, const void **parameters,
                                       size_t *element_size);
/* NULL, or what is wrong: the GPU's memory does not hold the table that was read. */
const char *mock_fused_run(MockFused *fused, uint64_t (*random)(void));
void mock_fused_free(MockFused *fused);

/* --- mock.c --- */
/* The content of the GPU's memory after everything enqueued on the stream. */
void mock_read(const CudaStream *stream, const void *memory, size_t bytes, void *copy);

#endif
