#pragma once

/* Communication among some members of a world: point-to-point transfers of blocks, sums of buffers (all-reduce), and
   all-to-alls. A communicator knows members, blocks and bytes; it does not know opcodes, microbatches or schedules. It
   may rely on the following:
     - the sender and the receiver of messages post these messages in the same order and with the same sizes;
     - all members of a communicator post its sums in the same order, and its all-to-alls as well;
     - everything completes if no post blocks.
   If the transport is in order (Transport.in_order), there is also one order of all messages and sums of all
   communicators. Every member posts its own messages and sums in this order, and everything completes even if each
   message is a rendezvous.

   A sum is posted, and waited for later. In between, threads add up whatever is ready while they wait for something
   else; processes advance the sum at each call of progress; GPUs run it on the messages queue. A post allocates
   nothing. */

#include "base/all_to_all.h"
#include "runtime/device/device.h"
#include "runtime/transport/world.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message. The caller owns it, and does not touch it from the post until the wait has returned. */
typedef struct Message {
    void **block; /* the address of the caller's pointer to the block; the communicator may change that pointer */
    size_t bytes;
    int32_t peer; /* index of the other member in the communicator */
    bool is_send;
    /* used by transports: the number of the message among all messages from the sender to the receiver */
    uint64_t sequence;
    void *request; /* used by transports */
} Message;

struct CommunicatorConfig {
    /* [count]: members of the world, in the order in which sums add; the caller is one of them. Copied. */
    const int *members;
    int count;
    /* The same number on all members. Communicators that share two or more members have different numbers. */
    int number;
    int messages_in_flight; /* messages per direction that a member may post before it waits for one; 0: none */
    size_t sum_elements;    /* elements of the largest buffer that is summed; 0: there are no sums */
    size_t sum_size;        /* largest number of bytes of an element */
    /* all-to-alls that a member may post before it waits for one; 0: there are none. Not possible with a device that
       only enqueues */
    int all_to_alls_in_flight;
    /* The device whose memory holds blocks and buffers, for a device that only enqueues; NULL: they are in the host's
       memory. With a device a post takes effect when everything enqueued before it has been computed. A wait delays
       what is enqueued after it; it may return before the message has arrived. Blocks are copied, never exchanged. The
       device outlives the communicator. */
    Device *device;
    /* Transfers may use `share` of every `whole` multiprocessors of a GPU; both 0: the transport chooses. The first
       communicator of a member of the world says it for all. */
    uint16_t share, whole;
};

typedef struct CommunicatorTable {
    /* Posts a send or a receive (Message.is_send) and returns at once. The communicator owns *message->block until the
       wait has returned. It may exchange the blocks of sender and receiver instead of copying: all blocks that are
       posted have the same size and are interchangeable. After the wait use the block that is then in
       *message->block. */
    Status (*post)(Communicator *communicator, Message *message, Error *error);

    /* Waits until the block can be used again (send) or holds the message (receive). Fails with STATUS_RUN_FAILED if
       the deadline passes (the error names the peer), if the run was aborted (except with NCCL, the error names the
       member that aborted), or if the transport fails. Messages may be waited for in any order. */
    Status (*wait)(Communicator *communicator, Message *message, Error *error);

    /* Posts a sum (all-reduce): buffer[i] becomes the sum over all members of their buffer[i], added in the order of
       members, so all members get the same bits. The buffer has `elements` numbers of `size` bytes: floats or, only in
       the host's memory, doubles. All members post it with the same sizes. Returns at once and allocates nothing. The
       communicator owns the buffer until sum_wait has returned. A communicator has at most one sum in flight. With one
       member sum_post and sum_wait do nothing. */
    Status (*sum_post)(Communicator *communicator, void *buffer, size_t elements, size_t size, Error *error);
    /* Waits until the buffer holds the sum. Fails as `wait` does. Sums of different communicators may be waited for in
       any order. */
    Status (*sum_wait)(Communicator *communicator, Error *error);

    /* Posts an all-to-all and returns at once; allocates nothing. Until the wait has returned, the communicator owns
       the memory of `receive`, and nobody may change that of `send`. All members post their all-to-alls in the same
       order. */
    Status (*all_to_all_post)(Communicator *communicator, AllToAll *all_to_all, Error *error);
    /* Waits until `receive` has all pieces and `send` can be used again. Fails as `wait` does. A member may wait for
       its all-to-alls in any order. */
    Status (*all_to_all_wait)(Communicator *communicator, AllToAll *all_to_all, Error *error);

    /* Lets messages, sums and all-to-alls of this member progress, on all of its communicators, while the caller
       computes. The caller calls it between instructions. If the device only enqueues, the caller does not call it
       between two consecutive posts, which can then run as one group. NULL: not needed. */
    Status (*progress)(Communicator *communicator, Error *error);

    /* Called once, by any thread, before the world is closed. */
    void (*close)(Communicator *communicator);
} CommunicatorTable;

/* One member's side of a communicator, made by world->connect. Every member of the communicator makes its side. Members
   that share several communicators make these in the same order. If any member of the world makes a communicator, every
   member makes at least one: to make the first one may be a collective of the world. Only one thread at a time uses a
   side. */
struct Communicator {
    const CommunicatorTable *run;
    World *world;
    int self, count; /* index of this member; number of members */
    int *members;    /* [count] */
    /* host memory that the communicator has for sums and all-to-alls; the rank's memory plan includes it */
    size_t bytes;
};

/* --- for implementations --- */

/* Initializes the fields of a zeroed Communicator, except `bytes`. STATUS_RUN_FAILED: there is no memory. */
Status communicator_init(Communicator *communicator, const CommunicatorTable *run, World *world,
                         const CommunicatorConfig *config, Error *error);
/* Fails a connect with STATUS_RUN_FAILED: this member of the world has no memory for its side of a communicator of
   `count` members. */
Status communicator_no_memory(const World *world, int count, Error *error);
/* Fails a post with STATUS_RUN_FAILED: more `what` ("messages" or "all-to-alls") are in flight than the configuration
   allows. */
Status communicator_overrun(const Communicator *communicator, const char *what, Error *error);
/* Fails a connect with STATUS_RUN_FAILED: `transport` has no all-to-all for the memory of a GPU. */
Status communicator_no_all_to_all(const char *transport, Error *error);
