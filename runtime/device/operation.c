#include "runtime/device/operation.h"

#include "runtime/device/device.h"

#include <stdlib.h>

const OpInfo op_info[OPERATION_KINDS] = {
#define OPERATION(name, OPERANDS) [OPERATION_##name] = {#name, {OPERANDS}},
#define OPERAND(effect, type, name) {#name, EFFECT_##effect},
#include "runtime/device/operations.def"
};

void op_append(OpList *list, const Op *op)
{
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 16;
        Op *ops = list->failed ? NULL : realloc(list->ops, room * sizeof *ops);
        list->failed = !ops;
        if (!ops)
            return;
        list->ops = ops;
        list->room = room;
    }
    Op *own = &list->ops[list->count++];
    *own = *op;
    for (int i = 0; i < OPERATION_OPERANDS; i++) {
        if (op_info[op->kind].operands[i].effect == EFFECT_NONE)
            /* the kind has no such operand, so APPEND has left these bytes of the union undefined */
            own->operands[i] = no_address;
        if (own->operands[i].base > list->bases)
            list->bases = own->operands[i].base;
    }
}

void op_list_free(OpList *list)
{
    free(list->ops);
    *list = (OpList){0};
}

/* --- dependences --- */

/* The uses of one address so far. A use is an operand of an operation, numbered operation * OPERATION_OPERANDS +
   operand. */
typedef struct Uses {
    Address address;
    uint32_t changed; /* 1 + the index of the latest operation that wrote to the address or added to it; 0: none */
    uint32_t read;    /* 1 + the number of the latest use after operation `changed` that only reads; 0: none */
} Uses;

typedef struct Order {
    OpList *list;
    Uses *table; /* hash table */
    size_t places;
    /* [uses] for a use that only reads: 1 + the number of the previous use that reads the same address since its last
       change; 0: none */
    uint32_t *earlier;
    /* [operations] wanted[i]: the latest operation that must come after operation i. reached[i]: the latest operation
       that comes after operation i through the dependences found so far. 0: none, as operation 0 comes after none */
    uint32_t *wanted, *reached;
    /* the last and the first of the operations that must come before the present one, as 1 + its index; 0 and
       UINT32_MAX if there is none */
    uint32_t newest, oldest;
} Order;

static bool only_reads(OpEffect effect) { return effect == EFFECT_READ || effect == EFFECT_MAY_READ; }

static bool may_be_left_out(const Op *op)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++)
        if (op_info[op->kind].operands[i].effect == EFFECT_IF_WANTED)
            return true;
    return false;
}

static Uses *uses_of(Order *order, Address address)
{
    size_t i = (address.offset + address.base) * 0x9e3779b97f4a7c15u >> 20;
    for (;; i++) {
        Uses *uses = &order->table[i % order->places];
        order->list->steps++;
        if (!uses->address.base)
            uses->address = address;
        if (uses->address.base == address.base && uses->address.offset == address.offset)
            return uses;
    }
}

static void want(Order *order, uint32_t index, uint32_t other)
{
    if (other == 0 || other == index + 1)
        return;
    order->wanted[other - 1] = index;
    order->newest = other > order->newest ? other : order->newest;
    order->oldest = other < order->oldest ? other : order->oldest;
}

/* Adds a use. A read comes after the last change; a change comes after the last change and all reads since. */
static void add_use(Order *order, uint32_t index, uint32_t operand)
{
    const Op *op = &order->list->ops[index];
    const uint32_t use = index * OPERATION_OPERANDS + operand;
    Uses *uses = uses_of(order, op->operands[operand]);
    want(order, index, uses->changed);
    if (only_reads(op_info[op->kind].operands[operand].effect)) {
        order->earlier[use] = uses->read;
        uses->read = use + 1;
        return;
    }
    for (; uses->read; uses->read = order->earlier[uses->read - 1])
        want(order, index, (uses->read - 1) / OPERATION_OPERANDS + 1);
    uses->changed = index + 1;
}

/* Finds the direct dependences of an operation. Visits the operations that it must come after, from the newest to the
   oldest, and skips those that it already follows through other dependences. A path through an operation that may be
   left out of a run does not count. False: too many direct dependences. */
static bool order_one(Order *order, uint32_t index)
{
    Op *ops = order->list->ops, *op = &ops[index];
    order->newest = op->after_count = 0;
    order->oldest = UINT32_MAX;
    for (uint32_t i = 0; i < OPERATION_OPERANDS; i++)
        if (op->operands[i].base)
            add_use(order, index, i);
    for (uint32_t j = order->newest; j >= order->oldest; j--) {
        const Op *other = &ops[j - 1];
        order->list->steps++;
        if (order->wanted[j - 1] == index && order->reached[j - 1] != index) {
            if (op->after_count == OPERATION_AFTER_MOST)
                return false;
            op->after[op->after_count++] = j - 1;
            order->reached[j - 1] = index;
        }
        for (uint32_t a = 0; order->reached[j - 1] == index && !may_be_left_out(other) && a < other->after_count; a++)
            order->reached[other->after[a]] = index;
    }
    return true;
}

static Status order_all(Order *order, Error *error)
{
    for (uint32_t i = 0; i < order->list->count; i++)
        if (!order_one(order, i))
            return error_set(error, STATUS_RUN_FAILED,
                             "internal error, operation %u of a list (%s) depends directly on more than %d others", i,
                             op_info[order->list->ops[i].kind].name, OPERATION_AFTER_MOST);
    return STATUS_OK;
}

Status op_list_order(OpList *list, Error *error)
{
    const size_t uses = list->count * OPERATION_OPERANDS;
    Order order = {.list = list, .places = 2 * uses + 1};
    order.table = calloc(order.places, sizeof *order.table);
    order.earlier = calloc(uses + 2 * list->count + 1, sizeof *order.earlier);
    order.wanted = order.earlier + uses;
    order.reached = order.wanted + list->count;
    list->steps = 0;
    const Status status =
        order.table && order.earlier ? order_all(&order, error) : error_set(error, STATUS_RUN_FAILED, "out of memory");
    free(order.table);
    free(order.earlier);
    return status;
}

/* --- a whole list --- */

Status op_list_finish(OpList *list, Error *error)
{
    if (list->failed)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    if (list->bases > OPERATION_BASES)
        return error_set(error, STATUS_RUN_FAILED,
                         "internal error, a list of operations has %u base addresses, more than %d", list->bases,
                         OPERATION_BASES);
    return STATUS_OK;
}

/* Finds the memory of the operands. False: the operation is left out, because its IF_WANTED output has no memory. */
static bool find_memory(const Op *op, void *const *bases, OpMemory *memory)
{
    for (int i = 0; i < OPERATION_OPERANDS; i++) {
        const Address *address = &op->operands[i];
        char *base = address->base ? bases[address->base - 1] : NULL;
        memory->operands[i] = base ? base + address->offset : NULL;
        if (!base && op_info[op->kind].operands[i].effect == EFFECT_IF_WANTED)
            return false;
    }
    return true;
}

Status op_run_one(Device *device, const Op *op, const OpMemory *memory, Error *error)
{
    const OpInfo *info = &op_info[op->kind];
    for (int i = 0; i < OPERATION_OPERANDS && info->operands[i].effect != EFFECT_NONE; i++)
        if (!memory->operands[i] && info->operands[i].effect != EFFECT_MAY_READ &&
            info->operands[i].effect != EFFECT_MAY_ADD)
            return error_set(error, STATUS_RUN_FAILED, "internal error, operation %s: its operand %s has no memory",
                             info->name, info->operands[i].name);
    return device->run->operate(device, op, memory, error);
}

Status op_run(Device *device, const OpList *list, size_t begin, size_t end, void *const *bases, Error *error)
{
    OpMemory memory;
    for (size_t i = begin; i < end; i++)
        if (find_memory(&list->ops[i], bases, &memory))
            TRY(op_run_one(device, &list->ops[i], &memory, error));
    return STATUS_OK;
}
