#ifndef TRANSPORT_COMMUNICATOR_H
#define TRANSPORT_COMMUNICATOR_H

/* What some members of a world do with each other: they send and receive blocks, and sum buffers. A communicator knows
   members, blocks and bytes; it never sees opcodes, microbatches or schedules. It may rely on what the proof
   guarantees: between two members, messages are sent and received in the same order with the same sizes; all members
   post their messages and sums, over all communicators, in orders that are parts of one common order; and everything
   completes even if each message is a rendezvous. */

#include "runtime/device/device.h"
#include "runtime/transport/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message in flight. The caller owns it and leaves it alone from the post to the end of its wait. */
typedef struct Message {
    void **block; /* where the owner keeps the pointer to the block */
    size_t bytes;
    int32_t peer; /* a member of the communicator, by its index there */
    bool is_send;
    uint64_t sequence; /* transports' own: number on its channel */
    void *request;     /* transports' own */
} Message;

struct CommunicatorConfig {
    /* [count]: members of the world in the order in which sums add; the caller is one of them. Copied. */
    const int *members;
    int count;
    /* The same on all members, and another one for each communicator that shares two members with this one. */
    int number;
    int messages_in_flight; /* most messages that a member has posted and not waited for, in each direction; 0: none */
    size_t sum_elements;    /* of the largest buffer that is summed; 0: none */
    size_t sum_size;        /* bytes of an element, at most */
    /* Blocks and buffers are in the memory of this device, which only enqueues: a post is done when everything has been
       computed that was enqueued before it, and a wait holds back what is enqueued after it, perhaps without keeping
       the caller waiting. Blocks are then copied, never exchanged. Outlives the communicator. NULL: they are in the
       host's memory. */
    Device *device;
};

typedef struct CommunicatorTable {
    /* Posts a message and returns at once. From here until the wait has returned *message->block is the communicator's.
       It may exchange the block of the sender for that of the receiver instead of copying: all blocks handed to it are
       of one size and belong to nobody in particular; after the wait *message->block is the block to use. */
    Status (*send)(Communicator *communicator, Message *message, Error *error);
    Status (*receive)(Communicator *communicator, Message *message, Error *error);

    /* Returns when the block is free again (sent) or full (received). Fails with STATUS_RUN_FAILED, naming the peer,
       when the deadline passes, when a peer is gone or when the run was aborted. Messages may be waited for in any
       order. */
    Status (*wait)(Communicator *communicator, Message *message, Error *error);

    /* Posts a sum: buffer[i] becomes the sum over all members of their buffer[i], added in the order of members, with
       the same bits on each of them. `elements` numbers of `size` bytes, the device's masters: floats, or doubles where
       the memory is the host's. All members post it with the same extents. Returns at once and allocates nothing; the
       buffer is the communicator's until sum_wait has returned. A communicator has one sum in flight. With one member
       both do nothing. */
    Status (*sum_post)(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
    /* Returns when the buffer has the sum. Fails as `wait` does. Sums of different communicators may be waited for in
       any order. */
    Status (*sum_wait)(Communicator *communicator, Error *error);

    /* Lets messages and sums of this member, on whichever communicator, move while the caller computes. Called between
       instructions, though not between two posts where the device only enqueues. NULL: nothing is needed. */
    Status (*progress)(Communicator *communicator, Error *error);

    /* Once, by any thread, before the world is closed. */
    void (*close)(Communicator *communicator);
} CommunicatorTable;

/* One member's side of a communicator, made by world->connect: all members of a communicator make it, in orders that
   are parts of one common order, and the first one of every member of a world is made where all others make their
   first. Used by one thread. */
struct Communicator {
    const CommunicatorTable *run;
    World *world;
    int self, count; /* which of the members it is */
    int *members;    /* [count] */
    size_t bytes;    /* of memory that it has taken for itself, for the plan of the rank */
};

/* --- for those who implement them --- */

/* Fills in the members. STATUS_RUN_FAILED when there is no memory. */
Status communicator_init(Communicator *communicator, const CommunicatorTable *run, World *world,
                         const CommunicatorConfig *config, Error *error);
/* A failed post: more messages are in flight than were announced. */
Status communicator_overrun(const Communicator *communicator, Error *error);

#endif
