#ifndef TRANSPORT_MPI_H
#define TRANSPORT_MPI_H

/* A world whose members are MPI processes, and its communicators. Only these files use MPI; they form a shared object
   of their own. */

#include "runtime/transport/communicator.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    TAG_GATHER,
    TAG_COMMUNICATORS, /* the first tag of communicator 0. Each communicator has three: messages, sums, all-to-alls */
    TAGS_EACH = 3,
};

static inline bool mpi_tag_of_all_to_alls(int tag) { return (tag - TAG_COMMUNICATORS) % TAGS_EACH == 2; }

typedef struct MpiCommunicator MpiCommunicator;

/* A message or a piece of a sum or an all-to-all, from mpi_start until mpi_test finds it done. It must not move in
   memory meanwhile. */
typedef struct MpiTransfer {
    MPI_Request request;
    /* over an imitated network (mpi_link.c) */
    int64_t *link; /* when the link is free; NULL: this transfer is not over the network */
    MPI_Request time;
    int64_t ready;   /* sent with the transfer: when the sender's side was ready */
    int64_t posted;  /* receive: when this side posted */
    int64_t arrival; /* receive: INT64_MAX while it is not known; send: 0 */
    size_t bytes;
    struct MpiTransfer *next; /* in MpiWorld.arriving */
} MpiTransfer;

typedef struct MpiWorld {
    World world;      /* must be first: a World of this table is an MpiWorld */
    MPI_Comm members; /* the MPI rank of a process is the number of its member */
    MPI_Comm aside;   /* a second communicator, for notices of an abort and pulses, which may come at any time */
    bool crowded;     /* more processes than processors: a waiting process must yield its processor */
    /* held during every call of MPI after open: any thread may abort */
    pthread_mutex_t lock;
    int64_t last_poke;
    atomic_bool aborted; /* set once, after `reason` is written under the lock */
    char reason[512];
    MpiCommunicator *summing; /* list of communicators with a sum that is posted and not waited for */
    MpiTransfer *transfers;   /* [2 * size], for a gather */
    /* the imitated network: when links are free, [size] from each member, then [size] of its all-to-alls; that from
       this member to itself carries what it sends in all-to-alls. NULL: none is imitated */
    int64_t *links;
    MPI_Comm times;                        /* carries the times of transfers */
    MpiTransfer *arriving, **arriving_end; /* receives whose arrival is not known, in the order of their posts */
    /* the pulse (mpi_world.c) */
    pthread_t pulse;
    bool pulses;            /* the thread runs */
    pthread_cond_t closing; /* used with the lock */
    bool closed;
    clockid_t clock;         /* processor-time clock of the member's own thread */
    atomic_bool waits;       /* the member has been waiting for a while */
    _Atomic uint64_t waited; /* number of such waits that have ended */
    _Atomic int64_t alive;   /* when another member last sent a pulse */
    uint64_t told, heard;    /* pulses sent to each other member; pulses received from all of them. Under the lock */
} MpiWorld;

/* --- mpi_start.c --- */

Status mpi_open(const WorldConfig *config, World **members, Error *error);

/* --- mpi_world.c --- */

extern const WorldTable world_mpi;

/* From now on the exit of this process ends all others. */
void mpi_leave_at_exit(void);
bool mpi_is_leaving(void);
Status mpi_failure(int code, const char *call, Error *error);

/* Starts to send pulses to the others while this member moves. Called by the member's own thread. */
void mpi_start_pulse(MpiWorld *world);

/* Posts a transfer with a member of the world. */
Status mpi_start(MpiWorld *world, bool is_send, int tag, void *memory, size_t bytes, int member, MpiTransfer *transfer,
                 Error *error);
/* Whether the transfer is done. */
Status mpi_test(MpiWorld *world, MpiTransfer *transfer, bool *done, Error *error);
/* Waits until the transfer is done. Meanwhile sums progress. */
Status mpi_await(MpiWorld *world, MpiTransfer *transfer, int member, Error *error);
Status mpi_progress(World *world, Error *error);

/* --- mpi_link.c: under the lock of the world; the functions return codes of MPI --- */

/* False: no memory. */
bool mpi_link_prepare(MpiWorld *world, const WorldConfig *config);
/* Starts to send or receive the time of a transfer that the network carries. */
int mpi_link_start(MpiWorld *world, bool is_send, bool all_to_all, int tag, size_t bytes, int member,
                   MpiTransfer *transfer);
/* Whether the transfer would have arrived over the network. */
int mpi_link_test(MpiWorld *world, MpiTransfer *transfer, int *done);

/* --- mpi.c --- */

Connect mpi_connect;

/* --- mpi_sum.c --- */

typedef enum SumPhase { SUM_DONE, SUM_COLLECTS, SUM_SPREADS } SumPhase;

struct MpiCommunicator {
    Communicator communicator; /* must be first */
    MpiWorld *world;
    int tag;                              /* tag of messages; tag + 1: of sums; tag + 2: of all-to-alls */
    MpiTransfer *messages, *free_message; /* messages that may be in flight; list of those that are not */
    /* the sum in flight */
    MpiCommunicator *summing; /* next in the list of the world */
    SumPhase phase;
    char *buffer;
    size_t elements, size, piece, at; /* piece: elements summed at a time; at: start of the current piece */
    MpiTransfer *transfers;           /* [2 * count] */
    int next;                         /* index of the first transfer that is not done */
    void **parts;                     /* [count]: this member's slice of each member's buffer */
    char *received;                   /* memory for the slices of the others */
    /* all-to-alls */
    size_t all_to_alls;  /* how many may be in flight */
    bool *exchanging;    /* [all_to_alls]: the entry is in use */
    MpiTransfer *pieces; /* [all_to_alls][2 * count]: see pieces_of */
};

/* Allocates the memory for sums of the sizes in `config`. */
Status mpi_sum_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error);
Status mpi_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status mpi_sum_wait(Communicator *communicator, Error *error);
/* Advances all sums of the world as far as possible without waiting. */
Status mpi_sums_advance(MpiWorld *world, Error *error);

/* --- mpi_all_to_all.c --- */

/* Allocates the requests of the all-to-alls that may be in flight. */
Status mpi_all_to_all_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error);
Status mpi_all_to_all_post(Communicator *communicator, AllToAll *all_to_all, Error *error);
Status mpi_all_to_all_wait(Communicator *communicator, AllToAll *all_to_all, Error *error);

#endif
