/* All kernels as plain C++. In a build without a sanitizer, only this file is compiled with -fsanitize=thread: every
   access then calls a function of accesses.cpp. */

#include "runtime/cuda/kernels/attention.cu"
#include "runtime/cuda/kernels/fused.cu"
#include "runtime/cuda/kernels/hopper.cu"
#include "runtime/cuda/kernels/layers.cu"
#include "runtime/cuda/kernels/product.cu"
#include "runtime/cuda/kernels/training.cu"

#include "tests/gpu/faulty.cuh"
#include "tests/gpu/simt_run.h"

namespace
{

struct Named {
    const char *name;
    void (*call)(const void *);
};

template <typename Parameters, void (*KERNEL_OF)(const Parameters)> void call(const void *parameters)
{
    KERNEL_OF(*(const Parameters *)parameters);
}

#define COMPUTE_TYPE(file, name, Parameters) \
    {#name "_f32", call<Parameters, name##_f32>}, {#name "_bf16", call<Parameters, name##_bf16>},
/* clang-format off */
#define FAULTY(X)                                                                                          \
    X(, faulty_barrier, Copy) X(, faulty_warp, Copy) X(, faulty_race, Copy) X(, faulty_bounds, Copy)       \
    X(, faulty_copy, Copy) X(, faulty_address, Copy) X(, faulty_banks, Copy) X(, faulty_registers, Copy)  \
    X(, faulty_map, Copy) X(, faulty_fence, Copy) X(, faulty_count, Copy) X(, faulty_wait, Copy)    \
    X(, faulty_not, Copy) X(, faulty_begin, Copy) X(, faulty_arrival, Copy) X(, faulty_end, Copy)          \
    X(, faulty_early, Copy) X(, faulty_slot, Copy) X(, faulty_products, Copy) X(, faulty_operand, Copy)    \
    X(, group_fragments, Copy)
/* clang-format on */
#define FLOATS(file, name, Parameters) {#name, call<Parameters, name>},

const Named kernels[] = {KERNELS_OF_COMPUTE_TYPES(COMPUTE_TYPE) KERNELS_OF_TABLES(COMPUTE_TYPE) KERNELS_OF_FLOATS(
    FLOATS) KERNELS_OF_HOPPER(FLOATS) KERNELS_OF_HOPPER_TABLES(FLOATS) FAULTY(FLOATS)};

} // namespace

void (*simt_kernel(const char *name))(const void *parameters)
{
    for (const Named &kernel : kernels)
        if (!std::strcmp(kernel.name, name))
            return kernel.call;
    return nullptr;
}
