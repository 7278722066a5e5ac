#ifndef DEVICE_GROUP_H
#define DEVICE_GROUP_H

/* The experts of a layer divided among the members of a group: each member holds an equal number of consecutive
   experts, and sees tokens of its own. Dispatch sends the rows of tokens to the members that hold their experts;
   combine sends the results back. Both are operations of lists (operations.def), which post all-to-alls and wait for
   them. The host provides the all-to-alls, so devices know no transport. */

#include "runtime/base/all_to_all.h"
#include "runtime/device/operation.h"

#include <stdbool.h>

/* The members that share the experts of a stage. All of them post their all-to-alls in the same order. */
typedef struct ExpertGroup {
    int members, self; /* members divides the experts of a layer */
    void *context;
    Status (*post)(void *context, AllToAll *all_to_all, Error *error);
    Status (*wait)(void *context, AllToAll *all_to_all, Error *error);
    /* Lets all-to-alls and messages progress. Called between operations; NULL: not needed. */
    Status (*progress)(void *context, Error *error);
} ExpertGroup;

/* One all-to-all of a list, with its tables. It is used again in each run of the list. */
typedef struct GroupExchange {
    const ExpertGroup *group;
    char name[40];    /* in messages: "dispatch of layer 3" */
    size_t experts;   /* of the layer, all members together */
    size_t row_bytes; /* of a token's row */
    size_t room;      /* the most rows that the experts of this member may get */
    bool back;        /* rows return to the members that own their tokens */
    AllToAll posted;  /* points into `begins` */
    size_t begins[];  /* [2][members + 1] */
} GroupExchange;

/* Makes an exchange from the fields before `posted`. NULL: no memory. The caller frees it. */
GroupExchange *group_make_exchange(const GroupExchange *fields);

/* The operations of the same names, for devices whose operations are done when their calls return. */
#define EXCHANGE(name) OPERATION_HEAD(group_##name, name)
#define OPERATION(name, OPERANDS)
#define CPU_OPERATION(name, OPERANDS)
#define GROUP_OPERATION(name, OPERANDS) EXCHANGE(name);
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"

#endif
