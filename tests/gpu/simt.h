#pragma once

/* Replaces CUDA C++, and instructions.cuh and instructions_hopper.cuh of runtime/cuda/kernels, when kernels are
   compiled as plain C++. */

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define KERNEL static void
#define KERNEL_PARAMETER const
#define DEVICE static inline
#define DEVICE_CALL static inline
#define UNROLL
#define UNROLL4
#define ROLL
#define KERNEL_SHARED(name) char *name = simt_shared()
#define __launch_bounds__(...)

struct SimtIndex {
    unsigned x, y, z;
};
extern SimtIndex threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
inline float2 make_float2(float x, float y) { return float2{x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }

inline float __uint_as_float(unsigned bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

/* --- simt.cpp, simt_warp.cpp, simt_hopper.cpp --- */
char *simt_shared();
void simt_barrier(unsigned barrier, unsigned threads);
/* A collective instruction: when all 32 lanes of a warp have arrived, `finish` gets the operands of all lanes and
   writes the results into them. */
void simt_collective(const char *instruction, void *operands, void (*finish)(void *const *lanes));
/* Report a memory access of the running thread. */
void simt_read(const void *address, std::size_t bytes);
void simt_write(const void *address, std::size_t bytes);
void simt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void simt_copy_async(void *to, const void *from, unsigned bytes);
void simt_copy_async_commit();
void simt_copy_async_wait(unsigned groups);
void simt_load_matrices(unsigned *r, const void *row, bool transposed);
void simt_multiply_fragments(float *c, const unsigned *a, unsigned b0, unsigned b1);

struct SimtShuffle {
    unsigned char value[8];
    int from;
};

template <typename T> T simt_shuffle(const char *name, T value, int from)
{
    SimtShuffle operands{{}, from};
    static_assert(sizeof value <= sizeof operands.value, "a register or two");
    std::memcpy(operands.value, &value, sizeof value);
    simt_collective(name, &operands, [](void *const *lanes) {
        unsigned char before[32][8];
        for (int i = 0; i < 32; i++)
            std::memcpy(before[i], ((SimtShuffle *)lanes[i])->value, 8);
        for (int i = 0; i < 32; i++)
            std::memcpy(((SimtShuffle *)lanes[i])->value, before[((SimtShuffle *)lanes[i])->from & 31], 8);
    });
    std::memcpy(&value, operands.value, sizeof value);
    return value;
}
template <typename T> T __shfl_sync(unsigned, T value, int from) { return simt_shuffle("shfl", value, from); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int distance)
{
    return simt_shuffle("shfl.xor", value, (int)(threadIdx.x % 32) ^ distance);
}
inline unsigned __ballot_sync(unsigned, bool vote)
{
    unsigned operands = vote;
    simt_collective("ballot", &operands, [](void *const *lanes) {
        unsigned ballot = 0;
        for (int i = 0; i < 32; i++)
            ballot |= *(unsigned *)lanes[i] << i;
        for (int i = 0; i < 32; i++)
            *(unsigned *)lanes[i] = ballot;
    });
    return operands;
}
inline void __syncwarp()
{
    unsigned none = 0;
    simt_collective("syncwarp", &none, [](void *const *) {});
}

/* --- instructions.cuh --- */
DEVICE unsigned forget(unsigned value) { return value; }
DEVICE void tile_barrier() { simt_barrier(1, 256); }
DEVICE void copy_async(void *shared, const void *global, unsigned bytes) { simt_copy_async(shared, global, bytes); }
DEVICE void copy_async_commit() { simt_copy_async_commit(); }
template <int GROUPS> DEVICE void copy_async_wait() { simt_copy_async_wait(GROUPS); }
DEVICE void load_matrices(unsigned (&r)[4], const void *row) { simt_load_matrices(r, row, false); }
DEVICE void load_matrices_transposed(unsigned (&r)[4], const void *row) { simt_load_matrices(r, row, true); }
DEVICE void multiply_fragments(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    simt_multiply_fragments(c, a, b0, b1);
}

/* For waits on counters between blocks: a thread that has read too small a value calls this, and other threads run. */
void simt_poll(const char *at);
void simt_poll_ended();
void simt_counted();
DEVICE unsigned draw(unsigned *counter) { return (*counter)++; }
DEVICE void count_up(unsigned *counter) { ++*counter; }
DEVICE void wait_for_count(const unsigned *counter, unsigned count)
{
    while (*(const volatile unsigned *)counter < count)
        simt_poll("a counter");
    simt_poll_ended();
    simt_counted();
}

/* --- instructions_hopper.cuh --- */
unsigned shared_address(const void *shared);
struct TensorMap;
void simt_arrivals_init(const void *arrivals, unsigned count);
void simt_arrive(const void *arrivals, unsigned bytes);
void simt_arrivals_wait(const void *arrivals, unsigned parity);
void simt_registers(unsigned count, bool more);
void simt_tensor_map_acquire(const TensorMap *map);
void simt_async_fence(bool of_global);
void simt_tensor_load(void *shared, const TensorMap *map, unsigned x, unsigned y, const void *arrivals);
unsigned simt_cluster_blocks();
void simt_cluster_barrier();
void simt_arrive_at(const void *arrivals, unsigned number);
void simt_tensor_load_to_all(void *shared, const TensorMap *map, unsigned x, unsigned y, const void *arrivals,
                             unsigned blocks);
/* One thread's arguments of a warpgroup's product. */
struct SimtGroupProduct {
    float *d;
    unsigned columns;
    const unsigned *fragment; /* this thread's fragment of a in registers; NULL: a is in shared memory */
    unsigned long long a, b;
    bool a_by_k, b_by_k, onto;
};
void simt_group_product(const SimtGroupProduct &product);
void simt_group_products_begin();
void simt_group_products_commit();
void simt_group_products_wait(unsigned groups);
DEVICE void block_barrier() { simt_barrier(0, blockDim.x); }
DEVICE void group_barrier() { simt_barrier(2 + threadIdx.x / 128, 128); }
DEVICE void arrivals_init(unsigned long long *arrivals, unsigned count) { simt_arrivals_init(arrivals, count); }
DEVICE void arrivals_publish() {}
DEVICE void arrive(unsigned long long *arrivals) { simt_arrive(arrivals, 0); }
DEVICE void arrive_expecting(unsigned long long *arrivals, unsigned bytes) { simt_arrive(arrivals, bytes); }
DEVICE void arrivals_wait(unsigned long long *arrivals, unsigned parity) { simt_arrivals_wait(arrivals, parity); }
DEVICE void tensor_map_acquire(const TensorMap *map) { simt_tensor_map_acquire(map); }
DEVICE void async_fence() { simt_async_fence(true); }
DEVICE void async_fence_of_shared() { simt_async_fence(false); }
DEVICE void tensor_prefetch(const TensorMap *) {}
DEVICE void tensor_load(void *shared, const TensorMap *map, unsigned x, unsigned y, unsigned long long *arrivals)
{
    simt_tensor_load(shared, map, x, y, arrivals);
}
DEVICE unsigned cluster_blocks() { return simt_cluster_blocks(); }
DEVICE void cluster_barrier() { simt_cluster_barrier(); }
DEVICE void arrive_at(unsigned long long *arrivals, unsigned number) { simt_arrive_at(arrivals, number); }
DEVICE void tensor_load_to_all(void *shared, const TensorMap *map, unsigned x, unsigned y, unsigned long long *arrivals,
                               unsigned blocks)
{
    simt_tensor_load_to_all(shared, map, x, y, arrivals, blocks);
}
template <int COUNT> DEVICE void registers_more() { simt_registers(COUNT, true); }
template <int COUNT> DEVICE void registers_less() { simt_registers(COUNT, false); }
DEVICE void group_products_begin() { simt_group_products_begin(); }
DEVICE void group_products_commit() { simt_group_products_commit(); }
template <int GROUPS> DEVICE void group_products_wait() { simt_group_products_wait(GROUPS); }
template <unsigned COUNT> DEVICE void hold_sums(float (&)[COUNT]) {}
template <unsigned COUNT> DEVICE void hold_fragments(unsigned (&)[COUNT][4]) {}
DEVICE float power_of_two(float exponent) { return exp2f(exponent); }
DEVICE float inverse_of(float value) { return 1 / value; }
template <bool A_BY_K, bool B_BY_K>
DEVICE void group_product(float (&d)[128], unsigned long long a, unsigned long long b)
{
    simt_group_product({d, 256, nullptr, a, b, A_BY_K, B_BY_K, true});
}
template <bool A_BY_K = true, bool B_BY_K = true>
DEVICE void group_product(float (&d)[64], unsigned long long a, unsigned long long b, bool onto = true)
{
    simt_group_product({d, 128, nullptr, a, b, A_BY_K, B_BY_K, onto});
}
DEVICE void group_product(float (&d)[32], unsigned long long a, unsigned long long b, bool onto)
{
    simt_group_product({d, 64, nullptr, a, b, true, true, onto});
}
template <std::size_t COUNT> DEVICE void group_product(float (&d)[COUNT], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(COUNT == 32 || COUNT == 64, "those that there are");
    simt_group_product({d, 2 * COUNT, a, 0, b, true, false, true});
}

inline unsigned simt_bf16(float value) /* rounds to nearest, ties to even; NaN stays NaN */
{
    const unsigned bits = __float_as_uint(value);
    return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
DEVICE unsigned pack_bf16(float low, float high) { return simt_bf16(low) | simt_bf16(high) << 16; }
