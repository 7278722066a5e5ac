/* The instructions of Hopper: boxes of tensors, arrivals, clusters, registers, products of warpgroups. Copies and
   products run as late as possible; their accesses are checked from the time at which they may run. */

#include "tests/gpu/simt_machine.h"

using namespace simt;

namespace
{

struct EmulatedTensorMap {
    const char *base;
    TensorMapShape shape;
};
static_assert(sizeof(EmulatedTensorMap) <= sizeof(TensorMap), "a map has room for ours");

/* The swizzle of 128 bytes: permutes the 16-byte chunks of a row by the row's number modulo 8. The bits of the address
   contain both numbers. */
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

/* The words of shared memory that a box writes. */
struct Words {
    Touched *first, *last;
    Touched *begin() const { return first; }
    Touched *end() const { return last; }
};

Words words_of(Block *block, unsigned address, unsigned bytes)
{
    Touched *all = block->touched.data();
    return Words{all + address / 4, all + (address + bytes) / 4};
}

unsigned box_bytes(const TensorMap *map)
{
    EmulatedTensorMap emulated;
    std::memcpy(&emulated, map, sizeof emulated);
    return emulated.shape.box[0] * emulated.shape.box[1] * 2;
}

void perform(const TensorCopy &copy)
{
    EmulatedTensorMap map;
    std::memcpy(&map, copy.map, sizeof map);
    Block *block = machine.running->block; /* the running thread waits for this box, so the box is for its block */
    const unsigned to = shared_address(copy.to);
    for (Touched &word : words_of(block, to, box_bytes(copy.map)))
        word.loading = false;
    for (unsigned y = 0; y < map.shape.box[1]; y++)
        for (unsigned x = 0; x < map.shape.box[0]; x++) {
            std::uint16_t element = 0;
            if (copy.x + x < map.shape.sizes[0] && copy.y + y < map.shape.sizes[1])
                std::memcpy(&element, map.base + (copy.y + y) * map.shape.pitch + (copy.x + x) * 2, 2);
            std::memcpy(simt_shared() + swizzled(to + y * 128 + x * 2), &element, 2);
        }
}

/* The address in another block of the cluster that corresponds to `own` in the running block's shared memory. */
char *in_block(Block *block, const void *own) { return block->shared + shared_address(own); }

ArrivalState &arrivals_of(Block *block, const void *own)
{
    const void *arrivals = in_block(block, own);
    if (block->ended == block->threads.size())
        simt_fail("reaches for the shared memory of block %u, which has ended", block->number);
    else if (!block->arrivals.count(arrivals))
        simt_fail("uses arrivals that nobody has initialised");
    else if (block != machine.running->block && block->arrivals[arrivals].since == block->cluster->barriers)
        simt_fail("uses arrivals of block %u with no barrier of their cluster since they were initialised",
                  block->number);
    return block->arrivals[arrivals];
}

void end_phase(ArrivalState &state)
{
    if (state.missing == 0 && state.bytes == 0) {
        state.block->epoch++;
        state.phase++;
        state.missing = state.count;
        wake(state.block, &state);
    }
}

/* Completes the boxes that this barrier waits for, and ends its phase if nothing else is missing. */
void complete_boxes(ArrivalState &state)
{
    std::vector<TensorCopy> copies;
    copies.swap(state.copies);
    for (const TensorCopy &copy : copies) {
        perform(copy);
        state.bytes -= box_bytes(copy.map);
    }
    end_phase(state);
}

void arrive(ArrivalState &state, unsigned bytes)
{
    if (state.missing == 0) {
        simt_fail("arrives where all have arrived");
        return;
    }
    state.missing--;
    state.bytes += bytes;
    end_phase(state);
}

Block *in_cluster(unsigned number)
{
    const std::vector<Block *> &blocks = machine.running->block->cluster->blocks;
    if (number >= blocks.size())
        simt_fail("reaches for block %u of a cluster of %zu", number, blocks.size());
    return blocks[number % blocks.size()];
}

/* An element of a matrix in shared memory (PTX ISA: matrix descriptors, strides of 128-byte swizzle). k is the index
   over which the product sums, `other` the row of a or the column of b. */
float descriptor_element(unsigned long long descriptor, bool by_k, unsigned other, unsigned k)
{
    const unsigned start = (unsigned)(descriptor & 0x3fff) * 16, leading = (unsigned)(descriptor >> 16 & 0x3fff) * 16;
    const unsigned stride = (unsigned)(descriptor >> 32 & 0x3fff) * 16;
    const unsigned offset = by_k ? other / 8 * stride + other % 8 * 128 + k * 2
                                 : other / 64 * leading + k / 8 * stride + k % 8 * 128 + other % 64 * 2;
    const unsigned address = swizzled(start + offset);
    const Block *block = machine.running->block;
    const Touched &word = block->touched[address / 4];
    if (word.loading)
        simt_fail("multiplies what byte %u of shared memory held, where a box is to come", address);
    if (word.writer >= 0 && word.fences == block->threads[(std::size_t)word.writer]->fences)
        simt_fail("multiplies what thread %d wrote to byte %u of shared memory, with no fence between", word.writer,
                  address);
    if (word.writer >= 0 && word.write_epoch == block->epoch)
        simt_fail("multiplies what thread %d wrote to byte %u of shared memory, with no barrier between", word.writer,
                  address);
    std::uint16_t bits;
    std::memcpy(&bits, simt_shared() + address, 2);
    return __uint_as_float((unsigned)bits << 16);
}

/* Gives every lane the elements of its two rows of operand a: rows lane / 4 and lane / 4 + 8 of the warp's 16 rows.
   Four lanes share these rows, and each has some of their elements (PTX ISA: wgmma.m64nNk16, register fragments of
   A). */
void exchange_fragments(void *const *lanes)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (std::size_t p = 0; p < ((Fiber *)lanes[lane])->products.size(); p++) {
            GroupProduct &product = ((Fiber *)lanes[lane])->products[p];
            for (unsigned k = 0; product.of.fragment && k < 16; k++)
                for (unsigned half = 0; half < 2; half++) {
                    const Fiber *owner = (Fiber *)lanes[lane / 4 * 4 + k % 8 / 2];
                    const unsigned pair = owner->products[p].of.fragment[half + k / 8 * 2];
                    product.a[half][k] = k % 2 ? high(pair) : low(pair);
                }
        }
}

void perform(const GroupProduct &product)
{
    const SimtGroupProduct &of = product.of;
    const unsigned thread = machine.running->number % 128, lane = thread % 32;
    float a[2][16];
    std::memcpy(a, product.a, sizeof a);
    for (unsigned half = 0; half < 2 && !of.fragment; half++)
        for (unsigned k = 0; k < 16; k++)
            a[half][k] = descriptor_element(of.a, of.a_by_k, thread / 32 * 16 + lane / 4 + half * 8, k);
    for (unsigned j = 0; j < of.columns / 8; j++)
        for (unsigned e = 0; e < 2; e++) {
            float sum[2] = {};
            for (unsigned k = 0; k < 16; k++) {
                const float b = descriptor_element(of.b, of.b_by_k, j * 8 + lane % 4 * 2 + e, k);
                sum[0] += a[0][k] * b;
                sum[1] += a[1][k] * b;
            }
            for (unsigned half = 0; half < 2; half++) {
                float &d = of.d[j * 4 + half * 2 + e];
                d = of.onto ? d + sum[half] : sum[half];
            }
        }
}

} // namespace

unsigned shared_address(const void *shared) { return (unsigned)((const char *)shared - simt_shared()); }

void simt_arrivals_init(const void *arrivals, unsigned count)
{
    Block *block = machine.running->block;
    block->arrivals[arrivals] = ArrivalState{block, block->cluster->barriers, count, count, 0, 0, 0, {}};
}

void simt_arrive(const void *arrivals, unsigned bytes) { arrive(arrivals_of(machine.running->block, arrivals), bytes); }

void simt_arrive_at(const void *arrivals, unsigned number)
{
    ArrivalState &state = arrivals_of(in_cluster(number), arrivals);
    if (state.block != machine.running->block)
        state.unseen = state.phase + 1;
    arrive(state, 0);
}

unsigned simt_cluster_blocks() { return (unsigned)machine.running->block->cluster->blocks.size(); }

void simt_cluster_barrier()
{
    Fiber *me = machine.running;
    Cluster &cluster = *me->block->cluster;
    if (++cluster.arrived < cluster.blocks.size() * machine.launch.block) {
        me->waits = true, me->at = "a barrier of its cluster", me->operands = &cluster;
        yield();
        return;
    }
    cluster.arrived = 0;
    cluster.barriers++;
    for (Block *block : cluster.blocks) {
        block->epoch++;
        for (auto &state : block->arrivals)
            state.second.unseen = 0;
        wake(block, &cluster);
    }
}

void simt_arrivals_wait(const void *arrivals, unsigned parity)
{
    ArrivalState &state = arrivals_of(machine.running->block, arrivals);
    for (;;) {
        complete_boxes(state);
        if ((state.phase & 1) != parity)
            break;
        Fiber *me = machine.running;
        me->waits = true, me->at = "arrivals", me->operands = &state;
        yield();
    }
    if (state.phase >= state.unseen)
        state.unseen = 0;
}

/* Emulates setmaxnreg: all warps of a block together may not use more registers than at launch. */
void simt_registers(unsigned count, bool more)
{
    unsigned none = 0;
    simt_collective("setmaxnreg", &none, [](void *const *) {});
    Fiber *me = machine.running;
    if (more ? count < me->registers : count > me->registers)
        simt_fail("has %u registers, and asks for %s: %u", me->registers, more ? "more" : "less", count);
    while (me->block->registers + me->registers < count)
        simt_poll("more registers than others give up");
    simt_poll_ended();
    me->block->registers += me->registers - count;
    me->registers = count;
}

/* Whether a tensor map is part of the kernel's parameters. These are a copy on the thread's stack; under the address
   sanitizer they may be anywhere. */
static bool is_parameter(const TensorMap *map)
{
#ifdef __SANITIZE_ADDRESS__
    (void)map;
    return true;
#else
    const char *stack = machine.running->stack.get(), *at = (const char *)map;
    return at >= stack && at < stack + stack_bytes;
#endif
}

void simt_tensor_map_acquire(const TensorMap *map) { machine.running->block->maps.insert(map); }

void simt_async_fence(bool of_global)
{
    machine.running->fences++;
    if (of_global)
        machine.running->counted = false;
}

static void load_to(Block *block, void *own, const TensorMap *map, unsigned x, unsigned y, const void *arrivals)
{
    for (Touched &word : words_of(block, shared_address(own), box_bytes(map))) {
        if (word.writer >= 0 && word.fences == block->threads[(std::size_t)word.writer]->fences)
            simt_fail("loads a box to where thread %d wrote, with no fence between", word.writer);
        if (word.loading)
            simt_fail("loads a box to where another is to come");
        word = Touched();
        word.loading = true;
    }
    ArrivalState &state = arrivals_of(block, arrivals);
    void *shared = in_block(block, own);
    std::memset(shared, 0xff, box_bytes(map));
    state.copies.push_back({shared, map, x, y});
    if (block != machine.running->block)
        state.unseen = state.phase + 1;
    wake(block, &state); /* the thread that waits for the box performs the copy */
}

static void check_load(const void *shared, const TensorMap *map)
{
    if (shared_address(shared) % 1024 || (std::uintptr_t)map % 128)
        simt_fail("loads a box to an address that is not a multiple of 1024, or by a map that is not at one of 128");
    if (shared_address(shared) + box_bytes(map) > machine.launch.shared)
        simt_fail("loads a box beyond shared memory");
    if (machine.running->counted)
        simt_fail("loads by the copy engine after it waited for others' counts, with no fence between");
    if (!is_parameter(map) && !machine.running->block->maps.count(map))
        simt_fail("loads by a map in global memory that its block has not acquired");
}

void simt_tensor_load_to_all(void *shared, const TensorMap *map, unsigned x, unsigned y, const void *arrivals,
                             unsigned blocks)
{
    check_load(shared, map);
    for (unsigned number = 0; number < blocks && machine.error.empty(); number++)
        load_to(in_cluster(number), shared, map, x, y, arrivals);
}

void simt_tensor_load(void *shared, const TensorMap *map, unsigned x, unsigned y, const void *arrivals)
{
    check_load(shared, map);
    load_to(machine.running->block, shared, map, x, y, arrivals);
}

void simt_group_product(const SimtGroupProduct &product)
{
    Fiber *me = machine.running;
    unsigned long long both[2] = {product.a, product.b};
    simt_collective("wgmma", both, [](void *const *lanes) {
        for (int i = 1; i < 32; i++)
            if (std::memcmp(lanes[i], lanes[0], sizeof both))
                simt_fail("multiplies by other descriptors than lane %d of its warp", i);
    });
    if (!me->products_begun)
        simt_fail("multiplies with no fence behind what it did to its registers");
    me->products.push_back({product, me->product_groups, {}});
}

void simt_group_products_begin() { machine.running->products_begun = true; }

void simt_group_products_commit() { machine.running->product_groups++; }

/* Performs all committed products except those of the last `groups` committed groups. */
static void perform_products(Fiber &me, unsigned groups)
{
    std::vector<GroupProduct> rest;
    for (const GroupProduct &product : me.products)
        if (product.group + groups < me.product_groups)
            perform(product);
        else
            rest.push_back(product);
    me.products.swap(rest);
}

void simt_group_products_wait(unsigned groups)
{
    Fiber *me = machine.running;
    unsigned none = 0;
    simt_collective("wgmma.wait_group", me, exchange_fragments);
    perform_products(*me, groups);
    /* a collective, so that no lane continues before all lanes have read their operands */
    simt_collective("wgmma.wait_group", &none, [](void *const *) {});
    me->products_begun = false;
}

extern "C" void emulated_tensor_map(TensorMap *map, const void *base, const TensorMapShape *shape)
{
    const EmulatedTensorMap emulated{(const char *)base, *shape};
    std::memcpy(map, &emulated, sizeof emulated);
}
