/* Runs blocks of threads on one processor. A thread is a fiber that runs until it waits at a barrier or a collective
   instruction; a barrier or warp continues when the last thread has arrived. */

#include "tests/gpu/simt_machine.h"
#include "tests/gpu/simt_run.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

SimtIndex threadIdx, blockIdx, blockDim, gridDim;

namespace simt
{

Machine machine;

namespace
{

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

} // namespace

void yield()
{
    Fiber *me = machine.running;
    switch_to(&me->context, &machine.scheduler, &me->fake_stack, scheduler_stack, scheduler_size);
}

void stop()
{
    for (;;)
        yield();
}

void wake(Block *block, const void *waited_for)
{
    for (Fiber *fiber : block->threads)
        if (fiber->waits && fiber->operands == waited_for)
            fiber->waits = false;
}

namespace
{

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

/* Registers per thread at launch if the compiler uses as many as it may; setmaxnreg requires that. */
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

/* Runs the fibers of all blocks until all have ended or there is an error. It is an error if none can continue. In
   every second block the fibers run in reverse order. */
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
    if (!machine.error.empty()) /* after an error fibers are in the middle of a kernel and cannot be reused */
        machine.fibers.clear();
    return machine.error.empty() ? nullptr : machine.error.c_str();
}

/* Checks an access to shared memory: it lies within the bytes of the launch, and no box of a tensor (TMA) is still to
   arrive there. Accesses are ordered by the barriers of the block, and within a warp by its collective instructions.
   Reports an access of at least 4 bytes if another thread has accessed the same 4-byte word, one of the two accesses
   writes, and nothing orders them. */
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

} // namespace simt

using namespace simt;

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
    wake(block, &block->arrived[barrier]);
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
