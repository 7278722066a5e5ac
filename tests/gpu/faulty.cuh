/* Kernels with faults that the emulation must find, and a few kernels without a fault. */

#include "runtime/cuda/kernels/elements.cuh"
#include "runtime/cuda/kernels/instructions_hopper.cuh"

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

/* Copies a box with the tensor map at `from`, and reads the box without waiting for it, which is a fault. The arguments
   add an earlier fault. acquired = false: the map is not acquired. written = true: writes to the destination of the box
   after the fence. counted = true: waits for a counter after the fence. */
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

#define FAULTY_BOX(name, ...)               \
    KERNEL name(KERNEL_PARAMETER Copy p)    \
    {                                       \
        KERNEL_SHARED(shared);              \
        faulty_box(p, shared, __VA_ARGS__); \
    }
FAULTY_BOX(faulty_map, false, false, false)
FAULTY_BOX(faulty_fence, true, true, false)
FAULTY_BOX(faulty_count, true, false, true)
FAULTY_BOX(faulty_wait, true, false, false)

/* For clusters of two blocks. Each block has a barrier at which the threads of both blocks arrive. Block 0 sends a box
   to both blocks with the tensor map at `from`. There is no fault if begins_together and stays are true and missing is
   0. begins_together = false: no barrier of the cluster is between the initialization of a block's barriers and their
   use by the other block. The first `missing` threads of each block do not arrive. stays = false: a block ends before
   the other block has arrived. */
DEVICE void faulty_cluster(const Copy &p, char *shared, bool begins_together, unsigned missing, bool stays)
{
    Arrivals *full = (Arrivals *)(shared + 1024), *empty = full + 1;
    tensor_map_acquire((const TensorMap *)p.from);
    if (threadIdx.x == 0) {
        arrivals_init(full, 1);
        arrivals_init(empty, 2 * blockDim.x);
        arrivals_publish();
    }
    if (begins_together)
        cluster_barrier();
    else
        block_barrier();
    if (threadIdx.x == 0) {
        arrive_expecting(full, 1024);
        if (blockIdx.x == 0)
            tensor_load_to_all(shared, (const TensorMap *)p.from, 0, 0, full, cluster_blocks());
    }
    arrivals_wait(full, 0);
    for (unsigned number = 0; number < cluster_blocks() && threadIdx.x >= missing; number++)
        arrive_at(empty, number);
    if (threadIdx.x == 0 && stays)
        arrivals_wait(empty, 0);
}

#define FAULTY_CLUSTER(name, ...)               \
    KERNEL name(KERNEL_PARAMETER Copy p)        \
    {                                           \
        KERNEL_SHARED(shared);                  \
        faulty_cluster(p, shared, __VA_ARGS__); \
    }
FAULTY_CLUSTER(faulty_not, true, 0, true) /* without a fault */
FAULTY_CLUSTER(faulty_begin, false, 0, true)
FAULTY_CLUSTER(faulty_arrival, true, 1, true)
FAULTY_CLUSTER(faulty_end, true, 0, false)

KERNEL faulty_early(KERNEL_PARAMETER Copy)
{
    KERNEL_SHARED(shared);
    Arrivals *arrivals = (Arrivals *)shared;
    if (threadIdx.x == 0)
        arrivals_init(arrivals, 1);
    cluster_barrier();
    if (threadIdx.x == 0 && blockIdx.x == 0)
        arrive_at(arrivals, 1);
}

/* Fault: sends a box to shared memory that is still an operand of the other block's product. */
KERNEL faulty_slot(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    Arrivals *full = (Arrivals *)(shared + 32768);
    float sum[128] = {};
    tensor_map_acquire((const TensorMap *)p.from);
    if (threadIdx.x == 0)
        arrivals_init(full, 1);
    cluster_barrier();
    if (threadIdx.x == 0 && blockIdx.x == 1)
        tensor_load_to_all(shared, (const TensorMap *)p.from, 0, 0, full, cluster_blocks());
    const unsigned long long operand = matrix_descriptor(shared, 8192, 1024);
    group_products_begin();
    group_product<true, true>(sum, operand, operand);
    group_products_commit();
    group_products_wait<0>();
}

/* ---- products of a warpgroup ---- */

KERNEL faulty_products(KERNEL_PARAMETER Copy)
{
    KERNEL_SHARED(shared);
    float sum[64] = {};
    const unsigned long long operand = matrix_descriptor(shared, 16, 1024);
    group_product(sum, operand, operand, false);
}

KERNEL faulty_operand(KERNEL_PARAMETER Copy)
{
    KERNEL_SHARED(shared);
    float sum[64] = {};
    ((unsigned *)shared)[threadIdx.x] = 0;
    block_barrier();
    const unsigned long long operand = matrix_descriptor(shared, 16, 1024);
    group_products_begin();
    group_product(sum, operand, operand, false);
    group_products_commit();
    group_products_wait<0>();
}

template <unsigned COUNT> DEVICE void store_sums(float *to, const float (&sum)[COUNT])
{
    const unsigned row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (unsigned i = 0; i < COUNT; i++)
        to[(row + i / 2 % 2 * 8) * (COUNT * 2) + i / 4 * 8 + column + i % 2] = sum[i];
}

/* No fault: computes the product of a[64, 16] and b[16, 128] at `from` in three ways. First: a and b are in shared
   memory, contiguous along k. Second: a is in registers, as ldmatrix loads it, and b is in shared memory, contiguous
   along its columns. Third: as the second, but with only the first 64 columns of b. The second and the third product
   are added to ones. */
KERNEL group_fragments(KERNEL_PARAMETER Copy p)
{
    KERNEL_SHARED(shared);
    const unsigned short *a = (const unsigned short *)p.from, *b = a + 64 * 16;
    char *a_slab = shared, *b_slab = shared + 8192, *b_by_k = shared + 16384;
    const auto at = [](char *slab, unsigned row, unsigned column) {
        return (unsigned short *)(slab + row * 128 + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2);
    };
    for (unsigned i = threadIdx.x; i < 64 * 16; i += blockDim.x)
        *at(a_slab, i / 16, i % 16) = a[i];
    for (unsigned i = threadIdx.x; i < 16 * 128; i += blockDim.x) {
        *at(b_slab + i % 128 / 64 * 2048, i / 128, i % 64) = b[i];
        *at(b_by_k, i % 128, i / 128) = b[i];
    }
    async_fence();
    block_barrier();
    unsigned fragment[4];
    const unsigned lane = lane_of_warp();
    load_matrices(fragment, at(a_slab, threadIdx.x / 32 * 16 + lane % 16, lane / 16 * 8));
    float from_shared[64], from_registers[64], narrow[32];
    for (float &sum : from_shared)
        sum = INFINITY;
    for (float &sum : from_registers)
        sum = 1;
    for (float &sum : narrow)
        sum = 1;
    group_products_begin();
    group_product(from_shared, matrix_descriptor(a_slab, 16, 1024), matrix_descriptor(b_by_k, 16, 1024), false);
    group_product(from_registers, fragment, matrix_descriptor(b_slab, 2048, 1024));
    group_product(narrow, fragment, matrix_descriptor(b_slab, 2048, 1024));
    group_products_commit();
    group_products_wait<0>();
    float *to = (float *)p.to;
    store_sums(to, from_shared);
    store_sums(to + 64 * 128, from_registers);
    store_sums(to + 2 * 64 * 128, narrow);
}
