/* A member's NCCL communicator: how it is made, used in groups, finalized and aborted. */
#include "runtime/cuda/nccl.h"

#include "base/clock.h"
#include "runtime/cuda/cuda.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const unsigned NCCL_CONFIG_MAGIC = 0xcafebeef;
enum { GREETING_PITCH = 64 };

static NcclMember *open_members;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- calls --- */

/* Takes the lock for a call with the NCCL communicator; the caller releases it. If the communicator is aborted, fails
   without the lock. */
static Status enter(NcclMember *member, Error *error)
{
    pthread_mutex_lock(&member->lock);
    if (!member->aborted)
        return STATUS_OK;
    pthread_mutex_unlock(&member->lock);
    return error_set(error, STATUS_RUN_FAILED, "the run was aborted");
}

Status nccl_look(NcclMember *member, int *code, Error *error)
{
    TRY(enter(member, error));
    const int result = nccl.CommGetAsyncError(member->comm, code);
    pthread_mutex_unlock(&member->lock);
    TRY(nccl_check(result, "ncclCommGetAsyncError", error));
    return nccl_check(*code, "NCCL", error);
}

/* Waits until NCCL has completed the last call, because the communicator is nonblocking. Fails at the deadline. */
static Status settle(NcclMember *member, const char *call, Error *error)
{
    World *world = member->world;
    const double deadline = world->config.deadline;
    const int64_t begun = clock_nanoseconds();
    for (;;) {
        int code = NCCL_OK;
        const Status status = nccl_look(member, &code, error);
        if (status != STATUS_OK) {
            error_prefix(error, "%s: ", call);
            return status;
        }
        if (code == NCCL_OK)
            return STATUS_OK;
        if (world->run->progress)
            TRY(world->run->progress(world, error));
        if (deadline > 0 && (double)(clock_nanoseconds() - begun) > deadline * 1e9)
            return error_set(error, STATUS_RUN_FAILED, "%s: not all ranks have made this call within %g s (--deadline)",
                             call, deadline);
        sched_yield();
    }
}

Status nccl_follow(NcclMember *member, DeviceQueue to, DeviceQueue from, Error *error)
{
    const DeviceAsync *queues = member->device->run->async;
    DeviceEvent *event = from == QUEUE_COMPUTE ? member->computed : member->received;
    TRY(queues->record(member->device, from, event, error));
    return queues->await(member->device, to, event, error);
}

/* --- groups --- */

Status nccl_begin_group(NcclMember *member, Error *error)
{
    TRY(enter(member, error));
    const Status status = nccl_check(nccl.GroupStart(), "ncclGroupStart", error);
    if (status != STATUS_OK)
        pthread_mutex_unlock(&member->lock);
    return status;
}

Status nccl_add(NcclMember *member, const NcclTransfer *transfer, Error *error)
{
    void *stream = member->device->run->async->native_queue(member->device, QUEUE_MESSAGES);
    if (transfer->count == 0)
        return STATUS_OK;
    if (transfer->is_send)
        return nccl_check(
            nccl.Send(transfer->memory, transfer->count, transfer->type, transfer->peer, member->comm, stream),
            "ncclSend", error);
    return nccl_check(
        nccl.Recv(transfer->memory, transfer->count, transfer->type, transfer->peer, member->comm, stream), "ncclRecv",
        error);
}

Status nccl_end_group(NcclMember *member, Status status, Error *error)
{
    Error unheard;
    const Status ended = nccl_check(nccl.GroupEnd(), "ncclGroupEnd", status == STATUS_OK ? error : &unheard);
    pthread_mutex_unlock(&member->lock);
    if (status != STATUS_OK || ended != STATUS_OK)
        return status != STATUS_OK ? status : ended;
    return settle(member, "ncclGroupEnd", error);
}

/* --- making --- */

/* What members exchange before NCCL can be used. */
typedef struct Card {
    /* the id of the NCCL communicator, made by member 0; unused in the cards of other members */
    NcclId id;
    unsigned char gpu[DEVICE_IDENTITY]; /* the identity of the member's GPU: NCCL refuses two ranks on one GPU */
} Card;

/* NCCL refuses two ranks on one GPU, except with one of these variables: different values of the first make NCCL take
   the ranks for ranks of two machines. */
static Status check_gpus(const World *world, const Card *cards, Error *error)
{
    if (getenv("NCCL_HOSTID") || getenv("NCCL_MULTI_RANK_GPU_ENABLE"))
        return STATUS_OK;
    for (int second = 1; second < world->config.size; second++)
        for (int first = 0; first < second; first++)
            if (memcmp(cards[first].gpu, cards[second].gpu, DEVICE_IDENTITY) == 0)
                return error_set(
                    error, STATUS_RUN_FAILED,
                    "%s and %s are on the same GPU, and NCCL needs one for each: use more GPUs, or dprun --device cuda "
                    "without mpirun and without --transport nccl",
                    world_member_name(&world->config, first).text, world_member_name(&world->config, second).text);
    return STATUS_OK;
}

static Status exchange_cards(NcclMember *member, NcclId *id, Error *error)
{
    World *world = member->world;
    Card own, *cards = calloc((size_t)world->config.size, sizeof *cards);
    if (!cards)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for the GPU identities of %d ranks",
                         world_member_name(&world->config, world->number).text, world->config.size);
    memset(&own, 0, sizeof own);
    member->device->run->async->identity(member->device, own.gpu);
    Status status = world->number == 0 ? nccl_check(nccl.GetUniqueId(&own.id), "ncclGetUniqueId", error) : STATUS_OK;
    if (status == STATUS_OK)
        status = world->run->gather(world, &own, sizeof own, cards, error);
    if (status == STATUS_OK)
        status = check_gpus(world, cards, error);
    *id = cards[0].id;
    free(cards);
    return status;
}

static Status connect_all(NcclMember *member, const CommunicatorConfig *with, Error *error)
{
    NcclId id;
    TRY(exchange_cards(member, &id, error));
    const int part = (int)cuda_library_part((const CudaDevice *)member->device, with->share, with->whole);
    const bool knows = nccl.version >= NCCL_WITH_BLOCKS;
    NcclConfig config = {.size = knows ? sizeof config : offsetof(NcclConfig, cluster_size),
                         .magic = NCCL_CONFIG_MAGIC,
                         .version = knows ? NCCL_WITH_BLOCKS : NCCL_LEAST,
                         .cluster_size = INT_MIN,
                         .least_blocks = INT_MIN,
                         .most_blocks = part > 0 ? part : 1};
    NcclComm comm = NULL;
    const World *world = member->world;
    TRY(nccl_check(nccl.CommInitRankConfig(&comm, world->config.size, id, world->number, &config),
                   "ncclCommInitRankConfig", error));
    pthread_mutex_lock(&member->lock);
    if (member->aborted) /* aborted while there was no NCCL communicator yet */
        nccl.CommAbort(comm);
    else
        member->comm = comm;
    pthread_mutex_unlock(&member->lock);
    return settle(member, "ncclCommInitRankConfig", error);
}

static Status start(NcclMember *member, const CommunicatorConfig *config, Error *error)
{
    const DeviceAsync *queues = member->device->run->async;
    void *greeting = NULL;
    TRY(queues->make_event(member->device, &member->computed, error));
    TRY(queues->make_event(member->device, &member->received, error));
    const size_t bytes = 2 * GREETING_PITCH * (size_t)member->world->config.size;
    TRY(member->device->run->allocate(member->device, bytes, &greeting, error));
    member->greeting = greeting;
    return connect_all(member, config, error);
}

static NcclMember *member_of(const World *world)
{
    pthread_mutex_lock(&open_lock);
    NcclMember *member = open_members;
    while (member && member->world != world)
        member = member->next;
    pthread_mutex_unlock(&open_lock);
    return member;
}

Status nccl_member_take(World *world, const CommunicatorConfig *config, NcclMember **taken, Error *error)
{
    NcclMember *member = member_of(world);
    if (member) {
        member->users++;
        *taken = member;
        return STATUS_OK;
    }
    member = calloc(1, sizeof *member);
    bool *met = calloc((size_t)world->config.size, sizeof *met);
    if (!member || !met) {
        free(member);
        free(met);
        return communicator_no_memory(world, world->config.size, error);
    }
    *member = (NcclMember){.world = world, .users = 1, .device = config->device, .met = met, .last = &member->first};
    pthread_mutex_init(&member->lock, NULL);
    pthread_mutex_lock(&open_lock);
    member->next = open_members;
    open_members = member;
    pthread_mutex_unlock(&open_lock);
    *taken = member;
    return start(member, config, error);
}

/* NCCL connects two ranks at their first transfer, which takes long. So before the first step this function sends a
   byte to each of `members` that is not connected yet, and receives a byte from it. */
Status nccl_greet(NcclMember *member, const int *members, int count, Error *error)
{
    bool all = true;
    for (int i = 0; i < count; i++)
        all &= member->met[members[i]];
    if (all)
        return STATUS_OK;
    TRY(nccl_follow(member, QUEUE_MESSAGES, QUEUE_COMPUTE, error));
    TRY(nccl_begin_group(member, error));
    Status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < count; i++) {
        const int peer = members[i];
        char *out = member->greeting + 2 * (size_t)peer * GREETING_PITCH;
        if (member->met[peer])
            continue;
        status = nccl_add(member, &(NcclTransfer){true, out, 1, NCCL_BYTES, peer}, error);
        if (status == STATUS_OK)
            status = nccl_add(member, &(NcclTransfer){false, out + GREETING_PITCH, 1, NCCL_BYTES, peer}, error);
        member->met[peer] = true;
    }
    TRY(nccl_end_group(member, status, error));
    return nccl_follow(member, QUEUE_COMPUTE, QUEUE_MESSAGES, error);
}

/* --- ending --- */

void nccl_member_abort(NcclMember *member)
{
    pthread_mutex_lock(&member->lock);
    if (member->comm && !member->aborted)
        nccl.CommAbort(member->comm);
    member->aborted = true;
    pthread_mutex_unlock(&member->lock);
}

void nccl_abort_all(void)
{
    pthread_mutex_lock(&open_lock);
    for (NcclMember *any = open_members; any; any = any->next)
        nccl_member_abort(any);
    pthread_mutex_unlock(&open_lock);
}

/* Whether the member has an NCCL communicator that is neither finalized nor aborted. The caller holds open_lock. */
static bool is_usable(NcclMember *member)
{
    pthread_mutex_lock(&member->lock);
    const bool usable = member->comm && !member->aborted && !member->finalized;
    pthread_mutex_unlock(&member->lock);
    return usable;
}

/* ncclCommFinalize completes when all ranks have called it, and one thread may close several ranks of this process. So
   this function calls it for all communicators of this process before it waits for any. A communicator that is not
   finalized in time is aborted. The caller holds open_lock. */
static void finalize_all(void)
{
    Error unheard;
    for (NcclMember *any = open_members; any; any = any->next)
        if (is_usable(any)) {
            any->finalized = true;
            if (nccl_check(nccl.CommFinalize(any->comm), "ncclCommFinalize", &unheard) != STATUS_OK)
                nccl_member_abort(any);
        }
    for (NcclMember *any = open_members; any; any = any->next)
        if (any->finalized && settle(any, "ncclCommFinalize", &unheard) != STATUS_OK)
            nccl_member_abort(any);
}

static void remove_from_open(NcclMember *member)
{
    pthread_mutex_lock(&open_lock);
    NcclMember **at = &open_members;
    while (*at != member)
        at = &(*at)->next;
    *at = member->next;
    pthread_mutex_unlock(&open_lock);
}

void nccl_member_give_back(NcclMember *member)
{
    pthread_mutex_lock(&open_lock);
    if (is_usable(member))
        finalize_all();
    pthread_mutex_unlock(&open_lock);
    if (--member->users > 0)
        return;
    remove_from_open(member); /* from here on no other thread can abort it */
    if (member->comm && !member->aborted)
        nccl.CommDestroy(member->comm);
    const DeviceTable *run = member->device->run;
    run->deallocate(member->device, member->parts);
    run->deallocate(member->device, member->greeting);
    run->async->free_event(member->device, member->computed);
    run->async->free_event(member->device, member->received);
    pthread_mutex_destroy(&member->lock);
    free(member->met);
    free(member);
}
