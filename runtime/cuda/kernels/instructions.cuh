#ifndef CUDA_KERNELS_INSTRUCTIONS_CUH
#define CUDA_KERNELS_INSTRUCTIONS_CUH

/* Wrappers, named after what they do, for every instruction that CUDA C++ has no function for. Code that compiles the
   kernels as plain C++ defines KERNELS_EMULATED and supplies the same functions (tests/gpu/simt.h). Besides this
   header, only instructions_hopper.cuh depends on KERNELS_EMULATED. */

#ifdef KERNELS_EMULATED
#include "simt.h"
#else

#ifndef INFINITY /* NVRTC has no headers */
#define INFINITY __int_as_float(0x7f800000)
#endif

#define KERNEL extern "C" __global__ void
#define KERNEL_PARAMETER const __grid_constant__
#define DEVICE static __device__ __forceinline__
#define DEVICE_CALL static __device__ __noinline__ /* never inlined */
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#define UNROLL4 _Pragma("unroll 4")
/* The block's dynamic shared memory; swizzled tiles begin on 1024 bytes. */
#define KERNEL_SHARED(name) extern __shared__ __align__(1024) char name[]

/* The 32-bit address of shared memory. The function uses no inline assembly, so the compiler folds constant offsets
   into instructions. */
DEVICE unsigned shared_address(const void *shared) { return (unsigned)__cvta_generic_to_shared(shared); }

/* Returns `value`, but hides from the compiler where it comes from, so the compiler cannot reuse an earlier result. */
DEVICE unsigned forget(unsigned value)
{
    asm volatile("" : "+r"(value));
    return value;
}

/* A barrier for the 256 threads that compute a tile: all threads of a plain block; in a Hopper kernel all but the
   loading warpgroup. */
DEVICE void tile_barrier() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* Starts an asynchronous copy of 16 bytes from global to shared memory. Only the first `bytes` bytes are read; the rest
   becomes zero. */
DEVICE void copy_async(void *shared, const void *global, unsigned bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
}

DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most GROUPS of this thread's committed groups of copies are unfinished. */
template <int GROUPS> DEVICE void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* Loads four 8x8 matrices of 16-bit elements from shared memory (ldmatrix). Lane l passes the address of row l % 8 of
   matrix l / 8. */
DEVICE void load_matrices(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

DEVICE void load_matrices_transposed(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* c[16, 8] += a[16, 16] b[16, 8], bfloat16 into float (PTX ISA, fragments of mma.m16n8k16). */
DEVICE void multiply_fragments(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Packs two floats as bfloat16 into a word, `low` into its lower half. Rounds to nearest, ties to even. */
DEVICE unsigned pack_bf16(float low, float high)
{
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/* 2 to the power `exponent`, with an error of at most 2 ulp; 0 for -infinity. */
DEVICE float power_of_two(float exponent)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    return power;
}

/* 1 / value, with an error of at most 1 ulp. */
DEVICE float inverse_of(float value)
{
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
    return inverse;
}

/* ---- counters in global memory, between blocks ---- */

/* Increments the counter and returns its previous value. It does not order other memory accesses. */
DEVICE unsigned draw(unsigned *counter)
{
    unsigned before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* Increments the counter. A thread that sees the increment by wait_for_count also sees all that this thread has stored,
   and all that the threads of its block stored before their last common barrier. */
DEVICE void count_up(unsigned *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Waits until the counter is at least `count`. Afterwards this thread sees everything that others stored before their
   count_up. An acquire empties the cache of the multiprocessor, so the looks in between are relaxed. */
DEVICE void wait_for_count(const unsigned *counter, unsigned count)
{
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    if (now >= count)
        return;
    while (now < count) {
        __nanosleep(64);
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    }
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
}

#endif
#endif
