#ifndef DEVICE_GROUP_H
#define DEVICE_GROUP_H

/* Expert parallelism: the experts of a layer are divided among the members of a group. Each member holds an equal
   number of consecutive experts, and has tokens of its own. Dispatch sends the rows of tokens to the members that hold
   their experts; combine sends the results back. Both are operations of lists (operations.def) that post all-to-alls
   and wait for them. The host provides the all-to-alls, so devices know no transport. */

#include "runtime/base/all_to_all.h"
#include "runtime/device/operation.h"

#include <stdbool.h>

/* The members that share the experts of a stage. All of them post their all-to-alls in the same order. */
typedef struct ExpertGroup {
    int members, self; /* self: the index of this member; `members` divides the number of experts of a layer */
    void *context;
    Status (*post)(void *context, AllToAll *all_to_all, Error *error);
    Status (*wait)(void *context, AllToAll *all_to_all, Error *error);
    /* Lets all-to-alls and messages progress. The stage calls it between operations; NULL: not needed. */
    Status (*progress)(void *context, Error *error);
} ExpertGroup;

/* One all-to-all of a list of operations, with its tables. Every run of the list uses it again. */
typedef struct GroupExchange {
    const ExpertGroup *group;
    char name[40];    /* in messages: "dispatch of layer 3" */
    size_t experts;   /* of the layer, all members together */
    size_t row_bytes; /* of a token's row */
    size_t room;      /* the most rows that the experts of this member may get */
    size_t equal;     /* rows that they get when all experts are chosen equally often */
    bool back;        /* true: rows go back to the members that own their tokens */
    AllToAll posted;  /* points into `begins` */
    size_t begins[];  /* [2][members + 1] */
} GroupExchange;

/* Makes an exchange; copies the fields before `posted`. NULL: no memory. The caller releases it by free(). */
GroupExchange *group_make_exchange(const GroupExchange *fields);

/* The functions of the GROUP_OPERATIONs of operations.def, for devices whose operations are done when their calls
   return. */
#define EXCHANGE(name) OPERATION_HEAD(group_##name, name)
#define OPERATION(name, OPERANDS)
#define CPU_OPERATION(name, OPERANDS)
#define GROUP_OPERATION(name, OPERANDS) EXCHANGE(name);
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"

#endif
