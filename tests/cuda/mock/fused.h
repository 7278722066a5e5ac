#pragma once

/* Fused launches on the mock runtime. The table of a launch is read and checked when the launch is enqueued, with the
   content that it will have when the launch runs. Its operations run one after the other, in a random order that the
   dependences allow. */

#include "tests/cuda/mock/mock.h"

typedef struct MockFused MockFused;

/* Reads and checks the table of a launch. Writes to `problem` (256 bytes) "" or what is wrong: the tiles, the order
   (fused_check), or a missing dependence between two operations of which one writes memory that the other accesses.
   `forget`: the number, from 1, of an operation that loses its dependences; 0: none. The caller frees the result with
   mock_fused_free. */
MockFused *mock_fused_take(CudaStream *stream, const Fused *table, size_t element_size, size_t forget, char *problem);
unsigned mock_fused_count(const MockFused *fused);
const MockKernel *mock_fused_operation(const MockFused *fused, unsigned index, const void **parameters,
                                       size_t *element_size);
/* Runs the operations in a random order that the dependences allow. Returns NULL, or a message if the table has changed
   since mock_fused_take has read it, or if its counters are not zero. */
const char *mock_fused_run(MockFused *fused, uint64_t (*random)(void));
void mock_fused_free(MockFused *fused);

/* --- streams.c --- */
/* Copies to `copy` the content that `memory` will have after the copies and fills that are enqueued on the stream.
   Kernels that write this memory are not considered. */
void mock_read(const CudaStream *stream, const void *memory, size_t bytes, void *copy);
