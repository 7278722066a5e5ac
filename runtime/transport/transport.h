#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

/* The registry of transports. A transport is a way in which the ranks of a run exchange blocks and sum buffers. It
   opens a world (world.h), whose members then make communicators (communicator.h). */

#include "runtime/transport/communicator.h"

typedef struct Transport {
    const char *name;
    bool processes;    /* a rank is a process started by mpirun; else all ranks are threads of this process */
    bool host_memory;  /* can transfer memory of the host */
    bool gpu_memory;   /* can transfer memory of GPUs */
    bool gpu_each;     /* every rank needs its own GPU; else all ranks of a process share one */
    bool in_order;     /* messages run in the order of their posts, each after those before it */
    bool own_deadline; /* its waits fail at the deadline; else the watchdog watches the waiting threads */
    Status (*load)(Error *error); /* loads the library that it needs; NULL: none */
    Connect *connect;             /* makes communicators; NULL: World.run->connect does */
    void (*ended)(void);          /* World.ended */
} Transport;

/* Ends with a NULL name. Two transports may have the same name if they differ in `processes`. */
extern const Transport transports[];

/* The transport of that name; if there are two, the one whose `processes` is as given. NULL: there is none. */
const Transport *transport_named(const char *name, bool processes);
/* The first transport between processes, or threads, that can transfer memory of a GPU, or of the host. */
const Transport *transport_for(bool processes, bool gpu);

/* Opens the world of a transport (WorldTable.open). STATUS_RUN_FAILED: the error says what is missing. */
Status transport_open(const Transport *transport, const WorldConfig *config, World **members, Error *error);

#endif
