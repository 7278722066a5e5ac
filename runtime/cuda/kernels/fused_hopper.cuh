#ifndef CUDA_KERNELS_FUSED_HOPPER_CUH
#define CUDA_KERNELS_FUSED_HOPPER_CUH

/* The fused launch in bfloat16. Products and the forward of attention use TMA and wgmma: their inputs are loaded into
   the ring of stages in shared memory. One thread of a block draws tiles, waits for the operations that a tile depends
   on, and loads these inputs; the first 256 threads compute. The ring continues from one of these tiles to the next.
   Tiles of other operations, and of attention's backward, use the memory of the ring as scratch. */

#include "attention_hopper.cuh"
#include "fused.cuh"

enum { FUSED_AHEAD = 2 }; /* the most tiles that a thread block has drawn and not finished */

struct FusedDrawn {
    FusedTile tile;
    unsigned position; /* where in the ring the tile begins, if it uses the ring */
};

/* The first FUSED_HEAD bytes of shared memory. After them come the stages of the ring, then the sums that are being
   stored. */
struct FusedHead {
    Arrivals ring[2 * HOPPER_STAGES];
    Arrivals drawn[FUSED_AHEAD], done[FUSED_AHEAD];
    FusedDrawn tiles[FUSED_AHEAD];
    unsigned acquired[FUSED_OPERATIONS_MOST / 32]; /* bit o: this block has called fused_acquire for operation o */
};
static_assert(sizeof(FusedHead) <= FUSED_HEAD, "the stages begin behind it");

/* The entry of FusedHead that tile `number` of this thread block uses, and the parity of its barriers. Both are as
   HopperRing computes stage and parity from its position. */
DEVICE unsigned fused_place(unsigned number) { return number % FUSED_AHEAD; }
DEVICE unsigned fused_parity(unsigned number) { return number / FUSED_AHEAD % 2; }

DEVICE bool fused_by_ring(const Operation &o) { return o.kind >= CUDA_hopper_forward; }

DEVICE void fused_acquire(const Operation &o)
{
    if (o.kind == CUDA_hopper_attention_forward)
        return tensor_map_acquire(&o.of.hopper_attention.qkv);
    tensor_map_acquire(&o.of.hopper.a);
    tensor_map_acquire(&o.of.hopper.b);
}

/* Runs in one thread, which may be one tile ahead of the computing threads. fused_next waits for the operations that
   the drawn tile depends on; the computing threads finish the block's earlier tiles meanwhile, so this wait ends. */
DEVICE void fused_produce(const Fused &p, FusedHead &head, HopperRing ring)
{
    for (unsigned number = 0;; number++) {
        const unsigned place = fused_place(number), parity = fused_parity(number);
        arrivals_wait(head.done + place, parity ^ 1);
        const FusedTile next = fused_next(p);
        head.tiles[place] = FusedDrawn{next, ring.position};
        arrive(head.drawn + place);
        if (next.operation == FUSED_NO_OPERATION)
            return;
        const Operation &o = p.operations[next.operation];
        const HopperProduct &product = o.of.hopper;
        if (!fused_by_ring(o)) {
            arrivals_wait(head.done + place, parity);
            continue;
        }
        unsigned &acquired = head.acquired[next.operation / 32];
        if (!(acquired >> next.operation % 32 & 1)) {
            fused_acquire(o);
            acquired |= 1u << next.operation % 32;
        }
        async_fence(); /* makes what other blocks stored visible to the copy engine's loads below */
        if (o.kind == CUDA_hopper_forward)
            hopper_produce<PRODUCT_FORWARD, HOPPER_TILE_N>(product, ring, next.tile);
        else if (o.kind == CUDA_hopper_input)
            hopper_produce<PRODUCT_INPUT, HOPPER_TILE_N>(product, ring, next.tile);
        else if (o.kind == CUDA_hopper_weight)
            hopper_produce<PRODUCT_WEIGHT, HOPPER_TILE_N>(product, ring, next.tile);
        else
            attention_produce(o.of.hopper_attention, ring, next.tile);
    }
}

/* A tile that does not use the ring. If this were inlined, the compiler would keep what such tiles have in common in
   registers during all other tiles too, and there are no registers left. */
DEVICE_CALL void fused_other_tile(const Operation &o, unsigned tile, char *stages)
{
    fused_tile<Bf16>(o, tile, stages);
}

DEVICE void fused_consume(const Fused &p, FusedHead &head, char *stages)
{
    char *sums = stages + HOPPER_STAGES * HOPPER_STAGE_BYTES;
    for (unsigned number = 0;; number++) {
        arrivals_wait(head.drawn + fused_place(number), fused_parity(number));
        const FusedDrawn now = head.tiles[fused_place(number)];
        const unsigned tile = now.tile.tile;
        if (now.tile.operation == FUSED_NO_OPERATION)
            return;
        const Operation &o = p.operations[now.tile.operation];
        HopperRing ring = HopperRing::of(stages, head.ring, now.position, 1);
        if (!fused_by_ring(o)) {
            fused_other_tile(o, tile, stages);
            async_fence_of_shared(); /* orders this thread's accesses to the stages before the next loads into them */
        } else if (o.kind == CUDA_hopper_forward) {
            hopper_consume<PRODUCT_FORWARD, HOPPER_TILE_N>(o.of.hopper, ring, tile, sums);
        } else if (o.kind == CUDA_hopper_input) {
            hopper_consume<PRODUCT_INPUT, HOPPER_TILE_N>(o.of.hopper, ring, tile, sums);
        } else if (o.kind == CUDA_hopper_weight) {
            hopper_consume<PRODUCT_WEIGHT, HOPPER_TILE_N>(o.of.hopper, ring, tile, sums);
        } else {
            attention_consume(o.of.hopper_attention.attention, ring, tile, sums);
        }
        tile_barrier();
        if (threadIdx.x == 0) {
            count_up(p.done + head.tiles[fused_place(number)].tile.operation);
            arrive(head.done + fused_place(number));
        }
    }
}

DEVICE void fused_hopper_work(const Fused &p, char *shared)
{
    FusedHead &head = *(FusedHead *)shared;
    const HopperRing ring = HopperRing::of(shared + FUSED_HEAD, head.ring, 0, 1);
    if (threadIdx.x == 0) {
        hopper_begin(ring);
        for (unsigned place = 0; place < FUSED_AHEAD; place++) {
            arrivals_init(head.drawn + place, 1);
            arrivals_init(head.done + place, 1);
        }
        for (unsigned &word : head.acquired)
            word = 0;
        arrivals_publish();
    }
    block_barrier();
    if (threadIdx.x < TILE_THREADS) {
        registers_more<COMPUTING_REGISTERS>();
        fused_clear(p);
        fused_consume(p, head, shared + FUSED_HEAD);
    } else {
        registers_less<LOADING_REGISTERS>();
        if (threadIdx.x == TILE_THREADS)
            fused_produce(p, head, ring);
    }
}

#endif
