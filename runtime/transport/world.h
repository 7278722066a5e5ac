#ifndef TRANSPORT_WORLD_H
#define TRANSPORT_WORLD_H

/* Who takes part in a run. A world has `size` members, numbered from 0; each is a thread of this process, or a process
   of its own. All of them together gather small values in the host's memory, and end the run together. What moves
   blocks and sums buffers is a communicator among some of them (communicator.h). */

#include "runtime/base/status.h"

#include <stddef.h>

typedef struct World World;
typedef struct Communicator Communicator;
typedef struct CommunicatorConfig CommunicatorConfig;

typedef struct MemberName {
    char text[48];
} MemberName;

typedef struct WorldConfig {
    int size;
    /* [size]: process i is member map[i]; NULL: member i. Only where members are processes; outlives the world */
    const int *map;
    /* seconds after which a wait fails during which no member in another process has moved; <= 0: never */
    double deadline;
    double quiet_deadline; /* the same while processes start and end, where nobody sees what moves */
    /* what messages call a member; NULL: "rank 3". `name_context` outlives the world */
    MemberName (*name)(const void *name_context, int member);
    const void *name_context;
} WorldConfig;

/* Makes a communicator; communicator.h. */
typedef Status Connect(World *world, const CommunicatorConfig *config, Communicator **made, Error *error);

typedef struct WorldTable {
    /* Opens the members that live in this process into members[number] and leaves the others NULL. Fails with
       STATUS_BAD_USAGE when the number of processes is not the number of members, saying both. */
    Status (*open)(const WorldConfig *config, World **members, Error *error);

    /* Every member gives `bytes` bytes and gets all of them in the order of members. A collective of all members. */
    Status (*gather)(World *world, const void *mine, size_t bytes, void *all, Error *error);

    /* Lets what this member has posted move on, and notices an abort. NULL: nothing is needed. */
    Status (*progress)(World *world, Error *error);

    void (*abort)(World *world, const char *reason); /* see world_abort */

    /* After a good run a barrier of all members that live in other processes. Each member is closed once, by any
       thread, after its communicators. */
    void (*close)(World *world);

    Connect *connect; /* communicators that move blocks by the means of this world */
} WorldTable;

/* One member's side of a world. Used by one thread at a time, except for world_abort. */
struct World {
    const WorldTable *run;
    WorldConfig config;
    int number;
    Connect *connect;    /* makes communicators of the transport that opened the world */
    void (*ended)(void); /* an abort calls it, too; NULL: nothing */
};

/* Ends the run for everybody: every wait of any member, now or later, fails naming this member and `reason`. Any thread
   may call it. Where members are processes, the process that met or caused a failure ends all others when it exits, and
   its exit status is 3 then. */
void world_abort(World *world, const char *reason);

MemberName world_member_name(const WorldConfig *config, int member);

/* --- for those who implement worlds and communicators --- */

void world_init(World *world, const WorldTable *run, const WorldConfig *config, int number);
/* STATUS_RUN_FAILED: nothing came from `member` within so many seconds. */
Status world_no_answer(const World *world, int member, double seconds, Error *error);
/* What every member is told when this one ends the run. */
void world_ending(const World *world, const char *reason, char *text, size_t size);

#endif
