#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

/* How ranks hand blocks of memory to each other. A transport knows ranks, blocks and bytes; it never sees opcodes,
   microbatches or schedules. It may rely on what the proof guarantees: on each directed pair of ranks, messages are
   sent and received in the same order with the same sizes, and everything completes even if each message is a
   rendezvous. */

#include "runtime/base/status.h"
#include "runtime/device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One rank's side of a transport. Used by one thread only. */
typedef struct Endpoint Endpoint;

/* A message in flight. The caller owns it and leaves it alone from the post to the end of its wait. */
typedef struct Message {
    void **block; /* where the owner keeps the pointer to the block */
    size_t bytes;
    int32_t peer;
    bool is_send;
    uint64_t sequence; /* transports' own: number on its channel */
    void *request;     /* transports' own */
} Message;

typedef struct TransportConfig {
    int ranks;
    /* [ranks]: process i is rank rank_map[i]; NULL: i. Only for one rank a process; outlives the endpoints */
    const int *rank_map;
    int messages_in_flight; /* most messages that a rank has posted and not waited for, in each direction */
    /* seconds after which a wait fails in which no rank in another process has moved; <= 0: never */
    double deadline;
    double quiet_deadline; /* the same while processes start and end, where nobody sees what moves */
} TransportConfig;

typedef struct Transport {
    const char *name;

    /* Opens the endpoints that live in this process into endpoints[rank] and leaves the others NULL. Fails with
       STATUS_BAD_USAGE when the number of processes is not the number of ranks, saying both. */
    Status (*open)(const TransportConfig *config, Endpoint **endpoints, Error *error);

    /* From now on blocks and the buffers of `reduce` are in the memory of this device, which only enqueues: then a post
       is done when everything has been computed that was enqueued before it, and a wait holds back what is enqueued
       after it, perhaps without keeping the caller waiting. Blocks are then copied, never exchanged. Once, before the
       first message, by the rank's thread; what is made here is given back by `close`, before which the device is not
       closed. NULL in a transport that knows only the host's memory. */
    Status (*attach)(Endpoint *endpoint, Device *device, Error *error);

    /* Posts a message and returns at once. From here until the wait has returned *message->block is the transport's. A
       transport may exchange the block of the sender for that of the receiver instead of copying: all blocks handed to
       it are of one size and belong to nobody in particular; after the wait *message->block is the block to use. */
    Status (*send)(Endpoint *endpoint, Message *message, Error *error);
    Status (*receive)(Endpoint *endpoint, Message *message, Error *error);

    /* Returns when the block is free again (sent) or full (received). Fails with STATUS_RUN_FAILED, naming the peer,
       when the deadline passes, when a peer is gone or when the run was aborted. Messages may be waited for in any
       order. */
    Status (*wait)(Endpoint *endpoint, Message *message, Error *error);

    /* Lets messages move while the caller computes; called between instructions, though not between two posts where the
       device only enqueues. NULL where nothing is needed. */
    Status (*progress)(Endpoint *endpoint, Error *error);

    /* Every rank gives `bytes` bytes and gets all of them in rank order. A meeting of all ranks. */
    Status (*gather)(Endpoint *endpoint, const void *mine, size_t bytes, void *all, Error *error);

    /* buffer[i] becomes the sum over the `count` ranks of `members`, added in the order of `members`, with the same
       bits on each of them. `elements` numbers of `size` bytes, the device's masters: floats, or doubles where the
       memory is the host's. A meeting of those ranks, of which this is one. */
    Status (*reduce)(Endpoint *endpoint, const int *members, int count, void *buffer, size_t elements, size_t size,
                     Error *error);

    /* Ends the run for everybody: every wait on any rank, now or later, fails naming `rank` and `reason`. Any thread
       may call it. Where ranks are processes, the process that met or caused a failure ends all others when it exits,
       and its exit status is 3 then. */
    void (*abort)(Endpoint *endpoint, const char *reason);

    /* After a good run a meeting of all ranks that live in other processes. Each endpoint is closed once, by any
       thread. */
    void (*close)(Endpoint *endpoint);
} Transport;

/* all ranks are threads of this process; hand-overs exchange blocks, nothing is copied */
extern const Transport transport_local;

/* The MPI transport is a shared object of its own, so that dprun starts where no MPI is installed: dprun-mpi.so beside
   the program or in ../lib/dprun. Loads it; STATUS_RUN_FAILED says what is missing. */
Status transport_load_mpi(const Transport **transport, Error *error);

/* Messages of GPUs by NCCL, one GPU a rank; gatherings, aborts and closing through `beside`, one transport for all of a
   process. STATUS_RUN_FAILED says what is missing. */
Status transport_load_nccl(const Transport *beside, const Transport **transport, Error *error);

#endif
