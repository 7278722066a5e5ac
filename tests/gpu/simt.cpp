/* Runs blocks of threads on one processor. A thread is a fiber that runs until it waits at a barrier or a collective
   instruction; a barrier or warp continues when the last thread has arrived. */

#include "tests/gpu/simt.h"
#include "tests/gpu/emulation.h"
#include "tests/gpu/simt_run.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <ucontext.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

SimtIndex threadIdx, blockIdx, blockDim, gridDim;

namespace
{

constexpr std::size_t stack_bytes = 64 * 1024, guard_bytes = 4096;

struct AsyncCopy {
    void *to;
    const void *from;
    unsigned bytes, group;
};

/* A box of a tensor that is being copied. It arrives when a thread waits for it. Until then its memory has neither the
   old nor the new content. */
struct TensorCopy {
    void *to; /* destination, in the shared memory of the block whose barrier counts the bytes */
    const TensorMap *map;
    unsigned x, y;
};

struct Block;

struct ArrivalState {
    Block *block;   /* the block in whose shared memory this barrier is */
    unsigned since; /* how many cluster barriers had passed when it was initialized */
    unsigned count, missing, phase;
    /* 1 + the last phase in which another block arrived or sent a box. 0: there was none; or since then a thread has
       waited for the end of that phase, or the cluster has passed a barrier */
    unsigned unseen;
    long bytes; /* announced bytes that have not arrived */
    std::vector<TensorCopy> copies;
};

/* A product of a warpgroup that was begun. Its operands, also those in registers, are read as late as allowed, to find
   threads that change them too early. */
struct GroupProduct {
    SimtGroupProduct of;
    unsigned group;
    float a[2][16]; /* this thread's rows, from fragments */
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[stack_bytes]};
    Block *block = nullptr;
    unsigned number = 0;
    bool waits = false, ended = false;
    const char *at = ""; /* the operation at which this thread waits */
    void *operands = nullptr;
    std::vector<AsyncCopy> copies;
    unsigned groups = 0;
    std::vector<GroupProduct> products;
    unsigned product_groups = 0;
    /* group_products_begin was called and no wait since: earlier writes of registers are ordered before the products */
    bool products_begun = false;
    unsigned fences = 0;  /* how many async_fence this thread has executed */
    bool counted = false; /* this thread has read counters of other blocks and has executed no fence since */
    unsigned polls = 0;   /* how often this thread has read a value in vain that another thread must change */
    unsigned registers = 0;
    void *fake_stack = nullptr;
};

/* The accesses to four bytes of shared memory since the block's last barrier. */
struct Touched {
    unsigned write_epoch = 0, read_epoch = 0, write_warp_epoch = 0, read_warp_epoch = 0;
    int writer = -1, reader = -1;
    bool warps = false, lanes = false; /* warps: several warps have read it; lanes: several lanes of one warp have */
    unsigned fences = 0;               /* the number of the writer's fences when it wrote */
    bool loading = false;              /* the copy engine is still writing it */
};

struct Warp {
    unsigned arrived = 0, epoch = 0;
};

/* The state that the blocks of a cluster share. */
struct Cluster {
    std::vector<Block *> blocks;
    unsigned arrived = 0, barriers = 0;
};

struct Block {
    unsigned number = 0, ended = 0, epoch = 1;
    std::shared_ptr<Cluster> cluster;
    std::unique_ptr<char[]> memory;
    char *shared = nullptr;
    std::vector<Fiber *> threads;
    std::vector<Warp> warps;
    unsigned arrived[16] = {};
    std::vector<Touched> touched;
    std::map<const void *, ArrivalState> arrivals;
    std::set<const TensorMap *> maps; /* acquired */
    unsigned registers = 0;           /* registers that warps have released for others */
};

struct Machine {
    Launch launch;
    void (*kernel)(const void *);
    const void *parameters;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<std::unique_ptr<Block>> blocks;
    Fiber *running = nullptr;
    ucontext_t scheduler;
    std::string error;
    unsigned long bank_conflicts = 0;
};

Machine machine;

void switch_to(ucontext_t *from, ucontext_t *to, void **fake_stack, const void *stack, std::size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake_stack, stack, size);
    swapcontext(from, to);
    __sanitizer_finish_switch_fiber(fake_stack ? *fake_stack : nullptr, nullptr, nullptr);
#else
    (void)fake_stack, (void)stack, (void)size;
    swapcontext(from, to);
#endif
}

const void *scheduler_stack;
std::size_t scheduler_size;

void yield()
{
    Fiber *me = machine.running;
    switch_to(&me->context, &machine.scheduler, &me->fake_stack, scheduler_stack, scheduler_size);
}

/* Stops the running thread for good: it has ended, or there is an error, which ends the run. Does not return. */
void stop()
{
    for (;;)
        yield();
}

void run_fiber()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
    machine.kernel(machine.parameters);
    Fiber *me = machine.running;
    if (!me->copies.empty())
        simt_fail("ends while asynchronous copies are under way");
    if (!me->products.empty())
        simt_fail("ends while products of its warpgroup are under way");
    me->ended = true;
    me->block->ended++;
    if (me->block->ended == me->block->threads.size())
        for (const auto &state : me->block->arrivals)
            if (state.second.unseen)
                simt_fail("ends its block, where others of the cluster arrive and nobody has waited for it");
    stop();
}

void resume(Fiber *fiber)
{
    machine.running = fiber;
    threadIdx = {fiber->number, 0, 0};
    blockIdx = {fiber->block->number, 0, 0};
    void *fake = nullptr;
    switch_to(&machine.scheduler, &fiber->context, &fake, fiber->stack.get(), stack_bytes);
}

/* The registers per thread at launch, if the compiler uses as many as it may, which setmaxnreg requires. */
unsigned registers_at_launch() { return std::min(65536 / machine.launch.block / 8 * 8, 255u); }

void start(Block *block, unsigned number, std::size_t first_fiber)
{
    const Launch &launch = machine.launch;
    block->number = number;
    block->memory.reset(new char[launch.shared + guard_bytes + 1024]);
    block->shared = (char *)(((std::uintptr_t)block->memory.get() + 1023) / 1024 * 1024);
    std::memset(block->shared, 0xff, launch.shared);
    block->warps.resize((launch.block + 31) / 32);
    block->touched.resize((launch.shared + guard_bytes) / 4 + 1);
    for (unsigned t = 0; t < launch.block; t++) {
        if (first_fiber + t == machine.fibers.size())
            machine.fibers.emplace_back(new Fiber);
        Fiber *fiber = machine.fibers[first_fiber + t].get();
        fiber->block = block, fiber->number = t, fiber->waits = fiber->ended = false, fiber->at = "";
        fiber->copies.clear(), fiber->groups = 0, fiber->products.clear(), fiber->product_groups = 0, fiber->polls = 0;
        fiber->products_begun = false;
        fiber->fences = 0, fiber->counted = false, fiber->registers = registers_at_launch();
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack.get();
        fiber->context.uc_stack.ss_size = stack_bytes;
        fiber->context.uc_link = nullptr;
        makecontext(&fiber->context, run_fiber, 0);
        block->threads.push_back(fiber);
    }
}

/* Runs the fibers of all blocks until all have ended or none can continue. Their order is reversed in every second
   block. */
void run_blocks()
{
    for (bool going = true; going && machine.error.empty();) {
        going = false;
        for (auto &block : machine.blocks) {
            const std::size_t threads = block->threads.size();
            for (std::size_t i = 0; i < threads && machine.error.empty(); i++) {
                Fiber *fiber = block->threads[block->number % 2 ? threads - 1 - i : i];
                if (fiber->ended || fiber->waits)
                    continue;
                resume(fiber);
                going |= fiber->polls < 2;
            }
        }
    }
    for (auto &block : machine.blocks)
        for (Fiber *fiber : block->threads)
            if (!fiber->ended && machine.error.empty()) {
                machine.running = fiber;
                simt_fail("waits for ever at %s; %u of %zu threads have ended", fiber->at, block->ended,
                          block->threads.size());
            }
}

const char *run(const char *name, const void *parameters, Launch launch, unsigned together)
{
    machine.error.clear();
    machine.kernel = simt_kernel(name);
    if (!machine.kernel)
        return "no kernel of that name";
    if (launch.cluster == 0 || launch.grid % launch.cluster)
        return "a grid that is not made of whole clusters";
    machine.launch = launch, machine.parameters = parameters;
    blockDim = {launch.block, 1, 1}, gridDim = {launch.grid, 1, 1};
    for (unsigned first = 0; first < launch.grid && machine.error.empty(); first += together) {
        machine.blocks.clear();
        std::shared_ptr<Cluster> cluster;
        for (unsigned b = 0; b < together && first + b < launch.grid; b++) {
            machine.blocks.emplace_back(new Block);
            start(machine.blocks.back().get(), first + b, (std::size_t)b * launch.block);
            if (b % launch.cluster == 0)
                cluster = std::make_shared<Cluster>();
            machine.blocks.back()->cluster = cluster;
            cluster->blocks.push_back(machine.blocks.back().get());
        }
        run_blocks();
    }
    machine.blocks.clear();
    machine.running = nullptr;
    if (!machine.error.empty()) /* abandoned fibers are not reused */
        machine.fibers.clear();
    return machine.error.empty() ? nullptr : machine.error.c_str();
}

/* Checks an access to shared memory: it lies within the bytes of the launch, and no box is still to arrive there.
   Accesses are ordered by the barriers of the block, and within a warp by its collective instructions. Reports an
   access of at least 4 bytes if another thread accessed the same 4-byte word, no order is between them, and one of them
   writes. */
void touch(Fiber *fiber, const void *address, std::size_t bytes, bool write)
{
    Block *block = fiber->block;
    const std::uintptr_t begin = (std::uintptr_t)block->shared, at = (std::uintptr_t)address;
    if (at < begin || at >= begin + machine.launch.shared + guard_bytes)
        return;
    const std::size_t offset = at - begin;
    if (offset + bytes > machine.launch.shared) {
        simt_fail("touches byte %zu of %u bytes of shared memory", offset + bytes - 1, machine.launch.shared);
        return;
    }
    const int me = (int)fiber->number;
    const unsigned epoch = block->epoch, warp_epoch = block->warps[fiber->number / 32].epoch;
    for (std::size_t word = offset / 4; word <= (offset + bytes - 1) / 4; word++) {
        Touched &t = block->touched[word];
        const bool written =
            t.write_epoch == epoch && t.writer != me && (t.writer / 32 != me / 32 || t.write_warp_epoch == warp_epoch);
        const bool was_read =
            t.read_epoch == epoch &&
            (t.warps || t.reader / 32 != me / 32 || (t.read_warp_epoch == warp_epoch && (t.lanes || t.reader != me)));
        if (bytes >= 4 && (written || (write && was_read))) {
            simt_fail("%s byte %zu of shared memory, which thread %d %s with no barrier between",
                      write ? "writes" : "reads", word * 4, written ? t.writer : t.reader, written ? "wrote" : "reads");
            return;
        }
        if (t.loading) {
            simt_fail("touches byte %zu of shared memory, where a box is to come", word * 4);
            return;
        }
        if (write) {
            t.fences = fiber->fences;
            t.write_epoch = epoch, t.write_warp_epoch = warp_epoch, t.writer = me;
        } else {
            const bool first = t.read_epoch != epoch;
            t.warps = !first && (t.warps || t.reader / 32 != me / 32);
            t.lanes = !first && t.read_warp_epoch == warp_epoch && (t.lanes || t.reader != me);
            t.read_epoch = epoch, t.read_warp_epoch = warp_epoch, t.reader = me;
        }
    }
}

} // namespace

char *simt_shared() { return machine.running->block->shared; }

void simt_fail(const char *format, ...)
{
    if (!machine.error.empty())
        return;
    char words[400];
    const Fiber *fiber = machine.running;
    int length = std::snprintf(words, sizeof words, "block %u thread %u ", fiber->block->number, fiber->number);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(words + length, sizeof words - (std::size_t)length, format, arguments);
    va_end(arguments);
    machine.error = words;
}

void simt_read(const void *address, std::size_t bytes)
{
    if (machine.running)
        touch(machine.running, address, bytes, false);
}

void simt_write(const void *address, std::size_t bytes)
{
    if (machine.running)
        touch(machine.running, address, bytes, true);
}

void simt_poll(const char *at)
{
    machine.running->at = at;
    machine.running->polls++;
    yield();
}

void simt_poll_ended() { machine.running->polls = 0; }

void simt_counted() { machine.running->counted = true; }

void simt_barrier(unsigned barrier, unsigned threads)
{
    Fiber *me = machine.running;
    Block *block = me->block;
    if (++block->arrived[barrier] < threads) {
        me->waits = true, me->at = "a barrier", me->operands = &block->arrived[barrier];
        yield();
        return;
    }
    block->arrived[barrier] = 0;
    block->epoch++;
    for (Fiber *fiber : block->threads)
        if (fiber->waits && fiber->operands == &block->arrived[barrier])
            fiber->waits = false;
}

void simt_collective(const char *instruction, void *operands, void (*finish)(void *const *lanes))
{
    Fiber *me = machine.running;
    Block *block = me->block;
    Warp &warp = block->warps[me->number / 32];
    Fiber **lanes = &block->threads[me->number / 32 * 32];
    me->at = instruction, me->operands = operands;
    if (++warp.arrived < 32) {
        me->waits = true;
        yield();
        return;
    }
    void *all[32];
    for (int i = 0; i < 32; i++) {
        all[i] = lanes[i]->operands;
        if (std::strcmp(lanes[i]->at, instruction))
            simt_fail("is at %s where lane %d of its warp is at %s", instruction, i, lanes[i]->at);
    }
    if (!machine.error.empty())
        stop();
    finish(all);
    warp.arrived = 0;
    warp.epoch++;
    for (int i = 0; i < 32; i++)
        lanes[i]->waits = false;
}

/* ---- asynchronous copies: run as late as possible; accesses are checked from the time at which they may run ---- */

void simt_copy_async(void *to, const void *from, unsigned bytes)
{
    if ((std::uintptr_t)to % 16 || (std::uintptr_t)from % 16)
        simt_fail("copies 16 bytes to or from an address that is not a multiple of 16");
    simt_write(to, 16);
    machine.running->copies.push_back({to, from, bytes, machine.running->groups});
}

void simt_copy_async_commit() { machine.running->groups++; }

void simt_copy_async_wait(unsigned groups)
{
    Fiber *me = machine.running;
    std::vector<AsyncCopy> rest;
    for (const AsyncCopy &copy : me->copies)
        if (copy.group + groups < me->groups) {
            simt_write(copy.to, 16);
            std::memset(copy.to, 0, 16);
            if (copy.bytes)
                std::memcpy(copy.to, copy.from, copy.bytes);
        } else {
            rest.push_back(copy);
        }
    me->copies.swap(rest);
}

/* ---- matrices ---- */

namespace
{

struct LoadMatrices {
    unsigned *r;
    const char *row;
    bool transposed;
};

unsigned element(const char *row, unsigned column)
{
    std::uint16_t bits;
    std::memcpy(&bits, row + 2 * column, sizeof bits);
    return bits;
}

void finish_load_matrices(void *const *lanes)
{
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        unsigned banks = 0;
        const char *rows[8];
        for (unsigned row = 0; row < 8; row++) {
            rows[row] = ((LoadMatrices *)lanes[matrix * 8 + row])->row;
            banks |= 1u << ((std::uintptr_t)rows[row] / 16 % 8);
            if ((std::uintptr_t)rows[row] % 16)
                simt_fail("ldmatrix reads from an address that is not a multiple of 16");
            simt_read(rows[row], 16);
        }
        machine.bank_conflicts += 8 - (unsigned)__builtin_popcount(banks);
        for (unsigned lane = 0; lane < 32; lane++) {
            const LoadMatrices *own = (LoadMatrices *)lanes[lane];
            const unsigned row = lane / 4, column = lane % 4 * 2;
            own->r[matrix] = own->transposed ? element(rows[column], row) | element(rows[column + 1], row) << 16
                                             : element(rows[row], column) | element(rows[row], column + 1) << 16;
        }
    }
}

struct MultiplyFragments {
    float *c;
    const unsigned *a;
    unsigned b[2];
};

float low(unsigned pair) { return __uint_as_float(pair << 16); }
float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

void finish_multiply_fragments(void *const *lanes)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const MultiplyFragments *own = (MultiplyFragments *)lanes[lane];
        const unsigned group = lane / 4, pair = lane % 4 * 2;
        for (unsigned i = 0; i < 4; i++) {
            a[group + i % 2 * 8][pair + i / 2 * 8] = low(own->a[i]);
            a[group + i % 2 * 8][pair + i / 2 * 8 + 1] = high(own->a[i]);
        }
        for (unsigned i = 0; i < 2; i++) {
            b[pair + i * 8][group] = low(own->b[i]);
            b[pair + i * 8 + 1][group] = high(own->b[i]);
        }
    }
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            float sum = 0;
            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            ((MultiplyFragments *)lanes[lane])->c[i] += sum;
        }
}

} // namespace

void simt_load_matrices(unsigned *r, const void *row, bool transposed)
{
    LoadMatrices operands{r, (const char *)row, transposed};
    simt_collective(transposed ? "ldmatrix.trans" : "ldmatrix", &operands, finish_load_matrices);
}

void simt_multiply_fragments(float *c, const unsigned *a, unsigned b0, unsigned b1)
{
    MultiplyFragments operands{c, a, {b0, b1}};
    simt_collective("mma", &operands, finish_multiply_fragments);
}

/* ---- Hopper: boxes of tensors, arrivals, products of warpgroups ---- */

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
    Block *block = machine.running->block; /* the box is for the block of the running thread, which waits for it */
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

void wake(Block *block, const void *waited_for)
{
    for (Fiber *fiber : block->threads)
        if (fiber->waits && fiber->operands == waited_for)
            fiber->waits = false;
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

/* Completes the boxes in transfer. */
void come(ArrivalState &state)
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

/* The element (other, k) of the matrix in shared memory that a descriptor describes (PTX ISA: matrix descriptors,
   strides of 128-byte swizzle). */
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
        come(state);
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
    wake(block, &state); /* the waiting thread completes it */
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

/* Performs all products except the last `groups` groups. */
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

extern "C" const char *emulate(const char *name, const void *parameters, Launch launch)
{
    return run(name, parameters, launch, launch.cluster);
}

extern "C" const char *emulate_together(const char *name, const void *parameters, Launch launch)
{
    return run(name, parameters, launch, launch.grid);
}

extern "C" unsigned long emulated_bank_conflicts(void)
{
    const unsigned long conflicts = machine.bank_conflicts;
    machine.bank_conflicts = 0;
    return conflicts;
}
