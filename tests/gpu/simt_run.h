#ifndef TESTS_GPU_SIMT_RUN_H
#define TESTS_GPU_SIMT_RUN_H

/* kernels.cpp: the function that runs the kernel of that name with its parameters; nullptr: there is none. */
void (*simt_kernel(const char *name))(const void *parameters);

#endif
