#ifndef TRANSPORT_NCCL_H
#define TRANSPORT_NCCL_H

/* Communicators of GPUs, one GPU a member, on either world. NCCL is opened when it is asked for. */

#include "runtime/transport/communicator.h"

#include <pthread.h>

/* --- NCCL's own declarations, as far as they are needed; stable since 2.14 --- */

typedef struct ncclComm *NcclComm;
typedef struct NcclId {
    char internal[128];
} NcclId;
enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_BYTES = 1, NCCL_FLOATS = 7 }; /* ncclUint8, ncclFloat32 */
enum { NCCL_LEAST = 21400 };

/* The beginning of ncclConfig_t: its size says where it ends. */
typedef struct NcclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
} NcclConfig;

typedef struct Nccl {
    int (*GetVersion)(int *version);
    const char *(*GetErrorString)(int code);
    int (*GetUniqueId)(NcclId *id);
    int (*CommInitRankConfig)(NcclComm *comm, int ranks, NcclId id, int rank, NcclConfig *config);
    int (*CommGetAsyncError)(NcclComm comm, int *code);
    int (*CommFinalize)(NcclComm comm);
    int (*CommDestroy)(NcclComm comm);
    int (*CommAbort)(NcclComm comm);
    int (*GroupStart)(void);
    int (*GroupEnd)(void);
    int (*Send)(const void *memory, size_t count, int type, int peer, NcclComm comm, void *stream);
    int (*Recv)(void *memory, size_t count, int type, int peer, NcclComm comm, void *stream);
} Nccl;

/* --- nccl_library.c --- */

extern Nccl nccl;
/* STATUS_RUN_FAILED says what is missing. */
Status nccl_load(Error *error);
/* What a call has returned. */
Status nccl_check(int code, const char *call, Error *error);

/* --- nccl_member.c: what a member of the world has, for all of its communicators --- */

typedef struct NcclFlight NcclFlight;

/* One NCCL communicator of all members of the world serves all communicators: with several, which NCCL runs on streams
   of their own, ranks that use them in different orders would deadlock. */
typedef struct NcclMember {
    World *world;
    struct NcclMember *next; /* of those open in this process */
    int users;               /* communicators */
    NcclComm comm;
    Device *device;
    DeviceEvent *computed, *received; /* the ends of the two queues, handed from one to the other */
    NcclFlight *first, **last;        /* posted and not enqueued yet, in order */
    bool *met;                        /* [size]: NCCL has connected these two */
    char *greeting;                   /* what members send when they first meet */
    float *parts;                     /* what the others send for a sum */
    size_t part_elements;
    pthread_mutex_t lock; /* during every call with the NCCL communicator: abort may come from any thread */
    bool aborted;         /* under the lock: the NCCL communicator is gone */
    bool finalized;       /* it is told that the run has ended */
} NcclMember;

/* That of `world`; made, with all other members of the world, when it is first asked for. */
Status nccl_member_take(World *world, Device *device, NcclMember **taken, Error *error);
void nccl_member_give_back(NcclMember *member);
/* An NCCL communicator is aborted: also its kernels that wait for a peer end. */
void nccl_member_abort(NcclMember *member);
/* All those of this process. */
void nccl_abort_all(void);
/* NCCL connects this member to those of `members` that it has not met. */
Status nccl_greet(NcclMember *member, const int *members, int count, Error *error);

/* What is enqueued on `to` from now on comes after all that is on `from`. */
Status nccl_follow(NcclMember *member, DeviceQueue to, DeviceQueue from, Error *error);
/* What NCCL is at, and whether it has failed. */
Status nccl_look(NcclMember *member, int *code, Error *error);

typedef struct NcclTransfer {
    bool is_send;
    void *memory;
    size_t count;
    int type, peer; /* a member of the world */
} NcclTransfer;

/* A group of transfers, of which none begins before the others do, on the messages queue. A group that was begun is
   ended, whatever became of its transfers: that is `status`. */
Status nccl_begin_group(NcclMember *member, Error *error);
Status nccl_add(NcclMember *member, const NcclTransfer *transfer, Error *error);
Status nccl_end_group(NcclMember *member, Status status, Error *error);

/* --- nccl.c --- */

Connect nccl_connect;
/* Enqueues the messages that are posted. */
Status nccl_flush(NcclMember *member, Error *error);

typedef struct NcclCommunicator {
    Communicator communicator; /* first */
    NcclMember *member;
    NcclFlight *flights, *free;
    size_t flight_count;
    DeviceEvent *summed; /* the end of the sum in flight */
} NcclCommunicator;

/* --- nccl_sum.c --- */

/* Room for sums of so many elements. */
Status nccl_sum_prepare(NcclCommunicator *side, size_t elements, Error *error);
Status nccl_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status nccl_sum_wait(Communicator *communicator, Error *error);

#endif
