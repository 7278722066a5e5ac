#pragma once

/* A world whose members are threads of this process, and its communicators. */

#include "runtime/transport/communicator.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
    CACHE_LINE = 64,
    /* values of LocalMember.parked. COLLECTIVE: the thread waits for a gather or a sum; PIECES: for an all-to-all;
       ARRIVAL: for the time at which a transfer arrives over the imitated network */
    COLLECTIVE = 0x7fffffff,
    PIECES = 0x7ffffffe,
    ARRIVAL = 0x7ffffffd,
};

typedef struct Local Local;
typedef struct LocalCommunicator LocalCommunicator;
typedef struct LocalShared LocalShared;

typedef struct LocalMember {
    World world; /* must be first: a World with the table world_local is cast to LocalMember */
    Local *local;
    LocalCommunicator *summing; /* list of communicators with a sum that this member has posted and not waited for */
    /* 0 while the thread is awake. While it sleeps, what it waits for: the number of a request, COLLECTIVE, PIECES or
       ARRIVAL. Another member sets `parked` to 0 and wakes the thread if it completes what the thread waits for, makes
       a sum ready to be added up, or aborts the run. Only sleeping and waking make system calls. */
    alignas(CACHE_LINE) _Atomic uint32_t parked;
} LocalMember;

/* A reusable barrier. */
typedef struct LocalBarrier {
    int count;
    /* counts the arrivals in all rounds; round n (from 1) is complete when it reaches n * count */
    alignas(CACHE_LINE) _Atomic uint64_t arrivals;
    _Atomic uint64_t rounds[]; /* [count]: the last round at which each member has arrived */
} LocalBarrier;

typedef struct LocalGiven {
    void *block;
    size_t bytes;
} LocalGiven;

/* The part of a world that all members share. */
struct Local {
    int spins;
    _Atomic int open; /* number of members that are not closed */
    LocalMember *members;
    LocalBarrier *everybody;
    LocalGiven *given;    /* [size]: what each member passes to a gather */
    pthread_mutex_t lock; /* guards `communicators` */
    LocalShared *communicators;
    atomic_int state;
    char reason[sizeof((Error *)0)->text];
    /* [from * size + to]: when the link of the imitated network from one member to another is free, in ns. The link
       from a member to itself carries everything that the member sends in all-to-alls. NULL: no network is imitated */
    int64_t *links;
    pthread_mutex_t network; /* guards `links` and LocalPosted.arrival */
};

/* --- local_world.c --- */

extern const WorldTable world_local;

/* Waits until `counter` is at least `target`. The thread that raises the counter must call local_unpark for this member
   with `cause`. While waiting, this thread helps to add up sums that this member has posted. False: the run was aborted
   or the deadline has passed. */
bool local_await(LocalMember *member, _Atomic uint64_t *counter, uint64_t target, uint32_t cause);
/* Wakes the thread of `member` if it sleeps and waits for `cause`. */
void local_unpark(LocalMember *member, uint32_t cause);
/* The error after local_await or local_rest returned false: the reason of the abort if the run was aborted; otherwise
   that the member `missing` of the world, for which this one waited, did not answer in time. */
Status local_failure(const LocalMember *member, int missing, Error *error);

/* Computes when a transfer between two members of the world arrives, in ns, and reserves the link of the imitated
   network. `ready`: the time at which both members had posted. Returns `ready` if no network connects the two, or if
   `bytes` is 0. The caller holds Local.network. */
int64_t local_carry(const LocalMember *member, int from, int to, bool all_to_all, int64_t ready, size_t bytes);
/* Sleeps until the time `arrival` (ns). Meanwhile this thread helps to add up sums. False: the run was aborted. */
bool local_rest(LocalMember *member, int64_t arrival);

LocalBarrier *local_barrier(int count); /* NULL: no memory */
/* Member `self` arrives at its next round. Returns whether it is the last member to arrive at that round. */
bool local_arrive(LocalBarrier *barrier, int self);
/* The index of a member that has not yet arrived at the latest round at which `self` has arrived. If all have arrived:
   the index of the last member. */
int local_absent(const LocalBarrier *barrier, int self);

/* --- local.c --- */

typedef struct LocalRequest LocalRequest;

/* One member's side of a communicator. All sides are freed when the last one is closed: until then other members may
   still access them. */
struct LocalCommunicator {
    Communicator communicator; /* must be first */
    LocalMember *member;
    LocalShared *shared;
    LocalCommunicator *next; /* next in LocalShared.sides */
    LocalRequest *requests, *free;
    size_t request_count;
    Device *device; /* NULL: blocks are in the host's memory */
    /* the sum in flight */
    uint64_t sum;               /* number of the last sum that this member has posted; 0: none */
    LocalCommunicator *summing; /* next entry of the list LocalMember.summing */
    /* with a device. given: after this event other members may use this member's buffer; summed: if this member is the
       last to post, the end of the whole sum, after which all members may use their buffers again */
    DeviceEvent *given, *summed;
    uint64_t all_to_alls;      /* how many all-to-alls this member has posted */
    uint64_t all_to_alls_open; /* how many all-to-alls this member has posted and not waited for yet */
};

typedef struct LocalChannel LocalChannel;

/* What one member has posted for an all-to-all: an entry of LocalShared.posted. */
typedef struct LocalPosted {
    AllToAll all_to_all;
    /* the struct that the member passed to the post; `all_to_all` is a copy of it */
    AllToAll *owned;
    /* with a network: when the last piece of the all-to-all for this member arrives, in ns */
    int64_t arrival;
    /* true from the post until the member has found that all pieces from and to it are moved, in its wait or in a later
       post that needs the entry. Only the member itself uses this field */
    bool busy;
    alignas(CACHE_LINE) _Atomic uint64_t number; /* number of the all-to-all that the member has posted, from 1 */
    _Atomic uint64_t done;                       /* number of pieces from and to this member that have been moved */
    _Atomic int64_t moved;                       /* when the latest piece from or to this member was moved, in ns */
} LocalPosted;

/* The part of a communicator that its members share. */
struct LocalShared {
    LocalShared *next;
    int number, count, users;
    LocalCommunicator *sides;
    uint64_t capacity; /* entries of a channel; a power of two */
    /* [from * count + to], each NULL until its first use. The array is NULL if there are no messages */
    _Atomic(LocalChannel *) *channels;
    /* the sum in flight */
    LocalBarrier *posts;
    void **buffers;        /* [count] */
    DeviceEvent **given;   /* [count], with a device */
    DeviceEvent *summed;   /* with a device: the end of the whole sum */
    size_t elements, size; /* size: bytes of an element */
    uint64_t units;        /* into how many units the sum is cut; one member adds up each. 0 with a device */
    int64_t arrival;       /* with a network: when the sum has arrived at all members, in ns */
    alignas(CACHE_LINE) _Atomic uint64_t ready; /* number of the last sum that all members have posted */
    alignas(CACHE_LINE) _Atomic uint64_t next_unit;
    alignas(CACHE_LINE) _Atomic uint64_t finished; /* how many units have been added up so far */
    /* all-to-all n uses entry n % all_to_alls */
    uint64_t all_to_alls;
    LocalPosted *posted; /* [all_to_alls][count] */
    /* [all_to_alls][from][to]: whether the piece is claimed or moved (state_of in local_all_to_all.c) */
    _Atomic uint64_t *states;
};

Connect local_connect;

/* --- local_sum.c --- */

Status local_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status local_sum_wait(Communicator *communicator, Error *error);
/* Adds up one unit of a sum that this member has posted and that is ready. False: there is no such unit. */
bool local_sum_help(LocalMember *member);
/* Whether local_sum_help would find a unit of a sum to add up. */
bool local_sum_has_work(const LocalMember *member);

/* --- local_all_to_all.c --- */

/* Allocates the entries of all-to-alls in `shared`. Does nothing if `config` announces no all-to-alls. False: no
   memory. */
bool local_all_to_all_prepare(LocalShared *shared, const CommunicatorConfig *config);
/* The bytes of LocalShared.posted and LocalShared.states that count as memory of one member: its own entries, and the
   states of the pieces that it sends. */
size_t local_all_to_all_bytes(const LocalShared *shared);
Status local_all_to_all_post(Communicator *communicator, AllToAll *all_to_all, Error *error);
Status local_all_to_all_wait(Communicator *communicator, AllToAll *all_to_all, Error *error);
