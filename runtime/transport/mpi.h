#pragma once

/* A world whose members are MPI processes, and its communicators. Only mpi.c and the files mpi_*.c call MPI. They form
   a shared object of their own, dprun-mpi.so. */

#include "runtime/transport/communicator.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    TAG_GATHER,
    /* the first tag of communicator 0. Each communicator has three tags: for messages, for sums, for all-to-alls */
    TAG_COMMUNICATORS,
    TAGS_EACH = 3,
};

static inline bool mpi_tag_of_all_to_alls(int tag) { return (tag - TAG_COMMUNICATORS) % TAGS_EACH == 2; }

typedef struct MpiCommunicator MpiCommunicator;

/* A message, or a piece of a gather, a sum or an all-to-all. The struct must not move in memory from mpi_start until
   mpi_test finds the transfer complete. */
typedef struct MpiTransfer {
    MPI_Request request;
    /* `link` to `bytes` are used only over an imitated network (mpi_link.c). */
    int64_t *link; /* the time at which the transfer's link is free; NULL: this transfer does not use the network */
    MPI_Request time;
    int64_t ready;   /* the time at which the sender was ready; it is sent along with the transfer */
    int64_t posted;  /* receive: when this side posted */
    int64_t arrival; /* of a receive: the time of arrival; INT64_MAX: not known yet. Of a send: 0 */
    size_t bytes;
    /* next in the list MpiWorld.arriving; while the transfer is not used, next in MpiCommunicator.free_message */
    struct MpiTransfer *next;
} MpiTransfer;

typedef struct MpiWorld {
    World world;      /* must be first: a World with the table world_mpi is cast to MpiWorld */
    MPI_Comm members; /* the MPI rank of a process is the number of its member */
    /* a second communicator, for messages that may come at any time: notices of an abort, and pulses (mpi_world.c) */
    MPI_Comm aside;
    bool crowded; /* more processes than processors: a waiting process must yield its processor */
    /* held during every call of MPI that sends, receives or tests, because pulses and aborts call MPI from other
       threads */
    pthread_mutex_t lock;
    int64_t last_poke;
    atomic_bool aborted; /* set once, after `reason` is written; `reason` is written under the lock */
    char reason[512];
    MpiCommunicator *summing;          /* list of communicators with a sum that is posted and not waited for */
    MpiCommunicator *with_all_to_alls; /* list of communicators that may have all-to-alls */
    MpiTransfer *transfers;            /* [2 * size], for a gather */
    /* the times at which links of the imitated network are free: [size] for messages and sums from each member to this
       one, then [size] for pieces of all-to-alls from each member. No member sends messages to itself, so this member's
       own entry in the first half is used for the link of all-to-alls that it sends. NULL: no network is imitated */
    int64_t *links;
    MPI_Comm times; /* the communicator that carries MpiTransfer.ready */
    /* list of receives whose arrival is not known yet, in the order of their posts */
    MpiTransfer *arriving, **arriving_end;
    /* the pulse (mpi_world.c) */
    pthread_t pulse;
    bool pulses;            /* the pulse thread runs */
    pthread_cond_t closing; /* signalled, under `lock`, when `closed` becomes true: it ends the pulse thread */
    bool closed;
    clockid_t clock;         /* processor-time clock of the member's own thread */
    atomic_bool waits;       /* whether the member is in a wait that has lasted for a while */
    _Atomic uint64_t waited; /* how many waits of the member have ended that had lasted for a while */
    _Atomic int64_t alive;   /* when the latest pulse of another member was received, in ns */
    /* told: pulses that this member has sent to each other member; heard: pulses that it has received from all others
       together. Used under the lock */
    uint64_t told, heard;
} MpiWorld;

/* --- mpi_start.c --- */

Status mpi_open(const WorldConfig *config, World **members, Error *error);

/* --- mpi_world.c --- */

extern const WorldTable world_mpi;

/* After this call, the exit of this process ends all other processes of the run. */
void mpi_leave_at_exit(void);
bool mpi_is_leaving(void);
Status mpi_failure(int code, const char *call, Error *error);

/* Starts a thread that sends pulses to the other members while this member makes progress; none if there are no other
   members or no deadline. Called by the member's own thread. */
void mpi_start_pulse(MpiWorld *world);

/* Posts a transfer to or from a member of the world. */
Status mpi_start(MpiWorld *world, bool is_send, int tag, void *memory, size_t bytes, int member, MpiTransfer *transfer,
                 Error *error);
/* Whether the transfer is done. */
Status mpi_test(MpiWorld *world, MpiTransfer *transfer, bool *done, Error *error);
/* Waits until the transfer is done. Meanwhile sums and all-to-alls progress. `member` is the other end of the transfer;
   the error names it. */
Status mpi_await(MpiWorld *world, MpiTransfer *transfer, int member, Error *error);
Status mpi_progress(World *world, Error *error);

/* --- mpi_link.c: mpi_link_start and mpi_link_test need the lock of the world, and return codes of MPI --- */

/* Allocates MpiWorld.links if `config` gives a network. False: no memory. */
bool mpi_link_prepare(MpiWorld *world, const WorldConfig *config);
/* For a transfer over the imitated network: starts to send or receive the time at which the sender was ready. */
int mpi_link_start(MpiWorld *world, bool is_send, bool all_to_all, int tag, size_t bytes, int member,
                   MpiTransfer *transfer);
/* *done: for a receive, whether the transfer has arrived by the time of the imitated network; for a send, whether its
   time (`ready`) has been sent. */
int mpi_link_test(MpiWorld *world, MpiTransfer *transfer, int *done);

/* --- mpi.c --- */

Connect mpi_connect;

/* --- mpi_sum.c --- */

typedef enum SumPhase { SUM_DONE, SUM_COLLECTS, SUM_SPREADS } SumPhase;

struct MpiCommunicator {
    Communicator communicator; /* must be first */
    MpiWorld *world;
    int tag; /* tag of messages; tag + 1: of sums; tag + 2: of all-to-alls */
    /* messages: the transfers of all messages that may be in flight; free_message: list of the unused transfers */
    MpiTransfer *messages, *free_message;
    /* the sum in flight */
    MpiCommunicator *summing; /* next entry of the list MpiWorld.summing */
    SumPhase phase;
    char *buffer;
    /* size: bytes of an element; piece: elements that are summed at a time; at: first element of the current piece */
    size_t elements, size, piece, at;
    MpiTransfer *transfers; /* [2 * count] */
    int next;               /* index of the first transfer that is not done */
    void **parts;           /* [count]: this member's slice of each member's buffer */
    char *received;         /* memory for this member's slice of the other members' buffers */
    /* all-to-alls */
    MpiCommunicator *next_with_all_to_alls; /* next entry of the list MpiWorld.with_all_to_alls */
    size_t all_to_alls;                     /* how many all-to-alls may be in flight */
    AllToAll **exchanging;                  /* [all_to_alls]: the all-to-all that uses the entry; NULL: none */
    MpiTransfer *pieces; /* [all_to_alls][2 * count]: for each member the piece from it, then the piece to it */
};

/* Allocates the memory for sums of the sizes in `config`; none if there are no sums or no other members. */
Status mpi_sum_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error);
Status mpi_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status mpi_sum_wait(Communicator *communicator, Error *error);
/* Advances all sums of the world as far as possible without waiting. */
Status mpi_sums_advance(MpiWorld *world, Error *error);

/* --- mpi_all_to_all.c --- */

/* Allocates the transfers of the all-to-alls that may be in flight, and adds the communicator to
   MpiWorld.with_all_to_alls. Does nothing if `config` announces no all-to-alls. */
Status mpi_all_to_all_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error);
/* Removes the communicator from MpiWorld.with_all_to_alls, if it is in this list. It has no all-to-alls in flight. */
void mpi_all_to_all_remove(const MpiCommunicator *side);
/* Tests the all-to-alls in flight, without waiting. If it finds for the first time that all pieces for this member have
   arrived, it stores the present time in AllToAll.arrival. */
Status mpi_all_to_alls_advance(MpiWorld *world, Error *error);
Status mpi_all_to_all_post(Communicator *communicator, AllToAll *all_to_all, Error *error);
Status mpi_all_to_all_wait(Communicator *communicator, AllToAll *all_to_all, Error *error);
