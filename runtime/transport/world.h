#pragma once

/* The participants of a run. A world has `size` members, numbered from 0. Each is a thread of this process, or a
   process. Its members gather small values in the host's memory, and abort the run together. A communicator
   (communicator.h) transfers blocks and sums buffers among some of them. */

#include "base/link.h"
#include "base/mesh.h"
#include "base/status.h"

#include <stddef.h>

typedef struct World World;
typedef struct Communicator Communicator;
typedef struct CommunicatorConfig CommunicatorConfig;

typedef struct WorldConfig {
    int size;     /* number of members */
    int replicas; /* how many replicas of the pipeline the members form, for their names and coordinates; 0: one */
    /* [size]: process i is member map[i], and each member is named once; NULL: member i. Used only if members are
       processes. Outlives the world */
    const int *map;
    /* seconds after which a wait fails; <= 0: never. If members are processes, the progress of any other member
       restarts this time, but not while a call of NCCL is waited for */
    double deadline;
    const char *deadline_option; /* option that sets the deadline, for messages; NULL: there is none */
    /* the deadline in seconds while processes start and end, when no progress of members can be noticed */
    double quiet_deadline;
    /* The network that communicators imitate for transfers in the host's memory. `gather` is not delayed. If a network
       is given, all processes must be on one machine */
    LinkModel link;
} WorldConfig;

/* Makes a communicator (communicator.h). */
typedef Status Connect(World *world, const CommunicatorConfig *config, Communicator **made, Error *error);

typedef struct WorldTable {
    /* Opens the members that are in this process into members[number]; the others become NULL. STATUS_BAD_USAGE: the
       number of processes is not the number of members, or with `link` the processes are on several machines. */
    Status (*open)(const WorldConfig *config, World **members, Error *error);

    /* Every member passes `bytes` bytes, and receives the bytes of all members in the order of their numbers. A
       collective of all members. */
    Status (*gather)(World *world, const void *mine, size_t bytes, void *all, Error *error);

    /* Lets messages, sums and all-to-alls of this member progress, and notices an abort. NULL: not needed. */
    Status (*progress)(World *world, Error *error);

    void (*abort)(World *world, const char *reason); /* see world_abort */

    /* Closes this side of the world. If members are processes and the run has not failed, first waits until all of them
       close theirs. Called once for each member, by any thread, after its communicators are closed. */
    void (*close)(World *world);

    Connect *connect; /* makes communicators of this world's own transport */
} WorldTable;

/* One member's side of a world. Used by one thread at a time, except for world_abort. */
struct World {
    const WorldTable *run;
    WorldConfig config;
    int number;
    Connect *connect; /* makes communicators of the transport that opened the world */
    /* what world_abort calls after run->abort, and nothing else calls: it aborts what the world's own transport does
       not know of (communicators of NCCL); NULL: none */
    void (*abort_rest)(void);
};

/* Aborts the run for all members: every wait of any member, now or later, fails with this member's name and `reason`,
   unless another member has aborted the run before. (A call of NCCL may fail with another error.) Any thread may call
   this function. If members are processes, it does not end the process. A process that caused or noticed a failure ends
   the whole job when it exits, by MPI_Abort with exit status 3. */
void world_abort(World *world, const char *reason);

/* Whether the network of `config->link` connects the two members. */
bool world_linked(const WorldConfig *config, int from, int to);

/* The mesh of the members: WorldConfig.size is the number of its ranks times the number of replicas. */
Mesh world_mesh(const WorldConfig *config);
MemberName world_member_name(const WorldConfig *config, int member);

/* --- for implementations of worlds and communicators --- */

void world_init(World *world, const WorldTable *run, const WorldConfig *config, int number);
/* Fails with STATUS_RUN_FAILED: `member` did not answer within `seconds`. */
Status world_no_answer(const World *world, int member, double seconds, Error *error);
/* Writes the text that every member is told when this one aborts the run. */
void world_ending(const World *world, const char *reason, char *text, size_t size);
