#ifndef TRANSPORT_LOCAL_H
#define TRANSPORT_LOCAL_H

/* The world whose members are threads of this process, and communicators among them. */

#include "runtime/transport/communicator.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

enum {
    CACHE_LINE = 64,
    COLLECTIVE = 0x7fffffff, /* what a thread sleeps for when it is no request */
};

typedef struct Local Local;
typedef struct LocalCommunicator LocalCommunicator;
typedef struct LocalShared LocalShared;

typedef struct LocalMember {
    World world; /* first: a World of this table is a LocalMember */
    Local *local;
    LocalCommunicator *summing; /* with a sum that this member has posted and not waited for */
    /* 0 while the thread is awake, else what it sleeps for: a request's number or COLLECTIVE. Who brings that about
       sets it to 0 and wakes the thread; nobody else makes a system call. */
    alignas(CACHE_LINE) _Atomic uint32_t parked;
} LocalMember;

/* A group of members that meet again and again. */
typedef struct LocalBarrier {
    int count;
    alignas(CACHE_LINE) _Atomic uint64_t arrivals; /* of all rounds: round n is complete at n * count */
    _Atomic uint64_t rounds[];                     /* [count]: the last one to which each member has come */
} LocalBarrier;

/* What all members share. */
struct Local {
    int spins;
    _Atomic int open; /* members */
    LocalMember *members;
    LocalBarrier *everybody;
    void **given;         /* [size]: what each gives to a gather */
    pthread_mutex_t lock; /* guards `communicators` */
    LocalShared *communicators;
    atomic_int state;
    char reason[sizeof((Error *)0)->text];
};

/* --- local_world.c --- */

extern const WorldTable world_local;

/* Waits until `counter` has reached `target`; who raises it unparks with `cause`. Meanwhile it adds up what it can of
   sums that this member has posted. False when the run was aborted or the deadline has passed. */
bool local_await(LocalMember *member, _Atomic uint64_t *counter, uint64_t target, uint32_t cause);
/* Wakes the thread if it sleeps for `cause`. */
void local_unpark(LocalMember *member, uint32_t cause);
/* After local_await was false, for want of `missing`, a member of the world. */
Status local_failure(const LocalMember *member, int missing, Error *error);

LocalBarrier *local_barrier(int count); /* NULL: no memory */
/* Goes on to the next round; true for who comes last to it. */
bool local_arrive(LocalBarrier *barrier, int self);
/* Somebody who has not come to the round of `self`. */
int local_absent(const LocalBarrier *barrier, int self);

/* --- local.c --- */

typedef struct LocalRequest LocalRequest;

/* One member's side. All of them are freed when the last one is closed: until then others may still touch them. */
struct LocalCommunicator {
    Communicator communicator; /* first */
    LocalMember *member;
    LocalShared *shared;
    LocalCommunicator *next; /* of the shared part */
    LocalRequest *requests, *free;
    size_t request_count;
    Device *device; /* NULL: blocks are in the host's memory */
    /* the sum in flight */
    uint64_t sum;                /* its number, from 1 */
    LocalCommunicator *summing;  /* the next of the member's */
    DeviceEvent *given, *summed; /* of a device: the buffer may be touched by others, and by its owner again */
};

typedef struct LocalChannel LocalChannel;

/* What its members share. */
struct LocalShared {
    LocalShared *next;
    int number, count, users;
    LocalCommunicator *sides;
    uint64_t capacity;                 /* of a channel; a power of two */
    _Atomic(LocalChannel *) *channels; /* [from * count + to], made when first used */
    /* the sum in flight */
    LocalBarrier *posts;
    void **buffers;                             /* [count] */
    DeviceEvent **given;                        /* [count], of a device */
    DeviceEvent *summed;                        /* of a device: all of the sum is done */
    size_t elements, size;                      /* bytes of an element */
    uint64_t units;                             /* pieces of the sum that one member at a time adds up */
    alignas(CACHE_LINE) _Atomic uint64_t ready; /* the last sum that all have posted */
    alignas(CACHE_LINE) _Atomic uint64_t next_unit;
    alignas(CACHE_LINE) _Atomic uint64_t finished; /* units */
};

Connect local_connect;

/* --- local_sum.c --- */

Status local_sum_post(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
Status local_sum_wait(Communicator *communicator, Error *error);
/* Adds up one unit of a sum that this member has posted. False: nothing is to be done now. */
bool local_sum_help(LocalMember *member);
/* Whether local_sum_help has something to do. */
bool local_sum_has_work(const LocalMember *member);

#endif
