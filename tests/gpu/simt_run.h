#ifndef TESTS_GPU_SIMT_RUN_H
#define TESTS_GPU_SIMT_RUN_H

/* In kernels.cpp. Returns the function that runs the kernel of that name with given parameters; nullptr: there is no
   such kernel. */
void (*simt_kernel(const char *name))(const void *parameters);

#endif
