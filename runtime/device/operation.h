#ifndef DEVICE_OPERATION_H
#define DEVICE_OPERATION_H

/* Operations as data. A component of a model appends the operations of its passes to lists when its stage is opened;
   a device runs a list. operations.def alone says what each kind is and what it reads, writes and adds to. */

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Device Device;
typedef struct Kernel Kernel;
typedef struct PreparedList PreparedList; /* a device's own: DeviceFusion */

typedef enum OpKind {
#define OPERATION(name, SHAPE, OPERANDS) OPERATION_##name,
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
    OpOperand operands[OPERATION_OPERANDS]; /* in the order of the table; the rest is EFFECT_NONE */
} OpInfo;

extern const OpInfo op_info[OPERATION_KINDS];

/* Memory that is known when a list runs: `offset` bytes from a base. Bases are numbered from 1; 0 is NULL. */
typedef struct Address {
    uint32_t base;
    size_t offset;
} Address;

static const Address no_address = {0, 0};

/* SHAPE in operations.def says which fields a kind has besides its operands. */
typedef struct Op {
    OpKind kind;
    const Kernel *kernel, *gelu;
    size_t count, rows, columns, sequence;
    double scale;
    union {
#define OPERATION(name, SHAPE, OPERANDS) \
    struct {                             \
        OPERANDS                         \
    } name;
#define OPERAND(effect, type, name) Address name;
#include "runtime/device/operations.def"
        Address operands[OPERATION_OPERANDS];
    };
    /* The operations of the list that it comes directly after. Filled in by op_list_order */
    uint32_t after[OPERATION_AFTER_MOST], after_count;
} Op;

/* Where the operands of one operation are. */
typedef union OpMemory {
#define OPERATION(name, SHAPE, OPERANDS) \
    struct name##_operands {             \
        OPERANDS                         \
    } name;
#define OPERAND(effect, type, name) type name;
#include "runtime/device/operations.def"
    void *operands[OPERATION_OPERANDS];
} OpMemory;

typedef struct OpList {
    Op *ops;
    size_t count, room;
    uint32_t bases;         /* the highest base of any operand */
    bool failed;            /* there was no memory for one of them */
    PreparedList *prepared; /* NULL: the list runs one operation after the other */
    size_t steps;           /* of op_list_order: addresses compared and operations looked at */
} OpList;

/* The list owns a copy. */
void op_append(OpList *list, const Op *op);
/* One that has a kernel and, in the order of the table, these operands. */
#define APPEND(list, name, its_kernel, ...) \
    op_append(list, &(Op){.kind = OPERATION_##name, .kernel = (its_kernel), .name = {__VA_ARGS__}})
void op_list_free(OpList *list);

/* Ends a list: it must not change afterwards. STATUS_RUN_FAILED: there was no memory for an op_append; more than
   OPERATION_BASES. */
Status op_list_finish(OpList *list, Error *error);
/* Derives which others each operation comes after, for a device that runs operations of the list at once. An operation
   reads what they wrote (read after write), writes what they read or wrote (write after read, write after write), or
   adds to what they add to, so that sums are made in the order of the list. Operands are the same memory if their
   addresses are equal; otherwise they do not overlap. Of what follows from others nothing is noted. Memory grows with
   the list, time with the list and with how far apart those of its operations are that use the same memory.
   STATUS_RUN_FAILED: no memory; more than OPERATION_AFTER_MOST others. */
Status op_list_order(OpList *list, Error *error);

/* Runs operations begin .. end - 1 of the list in their order. An operand is `offset` bytes behind bases[base - 1], or
   NULL where that base is. STATUS_RUN_FAILED also names an operand that is needed and NULL. */
Status op_run(Device *device, const OpList *list, size_t begin, size_t end, void *const *bases, Error *error);
/* One operation whose memory is known; the addresses in `op` do not count. */
Status op_run_one(Device *device, const Op *op, const OpMemory *memory, Error *error);

/* What SHAPE stands for in the parameters of a device's function, and in the arguments that `op` has for them. */
/* clang-format off */
#define PARAMETERS_KERNEL        , const Kernel *kernel
#define PARAMETERS_KERNELS       , const Kernel *kernel, const Kernel *gelu
#define PARAMETERS_KERNEL_SCALED , const Kernel *kernel, double scale
#define PARAMETERS_TABLE         , size_t rows, size_t columns, size_t sequence
#define PARAMETERS_COUNT         , size_t count
#define PARAMETERS_COUNT_SCALED  , size_t count, double scale
#define ARGUMENTS_KERNEL         , op->kernel
#define ARGUMENTS_KERNELS        , op->kernel, op->gelu
#define ARGUMENTS_KERNEL_SCALED  , op->kernel, op->scale
#define ARGUMENTS_TABLE          , op->rows, op->columns, op->sequence
#define ARGUMENTS_COUNT          , op->count
#define ARGUMENTS_COUNT_SCALED   , op->count, op->scale
/* clang-format on */

#endif
