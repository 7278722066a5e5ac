/* Kernels with the faults that the emulation has to find. */

#include "runtime/device/kernels/elements.cuh"
#include "runtime/device/kernels/instructions_hopper.cuh"

KERNEL faulty_barrier(KERNEL_PARAMETER Copy)
{
    if (threadIdx.x != 77)
        tile_barrier();
}

KERNEL faulty_warp(KERNEL_PARAMETER Copy p)
{
    *(float *)p.to = threadIdx.x == 3 ? __shfl_sync(0xffffffffu, 1.f, 0) : __shfl_xor_sync(0xffffffffu, 1.f, 1);
}

KERNEL faulty_race(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    unsigned *words = (unsigned *)shared;
    words[threadIdx.x] = threadIdx.x;
    __syncwarp();
    *(unsigned *)p.to = words[threadIdx.x ^ 1];
    *(unsigned *)p.to = words[threadIdx.x ^ 32];
}

KERNEL faulty_bounds(KERNEL_PARAMETER Copy)
{
    KERNEL_SHARED(shared);
    ((unsigned *)shared)[threadIdx.x + 1] = 0;
}

KERNEL faulty_copy(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    copy_async(shared + threadIdx.x * 16, p.from, 16);
    copy_async_commit();
}

KERNEL faulty_address(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    copy_async(shared + threadIdx.x * 16, (const char *)p.from + 4, 12);
    copy_async_commit();
    copy_async_wait<0>();
}

KERNEL faulty_banks(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    unsigned r[4];
    load_matrices(r, shared + threadIdx.x % 32 * 128);
    *(unsigned *)p.to = r[0];
}

KERNEL faulty_registers(KERNEL_PARAMETER Copy)
{
    if (threadIdx.x < 256)
        registers_more<240>();
    else
        registers_less<32>();
}

/* Boxes by the map at `from`. */
DEVICE void faulty_box(const Copy &p, char *shared, bool acquired, bool written, bool counted)
{
    const TensorMap *map = (const TensorMap *)p.from;
    Arrivals *arrivals = (Arrivals *)(shared + 1024);
    if (threadIdx.x > 0)
        return;
    arrivals_init(arrivals, 1);
    if (acquired)
        tensor_map_acquire(map);
    async_fence();
    if (written)
        *(unsigned *)shared = 0;
    if (counted)
        wait_for_count((const unsigned *)p.to, 0);
    tensor_load(shared, map, 0, 0, arrivals);
    *(unsigned *)p.to = *(unsigned *)shared;
}

KERNEL faulty_map(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    faulty_box(p, shared, false, false, false);
}

KERNEL faulty_fence(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    faulty_box(p, shared, true, true, false);
}

KERNEL faulty_count(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    faulty_box(p, shared, true, false, true);
}

KERNEL faulty_wait(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    faulty_box(p, shared, true, false, false);
}
