#pragma once

/* Expert parallelism: the experts of a layer are divided among the members of a group. Each member holds an equal
   number of consecutive experts, and has tokens of its own. Dispatch sends the rows of tokens to the members that hold
   their experts; combine sends the results back. Both consist of operations of lists (operations.def), which post
   all-to-alls and wait for them. The host provides the all-to-alls, so devices know no transport.

   The rows that a stage receives stay in blocks of (member, expert), and each block is a matrix product of its own. So
   the results equal those of one stage with all experts, to the bit (tests/model/expert_group.c). All replicas run the
   same proven program, so each pass of a rank is one event of all replicas, and all members run the all-to-alls of the
   pass in the order of one list: an all-to-all cannot deadlock. Before the first step the members compare checksums of
   program, settings and lists (runtime/trainer/agree.c). The parameters of experts come last in a stage's buffer;
   REDUCE sums their gradients over the replicas that hold the same experts (ExchangeSum.sharded).

   An expert may have copies on several members, as in DeepSeek's EPLB (github.com/deepseek-ai/EPLB). All copies
   together are the physical experts of the layer, and the members divide these. Only the operation choose_copies knows
   both: it replaces each chosen expert by one of its copies, and counts the rows of each copy. With `--rebalance N` the
   trainer sums these counts over the group, and the group's all-to-all moves weights (runtime/trainer/rebalance.c). */

#include "base/all_to_all.h"
#include "base/flights.h"
#include "runtime/device/operation.h"

#include <stdbool.h>

/* The members that share the experts of a stage. All of them post their all-to-alls in the same order. */
typedef struct ExpertGroup {
    int members, self; /* self: index of this member. The number of physical experts is a multiple of `members` */
    uint32_t replicas; /* number of physical experts of a layer minus the number of its experts */
    bool moves;        /* the host moves experts. If it does, or if `replicas` > 0, layers have ExpertCopies */
    void *context;
    Status (*post)(void *context, AllToAll *all_to_all, Error *error);
    Status (*wait)(void *context, AllToAll *all_to_all, Error *error);
    /* Lets all-to-alls and messages progress. The stage calls it after each operation; NULL: not needed. */
    Status (*progress)(void *context, Error *error);
    Flights *flights; /* where to note the times of all-to-alls; NULL: not wanted */
} ExpertGroup;

/* The expert of which each physical expert of a layer is a copy. All members hold the same number of physical experts,
   which are consecutive. */
struct ExpertCopies {
    uint32_t experts, physical;
    /* index of this member. It sends the rows for an expert with n copies to the copies in turn, beginning with copy
       self % n in each pass */
    uint32_t self;
    uint32_t *expert;   /* [physical]: the expert of each physical expert */
    uint32_t *begins;   /* [experts + 1]: where the copies of each expert begin in `copies` */
    uint32_t *copies;   /* [physical]: the physical experts, sorted by (expert, physical expert) */
    uint32_t *rows;     /* [physical]: rows that this member sent to each since the host set them to 0 */
    uint32_t *next;     /* [experts]: scratch memory of choose_copies: the next row goes to copy next % n of n */
    uint32_t numbers[]; /* the memory of these arrays */
};

/* Makes a table in which physical expert p is expert p % experts. NULL: no memory. The caller releases it by free(). */
ExpertCopies *group_make_copies(uint32_t experts, uint32_t physical, uint32_t self);
/* Changes the placement: physical expert p becomes a copy of expert placement[p]. Each expert must have at least one
   physical expert. Call it only while no list runs that uses `copies`. */
void group_place_copies(ExpertCopies *copies, const uint32_t *placement);

/* One all-to-all of a list of operations, with its tables. All runs of the list use the same GroupExchange. */
struct GroupExchange {
    const ExpertGroup *group;
    const char *what; /* its name in errors, which add "of layer N": "dispatch"; must live as long */
    size_t experts;   /* number of physical experts of the layer, all members together */
    size_t row_bytes; /* bytes of a token's row */
    size_t room;      /* the most rows that the experts of this member together may get */
    size_t equal;     /* rows that this member's experts get if all experts are chosen equally often */
    bool back;        /* combine: rows go back to the members that own their tokens; false: dispatch */
    Flight flight;    /* layer, component and pass of the all-to-all; its times are not set */
    /* The same all-to-all for the second half of an F&B or F&F. If both halves of an F&F are of one stage, both
       all-to-alls may be in flight at once */
    GroupExchange *second;
    AllToAll posted; /* the last post; its offsets are in `begins` */
    size_t number;   /* number of the last post in group->flights */
    size_t begins[]; /* [2][members + 1]: send_begins and receive_begins of `posted` */
};

/* Makes an exchange and its `second`. Both copy from *fields everything that is declared before `second`, but
   flight.half of `second` is 1. NULL: no memory. The caller releases both by one free(). */
GroupExchange *group_make_exchange(const GroupExchange *fields);

/* The functions of the GROUP_OPERATIONs of operations.def, for devices whose operations are done when their calls
   return. */
#define EXCHANGE(name) OPERATION_HEAD(group_##name, name)
#define OPERATION(name, OPERANDS)
#define CPU_OPERATION(name, OPERANDS)
#define GROUP_OPERATION(name, OPERANDS) EXCHANGE(name);
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"
