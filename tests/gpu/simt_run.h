#pragma once

/* In kernels.cpp. Returns the function that runs the kernel of that name with given parameters; nullptr: there is no
   such kernel. */
void (*simt_kernel(const char *name))(const void *parameters);
