#ifndef TRANSPORT_MPI_H
#define TRANSPORT_MPI_H

/* The world whose members are processes that MPI connects, and communicators among them. Only these files know MPI;
   they are a shared object of their own. */

#include "runtime/transport/communicator.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    TAG_GATHER,
    TAG_COMMUNICATORS, /* the first tag of communicator 0; each has two: for messages, for sums */
};

typedef struct MpiCommunicator MpiCommunicator;

typedef struct MpiWorld {
    World world;      /* first: a World of this table is an MpiWorld */
    MPI_Comm members; /* a process's number in it is that of its member */
    MPI_Comm aside;   /* the same processes, for what may come at any time: notices and pulses */
    bool crowded;     /* more processes than processors: a wait must give its processor away */
    /* held during every call of MPI after open: abort may come from any thread */
    pthread_mutex_t lock;
    int64_t last_poke;
    atomic_bool aborted; /* set once, after `reason` was written under the lock */
    char reason[512];
    MpiCommunicator *summing; /* with a sum that is posted and not waited for */
    MPI_Request *requests;    /* [2 * size], of a gather */
    /* the pulse */
    pthread_t pulse;
    bool pulses;            /* the thread is there */
    pthread_cond_t closing; /* with the lock */
    bool closed;
    clockid_t clock;         /* the processor time of the member's own thread */
    atomic_bool waits;       /* it has been waiting for a while */
    _Atomic uint64_t waited; /* how often it has */
    _Atomic int64_t alive;   /* when another member last told that it moves */
    uint64_t told, heard;    /* pulses to each of the others, from all of them; under the lock */
} MpiWorld;

/* --- mpi_start.c --- */

Status mpi_open(const WorldConfig *config, World **members, Error *error);

/* --- mpi_world.c --- */

extern const WorldTable world_mpi;

/* From now on the process ends the others when it exits. */
void mpi_leave_at_exit(void);
bool mpi_is_leaving(void);
Status mpi_failure(int code, const char *call, Error *error);

/* From now on the others hear of it while this member moves. By its own thread. */
void mpi_start_pulse(MpiWorld *world);

/* Posts a transfer with a member of the world. */
Status mpi_start(MpiWorld *world, bool is_send, int tag, void *memory, size_t bytes, int member, MPI_Request *request,
                 Error *error);
/* Whether it is done. */
Status mpi_test(MpiWorld *world, MPI_Request *request, bool *done, Error *error);
/* Until it is done. Meanwhile sums move. */
Status mpi_await(MpiWorld *world, MPI_Request *request, int member, Error *error);
Status mpi_progress(World *world, Error *error);

/* --- mpi.c --- */

Connect mpi_connect;

/* --- mpi_sum.c --- */

typedef enum SumPhase { SUM_DONE, SUM_COLLECTS, SUM_SPREADS } SumPhase;

struct MpiCommunicator {
    Communicator communicator; /* first */
    MpiWorld *world;
    int tag; /* of messages; that of sums is the next */
    /* the sum in flight */
    MpiCommunicator *summing; /* the next of the world's */
    SumPhase phase;
    char *buffer;
    size_t elements, size, piece, at; /* elements at a time; where the present ones begin */
    MPI_Request *requests;            /* [2 * count] */
    int next;                         /* of the requests, the first that is not done */
    void **parts;                     /* [count]: this member's slice of everybody's buffer */
    char *received;                   /* those of the others */
};

/* Room for sums of these extents. */
Status mpi_sum_prepare(MpiCommunicator *side, const CommunicatorConfig *config, Error *error);
Status mpi_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status mpi_sum_wait(Communicator *communicator, Error *error);
/* Takes all sums of the world as far as they go now. */
Status mpi_sums_advance(MpiWorld *world, Error *error);

#endif
