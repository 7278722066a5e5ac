#ifndef CUDA_KERNELS_INSTRUCTIONS_HOPPER_CUH
#define CUDA_KERNELS_INSTRUCTIONS_HOPPER_CUH

/* The instructions that only the kernels for sm_90a use: copies of tensors' boxes (TMA), mbarriers that these complete,
   clusters of blocks, and products of warpgroups (wgmma). As for instructions.cuh, the emulation supplies the same
   functions. The layouts are those of the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", with shared
   memory in 128-byte swizzle. */

#include "instructions.cuh"
#include "kernels.h"

/* An mbarrier: a phase ends when all threads have arrived and all announced bytes have been copied. */
typedef unsigned long long Arrivals;

#ifndef KERNELS_EMULATED

DEVICE void block_barrier() { asm volatile("bar.sync 0;" ::: "memory"); }

/* A barrier for the 128 threads of one of the two computing warpgroups. */
DEVICE void group_barrier() { asm volatile("bar.sync %0, 128;" ::"r"(2 + threadIdx.x / 128) : "memory"); }

DEVICE void arrivals_init(Arrivals *arrivals, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(arrivals)), "r"(count) : "memory");
}

/* Makes initialised barriers known to the copy engine and to the other blocks of the cluster. Call it before the
   block_barrier or cluster_barrier after which they are used. */
DEVICE void arrivals_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void arrive(Arrivals *arrivals)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(arrivals)) : "memory");
}

/* Arrives once, and announces that the copy engine is going to copy `bytes` bytes. */
DEVICE void arrive_expecting(Arrivals *arrivals, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrivals)), "r"(bytes)
                 : "memory");
}

/* Waits until the phase of that parity has ended. The phases have parity 0, 1, 0, ...; parity 1 of a new barrier counts
   as ended. */
DEVICE void arrivals_wait(Arrivals *arrivals, unsigned parity)
{
    unsigned done;
    do
        asm volatile("{\n.reg .pred ended;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, ended;\n}"
                     : "=r"(done)
                     : "r"(shared_address(arrivals)), "r"(parity)
                     : "memory");
    while (!done);
}

DEVICE void tensor_prefetch(const TensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

/* For a tensor map that lies in global memory: each block calls this once before its first load with the map. */
DEVICE void tensor_map_acquire(const TensorMap *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

/* Orders this thread's ordinary memory accesses before later accesses of the copy engine and of wgmma. */
DEVICE void async_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

/* async_fence for shared memory only. */
DEVICE void async_fence_of_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Starts to copy the box that begins at element x of row y of the tensor to shared memory, which must be aligned to
   1024 bytes. Elements outside of the tensor become zero. The copied bytes count at `arrivals`. */
DEVICE void tensor_load(void *shared, const TensorMap *map, unsigned x, unsigned y, Arrivals *arrivals)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(shared)),
        "l"(map), "r"(shared_address(arrivals)), "r"(x), "r"(y)
        : "memory");
}

/* ---- clusters: neighbouring blocks that run together, numbered by blockIdx.x; a single block is a cluster of one
   ---- */

DEVICE unsigned cluster_blocks()
{
    unsigned count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

/* A barrier for all threads of all blocks of the cluster. */
DEVICE void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Arrives at a barrier of the cluster's block `number`: the one that lies in its shared memory where `arrivals` lies in
   the shared memory of this block. */
DEVICE void arrive_at(Arrivals *arrivals, unsigned number)
{
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(arrivals)),
                 "r"(number)
                 : "memory");
}

/* tensor_load to the first `blocks` blocks of the cluster. In each block the box goes to the same offset of shared
   memory, and its bytes count at the block's own barrier. */
DEVICE void tensor_load_to_all(void *shared, const TensorMap *map, unsigned x, unsigned y, Arrivals *arrivals,
                               unsigned blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
                 "l"(map), "r"(shared_address(arrivals)), "r"(x), "r"(y), "h"((unsigned short)((1u << blocks) - 1))
                 : "memory");
}

/* Changes the number of registers per thread of this warpgroup. All its threads call it. */
template <int COUNT> DEVICE void registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }

template <int COUNT> DEVICE void registers_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

/* Called before the first product of a group: the products see what the threads wrote to the registers of the sums. */
DEVICE void group_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEVICE void group_products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Waits until at most GROUPS of this warpgroup's committed groups of products are unfinished. */
template <int GROUPS> DEVICE void group_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

/* Keeps the compiler from moving accesses to the sums (hold_fragments: to the fragments of an operand) across this
   call. */
template <unsigned COUNT> DEVICE void hold_sums(float (&sum)[COUNT])
{
    UNROLL for (unsigned i = 0; i < COUNT; i++) asm volatile("" : "+f"(sum[i])::"memory");
}

template <unsigned COUNT> DEVICE void hold_fragments(unsigned (&fragments)[COUNT][4])
{
    UNROLL for (unsigned i = 0; i < COUNT * 4; i++) asm volatile("" : "+r"(fragments[i / 4][i % 4])::"memory");
}

#define WGMMA_SUMS(i)                                                                                           \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])

/* d[64, 256] += a[64, 16] b[16, 256]. A_BY_K, B_BY_K: k is the contiguous index of the operand. In thread t of the
   warpgroup, d[4 j + 2 h + e] is the element in row t / 32 * 16 + t % 32 / 4 + 8 h and column 8 j + t % 4 * 2 + e. */
template <bool A_BY_K, bool B_BY_K>
DEVICE void group_product(float (&d)[128], unsigned long long a, unsigned long long b)
{
    asm volatile(
        "{\n.reg .pred onto;\nsetp.eq.u32 onto, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
        "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "
        "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "
        "%119, %120, %121, %122, %123, %124, %125, %126, %127},  "
        "%128, %129, onto, 1, 1, %130, %131;\n}"
        : WGMMA_SUMS(0), WGMMA_SUMS(8), WGMMA_SUMS(16), WGMMA_SUMS(24), WGMMA_SUMS(32), WGMMA_SUMS(40), WGMMA_SUMS(48),
          WGMMA_SUMS(56), WGMMA_SUMS(64), WGMMA_SUMS(72), WGMMA_SUMS(80), WGMMA_SUMS(88), WGMMA_SUMS(96),
          WGMMA_SUMS(104), WGMMA_SUMS(112), WGMMA_SUMS(120)
        : "l"(a), "l"(b), "n"(A_BY_K ? 0 : 1), "n"(B_BY_K ? 0 : 1));
}

#define WGMMA_32                                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define WGMMA_64                                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "  \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
    "%62, %63}"
#define WGMMA_SUMS_32 WGMMA_SUMS(0), WGMMA_SUMS(8), WGMMA_SUMS(16), WGMMA_SUMS(24)
#define WGMMA_SUMS_64 WGMMA_SUMS_32, WGMMA_SUMS(32), WGMMA_SUMS(40), WGMMA_SUMS(48), WGMMA_SUMS(56)

/* d[64, 128] = a[64, 16] b[16, 128], plus d if `onto`, like d[64, 256] above. */
template <bool A_BY_K = true, bool B_BY_K = true>
DEVICE void group_product(float (&d)[64], unsigned long long a, unsigned long long b, bool onto = true)
{
    asm volatile("{\n.reg .pred onto;\nsetp.ne.u32 onto, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_64
                 ", %64, %65, onto, 1, 1, %67, %68;\n}"
                 : WGMMA_SUMS_64
                 : "l"(a), "l"(b), "r"((unsigned)onto), "n"(A_BY_K ? 0 : 1), "n"(B_BY_K ? 0 : 1));
}

/* d[64, 64] = a[64, 16] b[16, 64], like d[64, 128] above. */
DEVICE void group_product(float (&d)[32], unsigned long long a, unsigned long long b, bool onto)
{
    asm volatile("{\n.reg .pred onto;\nsetp.ne.u32 onto, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_32 ", %32, %33, onto, 1, 1, 0, 0;\n}"
                 : WGMMA_SUMS_32
                 : "l"(a), "l"(b), "r"((unsigned)onto));
}

/* d[64, 128] += a[64, 16] b[16, 128] with a in registers: each warp has a fragment as for multiply_fragments. The rows
   of b in shared memory are indexed by k. The registers of a must not change until the product is done. */
DEVICE void group_product(float (&d)[64], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile("{\n.reg .pred onto;\nsetp.eq.u32 onto, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_64
                 ", {%64, %65, %66, %67}, %68, onto, 1, 1, 1;\n}"
                 : WGMMA_SUMS_64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d[64, 64] += a[64, 16] b[16, 64], with operands like those of d[64, 128] += a[64, 16] b[16, 128] above. */
DEVICE void group_product(float (&d)[32], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile("{\n.reg .pred onto;\nsetp.eq.u32 onto, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_32
                 ", {%32, %33, %34, %35}, %36, onto, 1, 1, 1;\n}"
                 : WGMMA_SUMS_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif

/* The descriptor of an operand of group_product in shared memory, which consists of atoms of 8 rows of 128 swizzled
   bytes. If k is the contiguous index, a row has 64 elements of k, and each eight rows begin `stride` bytes after the
   eight before. Otherwise a row has 64 elements of the other index, all of one k. Then `stride` is the number of bytes
   from the rows of eight k to those of the next eight k, and `leading` that from 64 elements of the other index to the
   next 64. */
DEVICE unsigned long long matrix_descriptor(const void *shared, unsigned leading, unsigned stride)
{
    const unsigned long long swizzle_128 = 1ull << 62;
    return swizzle_128 | (unsigned long long)(stride / 16) << 32 | (unsigned long long)(leading / 16) << 16 |
           (shared_address(shared) & 0x3ffff) / 16;
}

#endif
