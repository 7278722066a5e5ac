#ifndef TESTS_GPU_SIMT_RUN_H
#define TESTS_GPU_SIMT_RUN_H

/* kernels.cpp: the kernel of that name, called with its parameters; nullptr: none. */
void (*simt_kernel(const char *name))(const void *parameters);

#endif
