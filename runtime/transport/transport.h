#pragma once

/* The registry of transports. A transport is a way in which the ranks of a run exchange blocks of memory and add up
   buffers. It opens a world (world.h), whose members then make communicators (communicator.h). */

#include "runtime/transport/communicator.h"

/* The communicators of a library, in a plug-in (base/plugin.h). */
typedef struct TransportLibrary {
    Status (*load)(Error *error);
    Connect *connect;    /* makes communicators */
    void (*abort)(void); /* World.abort_rest */
} TransportLibrary;

typedef struct Transport {
    const char *name;
    /* true: each rank is a process started by mpirun; false: all ranks are threads of this process */
    bool processes;
    bool host_memory; /* can transfer memory of the host */
    bool gpu_memory;  /* can transfer memory of GPUs */
    bool gpu_each;    /* true: every rank needs its own GPU; false: all ranks of a process share one GPU */
    /* true: a message may have to wait until earlier messages of the rank are transferred, so a rank posts messages
       only in the proven order */
    bool in_order;
    /* true: the transport's waits fail at the deadline; false: the watchdog watches the waiting threads */
    bool own_deadline;
    /* the name of its TransportLibrary in dprun-cuda.so; NULL: World.run->connect makes communicators */
    const char *library;
} Transport;

/* Ends with a NULL name. Two transports may have the same name if they differ in `processes`. */
extern const Transport transports[];

/* The transport of that name; if two have this name, the one with this `processes`. NULL if there is none. */
const Transport *transport_named(const char *name, bool processes);
/* The first one in `transports` with this `processes` that can transfer memory of a GPU (`gpu`) or of the host
   (!`gpu`). Never NULL: `transports` has one for each case. */
const Transport *transport_for(bool processes, bool gpu);

/* Loads what the transport needs, and opens its world: WorldTable.open, whose failures it returns. STATUS_RUN_FAILED if
   a library is missing or cannot be used; the error says which. */
Status transport_open(const Transport *transport, const WorldConfig *config, World **members, Error *error);
