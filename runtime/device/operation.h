#pragma once

/* Operations as data. When a stage is opened, each component of the stage appends the operations of its passes to
   lists; a device runs a list. operations.def defines each kind: what it computes, reads, writes and adds to. */

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Device Device;
typedef struct Kernel Kernel;
typedef struct GroupExchange GroupExchange; /* group.h */
typedef struct ExpertCopies ExpertCopies;   /* group.h */
typedef struct PreparedList PreparedList;   /* what a DeviceFusion makes of a list; its device defines the struct */

typedef enum OpKind {
#define OPERATION(name, OPERANDS) OPERATION_##name,
#define OPERAND(effect, type, name)
#include "runtime/device/operations.def"
    OPERATION_KINDS
} OpKind;

typedef enum OpEffect {
    EFFECT_NONE, /* no operand */
    EFFECT_READ,
    EFFECT_MAY_READ,
    EFFECT_WRITE,
    EFFECT_IF_WANTED,
    EFFECT_ADD,
    EFFECT_MAY_ADD,
    EFFECT_CHANGE
} OpEffect;

enum { OPERATION_OPERANDS = 6, OPERATION_AFTER_MOST = 4, OPERATION_BASES = 32 };

typedef struct OpOperand {
    const char *name;
    OpEffect effect;
} OpOperand;

typedef struct OpInfo {
    const char *name;
    OpOperand operands[OPERATION_OPERANDS]; /* in the order of operations.def; unused ones have EFFECT_NONE */
} OpInfo;

extern const OpInfo op_info[OPERATION_KINDS];

/* Where an operand is: `offset` bytes after a base. Bases are pointers that the caller passes when the list runs
   (op_run). They are numbered from 1; base 0 is a NULL operand. */
typedef struct Address {
    uint32_t base;
    size_t offset;
} Address;

static const Address no_address = {0, 0};

/* operations.def says which fields a kind has besides its operands. */
typedef struct Op {
    OpKind kind;
    const Kernel *kernel, *gelu;
    GroupExchange *exchange;
    ExpertCopies *copies;
    size_t count, rows, columns, sequence;
    double scale;
    union {
#define OPERATION(name, OPERANDS) \
    struct {                      \
        OPERANDS                  \
    } name;
#define OPERAND(effect, type, name) Address name;
#include "runtime/device/operations.def"
        Address operands[OPERATION_OPERANDS];
    };
    /* The indices of the operations that this one directly depends on. Filled in by op_list_order */
    uint32_t after[OPERATION_AFTER_MOST], after_count;
} Op;

/* Pointers to the operands of one operation. */
typedef union OpMemory {
#define OPERATION(name, OPERANDS) \
    struct name##_operands {      \
        OPERANDS                  \
    } name;
#define OPERAND(effect, type, name) type name;
#include "runtime/device/operations.def"
    void *operands[OPERATION_OPERANDS];
} OpMemory;

typedef struct OpList {
    Op *ops;
    size_t count, room;
    uint32_t bases;         /* the highest number of a base */
    bool failed;            /* op_append ran out of memory */
    PreparedList *prepared; /* made by DeviceFusion.prepare; NULL: the operations run one after the other */
    /* the work of op_list_order, for a test: the number of addresses that it compared plus the number of operations
       that it visited */
    size_t steps;
} OpList;

/* Appends a copy of the operation. If there is no memory for it, sets list->failed. */
void op_append(OpList *list, const Op *op);
/* Appends operation `name` with the kernel `its_kernel`. The other arguments are the addresses of its operands, in the
   order of operations.def. */
#define APPEND(list, name, its_kernel, ...) \
    op_append(list, &(Op){.kind = OPERATION_##name, .kernel = (its_kernel), .name = {__VA_ARGS__}})
void op_list_free(OpList *list);

/* Finishes a list; it must not change afterwards. STATUS_RUN_FAILED: an op_append had no memory, or there are more than
   OPERATION_BASES bases. */
Status op_list_finish(OpList *list, Error *error);
/* Derives which operations each operation must come after, for a device that runs several operations of the list at the
   same time. An operation comes after those whose output it reads (read after write), whose operands it overwrites
   (write after read, write after write), or that add to the same sum, so that sums are computed in the order of the
   list. Operands with equal addresses are the same memory; other operands must not overlap. Dependences that follow
   from others are left out. Memory is linear in the list. Time is linear in the list and in the distance between
   operations that use the same memory. STATUS_RUN_FAILED: no memory, or an operation has more than OPERATION_AFTER_MOST
   direct dependences. */
Status op_list_order(OpList *list, Error *error);

/* Runs operations begin .. end - 1 of the list in order. An operand is `offset` bytes after bases[base - 1], or NULL if
   that base is NULL. An operation is left out if its IF_WANTED operand is NULL. STATUS_RUN_FAILED also if an operand
   that must have memory is NULL; the error names it. */
Status op_run(Device *device, const OpList *list, size_t begin, size_t end, void *const *bases, Error *error);
/* Runs one operation with the operands in `memory`; ignores the addresses in `op`. */
Status op_run_one(Device *device, const Op *op, const OpMemory *memory, Error *error);

/* The head of a device's function for an operation. `o` has the pointers to the operands; `op` has everything else. */
#define UNUSED __attribute__((unused))
#define OPERATION_HEAD(function, name)                                                                  \
    Status function(UNUSED Device *device, UNUSED const Op *op, UNUSED const struct name##_operands *o, \
                    UNUSED Error *error)
