#pragma once

/* Communicators among members with one GPU each. The members are threads or processes. The NCCL library is loaded only
   if this transport is used. */

#include "runtime/transport/transport.h"

#include <pthread.h>

/* --- the declarations of NCCL that are used; stable since 2.14 --- */

typedef struct ncclComm *NcclComm;
typedef struct NcclId {
    char internal[128];
} NcclId;
enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_BYTES = 1, NCCL_FLOATS = 7 }; /* ncclUint8, ncclFloat32 */
enum { NCCL_LEAST = 21400, NCCL_WITH_BLOCKS = 21700 };

/* The first fields of ncclConfig_t. `size` tells NCCL how many bytes of the struct there are. */
typedef struct NcclConfig {
    size_t size;
    unsigned magic, version;
    int blocking;
    /* since NCCL_WITH_BLOCKS; INT_MIN: NCCL's own choice */
    int cluster_size, least_blocks, most_blocks;
} NcclConfig;

typedef struct Nccl {
    int version; /* 21400: 2.14 */
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
/* Loads the NCCL library. STATUS_RUN_FAILED: it cannot be used; the error says what is missing. */
Status nccl_load(Error *error);
/* Turns the result of the NCCL function `call` into a Status. A call that is still in progress is no failure. */
Status nccl_check(int code, const char *call, Error *error);

/* --- nccl_member.c: the NCCL state of a member of the world, shared by all of its communicators --- */

typedef struct NcclFlight NcclFlight;

/* All communicators of a member use one NCCL communicator, which has all members of the world. Ranks that used several
   NCCL communicators in different orders could deadlock. */
typedef struct NcclMember {
    World *world;
    struct NcclMember *next; /* in the list of members open in this process */
    int users;               /* number of communicators that use it */
    NcclComm comm;
    Device *device;
    DeviceEvent *computed, *received; /* events by which one queue of the device waits for the other one */
    NcclFlight *first, **last;        /* list of messages that are posted and not enqueued yet, in order */
    bool *met;                        /* [size]: NCCL has connected this member with the member of that number */
    char *greeting;                   /* buffers for nccl_greet */
    float *parts;                     /* received slices of a sum, in the device's memory */
    size_t part_elements;
    /* held during every call with the NCCL communicator, because any thread may abort it; not held while it is made,
       finalized or destroyed */
    pthread_mutex_t lock;
    /* the member is aborted: its NCCL communicator, or one that is made later, is aborted at once; under `lock` */
    bool aborted;
    bool finalized; /* ncclCommFinalize was called; under the lock of the list of open members */
} NcclMember;

/* Gives the NcclMember of `world`, and counts one user more. The first call makes the NcclMember, and is a collective
   of all members of the world. If it fails and has set *taken, the caller gives *taken back. */
Status nccl_member_take(World *world, const CommunicatorConfig *config, NcclMember **taken, Error *error);
void nccl_member_give_back(NcclMember *member);
/* Aborts the NCCL communicator, which also ends its kernels that wait for a peer. */
void nccl_member_abort(NcclMember *member);
/* Aborts all NCCL communicators of this process. */
void nccl_abort_all(void);
/* Connects this member with those of `members` that it is not connected with yet. */
Status nccl_greet(NcclMember *member, const int *members, int count, Error *error);

/* Makes everything that is enqueued on queue `to` from now on wait for everything enqueued on queue `from` so far. */
Status nccl_follow(NcclMember *member, DeviceQueue to, DeviceQueue from, Error *error);
/* Reads the asynchronous state of NCCL into *code. Fails if NCCL has failed or the communicator is aborted. */
Status nccl_look(NcclMember *member, int *code, Error *error);

typedef struct NcclTransfer {
    bool is_send;
    void *memory;
    size_t count;
    int type, peer; /* type: NCCL_BYTES or NCCL_FLOATS; peer: a member of the world */
} NcclTransfer;

/* nccl_begin_group, nccl_add and nccl_end_group make a group: transfers on the messages queue that all start together.
   A group that was begun must be ended, even if nccl_add has failed: nccl_end_group gets the status of nccl_add in
   `status`, and returns it if it is a failure. */
Status nccl_begin_group(NcclMember *member, Error *error);
Status nccl_add(NcclMember *member, const NcclTransfer *transfer, Error *error);
Status nccl_end_group(NcclMember *member, Status status, Error *error);

/* --- nccl.c --- */

/* The table that dprun takes from the plug-in by this name. */
extern const TransportLibrary transport_nccl;
/* Enqueues the messages that the member has posted on all of its communicators, as one group. */
Status nccl_flush(NcclMember *member, Error *error);

typedef struct NcclCommunicator {
    Communicator communicator; /* must be first */
    NcclMember *member;
    NcclFlight *flights, *free;
    size_t flight_count;
    DeviceEvent *summed; /* recorded at the end of the sum in flight */
} NcclCommunicator;

/* --- nccl_sum.c --- */

/* Allocates the memory for sums of up to `elements` elements. */
Status nccl_sum_prepare(NcclCommunicator *side, size_t elements, Error *error);
Status nccl_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status nccl_sum_wait(Communicator *communicator, Error *error);
