/* Runs the instructions of a rank on a device that only enqueues: the host stays a little ahead of the device, and
   timing events in the device's queue say how far the device has got. */
#include "runtime/executor/internal.h"

#include "base/clock.h"

#include <time.h>

/* Waits until the device has reached timing event `mark`. Fails after config.deadline seconds. Meanwhile lets the
   transport progress. `peer`: the rank whose message the device waits for before this event, for the error; -1 if it
   waits for none. */
static Status await_mark(Executor *executor, size_t mark, int peer, Error *error)
{
    enum { LOOKS = 200, SLEEP = 20000 }; /* after LOOKS queries of the event, sleep SLEEP ns between queries */
    const ExecutorConfig *config = &executor->config;
    const int64_t begun = clock_nanoseconds();
    for (int look = 0;; look++) {
        bool reached = false;
        TRY(config->device->run->async->reached(config->device, mark, &reached, error));
        if (reached)
            return STATUS_OK;
        TRY(executor_progress(executor, error));
        if (config->deadline > 0 && (double)(clock_nanoseconds() - begun) > config->deadline * 1e9)
            return peer < 0
                       ? error_set(error, STATUS_RUN_FAILED,
                                   "the device has not finished its work within %g s (--deadline)", config->deadline)
                       : world_no_answer(config->pipeline->world, config->pipeline->members[peer], config->deadline,
                                         error);
        if (look >= LOOKS)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP}, NULL);
    }
}

Status executor_mark(Executor *executor, size_t number, Error *error)
{
    Device *device = executor->config.device;
    return device && device->run->async ? device->run->async->mark(device, number, error) : STATUS_OK;
}

Status executor_settle(Executor *executor, Error *error)
{
    Device *device = executor->config.device;
    const size_t spare = executor->clocks; /* a timing event after all those of executor_clock; nobody reads its time */
    if (!device || !device->run->async)
        return STATUS_OK;
    TRY(device->run->async->mark(device, spare, error));
    return await_mark(executor, spare, -1, error);
}

/* Waits until the device has finished instruction `number`. */
static Status follow(Executor *executor, size_t number, Error *error)
{
    const Walk *walk = &executor->walk;
    walk_note(walk, number);
    const Status status = await_mark(executor, number + 1, walk_awaited(walk->own->instructions, number), error);
    return status == STATUS_OK ? STATUS_OK : walk_failed(walk, number, status, error);
}

/* Whether the host waits for the whole device in this instruction. The host then first waits for the earlier
   instructions one by one, so that a timeout is reported at the instruction that waits for a peer. */
static bool comes_after_all(uint8_t opcode) { return opcode == OP_NORM || opcode == OP_ASYNC_UPDATE; }

/* Reads the device's timing events into executor->clock: the ends of the `count` instructions of the stream, and the
   ends of the first F of its F&Bs and F&Fs. `begun`: when the host began the stream. */
static Status read_marks(Executor *executor, size_t count, int64_t begun, Error *error)
{
    const size_t middles = executor_middles(executor), end = (size_t)(executor->middle - executor->clock);
    Device *device = executor->config.device;
    executor->clock[0] = begun;
    for (size_t i = 1; i < end; i = i == count ? middles : i + 1) {
        int64_t time = 0;
        if (i >= middles && !executor->clock[i])
            continue;
        TRY(device->run->async->mark_time(device, i, &time, error));
        executor->clock[i] = begun + time;
    }
    return STATUS_OK;
}

/* Runs an instruction: what StageTable.bind stored for it in `bound`, or if it stored nothing, the function of its
   opcode. */
static Status run_instruction(Executor *executor, const Instruction *instruction, void *const bound[2], Error *error)
{
    const ExecutorConfig *config = &executor->config;
    if (!bound || !bound[0])
        return executor_execute[instruction->opcode](executor, instruction, error);
    TRY(config->stages->run_bound(config->host, bound[0], error));
    return bound[1] ? config->stages->run_bound(config->host, bound[1], error) : STATUS_OK;
}

/* Timing event n gives the time of executor->clock[n]. The host stays at most AHEAD instructions ahead of the device,
   so that the rank's position is known, and failures of the device are noticed early. */
Status executor_enqueue(Executor *executor, Error *error)
{
    /* The host blocks at about a thousand enqueued launches. An instruction is a few launches if its pass is bound, one
       launch for each operation otherwise. */
    enum { AHEAD = 32 };
    Walk *const walk = &executor->walk;
    void *(*const bound)[2] = executor->bound[walk->program != executor->config.loaded->program];
    size_t done = 0;
    const int64_t begun = clock_nanoseconds();
    TRY(executor_mark(executor, 0, error));
    do {
        const size_t ahead = comes_after_all(walk->own->instructions[walk->place].opcode) ? 0 : AHEAD - 1;
        while (walk->place > done + ahead)
            TRY(follow(executor, done++, error));
        const Instruction *next = walk_next(walk);
        Status status = run_instruction(executor, next, bound ? bound[walk->place] : NULL, error);
        if (status == STATUS_OK)
            status = executor_mark(executor, walk->place + 1, error);
        /* progress is not called between consecutive posts: the transport may run these as one group */
        if (status == STATUS_OK && next->opcode != OP_END && !opcode_is_post(next[1].opcode))
            status = executor_progress(executor, error);
        if (status != STATUS_OK)
            return walk_failed(walk, walk->place, status, error);
    } while (walk_done(walk));
    while (done < walk->place)
        TRY(follow(executor, done++, error));
    TRY(read_marks(executor, walk->place, begun, error));
    walk_idle(walk);
    return STATUS_OK;
}
