#pragma once

/* The state of the emulation: blocks, their threads, and the operations that each thread has begun. */

#include "tests/gpu/emulation.h"
#include "tests/gpu/simt.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <ucontext.h>
#include <vector>

namespace simt
{

constexpr std::size_t stack_bytes = 64 * 1024, guard_bytes = 4096;

struct AsyncCopy {
    void *to;
    const void *from;
    unsigned bytes, group;
};

/* A box of a tensor that is being copied. It arrives when a thread waits for it. Until then the destination has neither
   the old nor the new content. */
struct TensorCopy {
    void *to; /* destination, in the shared memory of the block whose barrier counts the bytes */
    const TensorMap *map;
    unsigned x, y;
};

struct Block;

struct ArrivalState {
    Block *block;   /* the block in whose shared memory this barrier is */
    unsigned since; /* how many cluster barriers had passed when this barrier was initialized */
    unsigned count, missing, phase;
    /* 1 + the last phase of this barrier in which another block arrived at it, or began to copy a box of a tensor to
       this block: this block may not end before one of its threads has waited for the end of that phase. 0 if there was
       no such phase, if a thread has waited for it, or if the cluster has passed a barrier since */
    unsigned unseen;
    long bytes; /* announced bytes that have not arrived */
    std::vector<TensorCopy> copies;
};

/* A product of a warpgroup that was begun. Its operands, also those in registers, are read as late as allowed, to find
   threads that change them too early. */
struct GroupProduct {
    SimtGroupProduct of;
    unsigned group;
    float a[2][16]; /* this thread's two rows of operand a, gathered from the fragments of several lanes */
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
    unsigned fences = 0;  /* how many async fences this thread has executed */
    bool counted = false; /* this thread has waited for counts of other blocks and has executed no async_fence since */
    /* how often this thread has, in its present wait, read a value and found that no other thread had changed it yet */
    unsigned polls = 0;
    unsigned registers = 0;
    void *fake_stack = nullptr;
};

/* The last accesses to four bytes of shared memory. The epochs are Block.epoch, the warp epochs Warp.epoch at the
   access: each barrier, or each collective instruction, begins a new one. Epoch 0: no access. */
struct Touched {
    unsigned write_epoch = 0, read_epoch = 0, write_warp_epoch = 0, read_warp_epoch = 0;
    int writer = -1, reader = -1;
    /* in read_epoch, warps: several warps have read it; lanes: several lanes of one warp have */
    bool warps = false, lanes = false;
    unsigned fences = 0;  /* how many fences the writer had executed when it wrote */
    bool loading = false; /* a box (TMA) is still to arrive here */
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

extern Machine machine;

/* Lets other threads run. */
void yield();
/* Stops the running thread for good: it has ended, or there is an error, which ends the run. Does not return. */
void stop();
/* Lets the threads of the block continue that wait for `waited_for`. */
void wake(Block *block, const void *waited_for);

/* The two bf16 of a register. */
inline float low(unsigned pair) { return __uint_as_float(pair << 16); }
inline float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

} // namespace simt
