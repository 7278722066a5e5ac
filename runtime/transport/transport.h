#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

/* The transports: by which means the ranks of a run exchange blocks and sum buffers, and what is to be known of each.
   A transport opens a world (world.h), whose members then make communicators (communicator.h). */

#include "runtime/transport/communicator.h"

typedef struct Transport {
    const char *name;
    bool processes;    /* a rank is a process, started by mpirun; else all ranks are threads of this one */
    bool host_memory;  /* moves the memory of the host, */
    bool gpu_memory;   /* of GPUs */
    bool gpu_each;     /* every rank needs a GPU of its own; else all of a process share one */
    bool in_order;     /* takes up messages in the order of their posts, each when those before are done */
    bool own_deadline; /* its waits end at the deadline; else threads sleep in them, which the watchdog sees */
    Status (*load)(Error *error); /* opens the library that it needs; NULL: none */
    Connect *connect;             /* NULL: as the world does */
    void (*ended)(void);          /* World.ended */
} Transport;

/* Several may have one name: then they differ in `processes`. Ends with a NULL name. */
extern const Transport transports[];

/* The one of that name, rather one of processes where `processes` is true; NULL: there is none. */
const Transport *transport_named(const char *name, bool processes);
/* The first that moves the memory of a GPU, or of the host, between processes or threads. */
const Transport *transport_for(bool processes, bool gpu);

/* Opens the world of a transport: WorldTable.open. STATUS_RUN_FAILED says what is missing. */
Status transport_open(const Transport *transport, const WorldConfig *config, World **members, Error *error);

#endif
