#include "compiler/lower/memory.h"

#include "base/counted.h"
#include "program/operands.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 48 };
/* most bytes of one slot, so that the sum over all slots and stages cannot overflow */
static const uint64_t BYTES_MAX = (uint64_t)1 << 44; /* 16T */
static const char *const class_names[SLOT_CLASSES] = {[SLOT_MESSAGE] = "message",
                                                      [SLOT_CONTEXT] = "context",
                                                      [SLOT_STASH] = "stash",
                                                      [SLOT_GRADIENT] = "gradient",
                                                      [SLOT_WEIGHTS] = "version"};
static const char *const clear_names[SLOT_CLASSES] = {[SLOT_MESSAGE] = "message",
                                                      [SLOT_CONTEXT] = "saved_for_dgrad",
                                                      [SLOT_STASH] = "saved_for_wgrad",
                                                      [SLOT_GRADIENT] = "deferred_wgrad",
                                                      [SLOT_WEIGHTS] = "weight_version"};

/* Reads a number of bytes such as "96M", which must fill all `length` characters. */
static bool read_bytes(const char *text, size_t length, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    size_t used = 0;
    *bytes = 0;
    for (; used < length && isdigit((unsigned char)text[used]); used++) {
        *bytes = 10 * *bytes + (uint64_t)(text[used] - '0');
        if (*bytes > BYTES_MAX)
            return false;
    }
    const char *unit = used > 0 && used < length ? strchr(units, text[used]) : NULL;
    if (unit && *unit) {
        *bytes <<= 10 * (unit - units + 1);
        used++;
    }
    return used > 0 && used == length && *bytes <= BYTES_MAX;
}

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

Status memory_set_sizes(Memory *memory, const char *text, Error *error)
{
    for (const char *next = text; *next;) {
        const size_t length = strcspn(next, ","), name = strcspn(next, "=,");
        const bool weights = is_name("weights", next, name);
        uint64_t *size = weights ? &memory->weights : NULL;
        uint32_t bit = MEMORY_WEIGHTS;
        for (int class = 0; class < SLOT_CLASSES; class ++)
            if (is_name(class_names[class], next, name) || is_name(clear_names[class], next, name)) {
                size = &memory->slot[class];
                bit = 1u << class;
            }
        if (!size || next[name] != '=')
            return error_set(error, STATUS_BAD_USAGE,
                             "%s: '%.*s' is not NAME=BYTES with NAME one of message, saved_for_dgrad (or "
                             "context), saved_for_wgrad (stash), deferred_wgrad (gradient), weights, weight_version "
                             "(version)",
                             front_name(memory->front_end, SET_SLOT_BYTES), (int)length, next);
        if (!read_bytes(next + name + 1, length - name - 1, size))
            return error_set(error, STATUS_BAD_USAGE,
                             "%s: '%.*s' needs a whole number of bytes up to 16T, such as 4096, 64K or 1G",
                             front_name(memory->front_end, SET_SLOT_BYTES), (int)length, next);
        memory->given |= bit;
        next += length + (next[length] == ',');
    }
    return STATUS_OK;
}

Status memory_set_limit(Memory *memory, const char *text, Error *error)
{
    static const char prefix[] = "activations=";
    const bool activations = strncmp(text, prefix, sizeof prefix - 1) == 0;
    const char *number = activations ? text + sizeof prefix - 1 : text;
    uint64_t value;
    if (!read_bytes(number, strlen(number), &value) || value == 0 || (activations && value > UINT32_MAX))
        return error_set(error, STATUS_BAD_USAGE,
                         "%s: '%s' is neither a whole number of bytes for each rank, from 1 to 16T, such as "
                         "24G, nor activations=N with N from 1 to %u",
                         front_name(memory->front_end, SET_MEMORY_LIMIT), text, UINT32_MAX);
    if (activations)
        memory->limit_activations = (uint32_t)value;
    else
        memory->limit = value;
    memory->limit_text = number;
    return STATUS_OK;
}

Status memory_check_options(const Memory *memory, Error *error)
{
    if (memory->limit && !memory->given)
        return error_set(
            error, STATUS_BAD_USAGE, "%s in bytes needs sizes: %smessage=N,...; or limit activations: %sactivations=N",
            front_name(memory->front_end, SET_MEMORY_LIMIT), front_before(memory->front_end, SET_SLOT_BYTES),
            front_before(memory->front_end, SET_MEMORY_LIMIT));
    return STATUS_OK;
}

static uint64_t share_of(uint64_t bytes, uint32_t from, uint32_t to)
{
    return (bytes * from + to - 1) / to; /* cannot overflow: BYTES_MAX * UINT16_MAX fits */
}

/* Converts a limit in activations of 1/from of the model to one in activations of 1/to of the model. The result is at
   least 1, because 0 means no limit. */
static uint32_t activations_of(uint32_t limit, uint32_t from, uint32_t to)
{
    const uint64_t finer = (uint64_t)limit * to / from;
    return finer < 1 ? 1 : finer < UINT32_MAX ? (uint32_t)finer : UINT32_MAX;
}

Memory memory_recut(const Memory *memory, uint32_t from, uint32_t to)
{
    Memory recut = *memory;
    recut.weights = share_of(memory->weights, from, to);
    if (memory->limit_activations)
        recut.limit_activations = activations_of(memory->limit_activations, from, to);
    for (int class = 0; class < SLOT_CLASSES; class ++)
        if (class != SLOT_MESSAGE)
            recut.slot[class] = share_of(memory->slot[class], from, to);
    return recut;
}

uint64_t memory_bytes(const Memory *memory, const RankProgram *rank)
{
    const uint32_t *slots = rank->slots, chunks = rank->chunk_count;
    uint64_t bytes = chunks * memory->weights + (slots[SLOT_WEIGHTS] - chunks) * memory->slot[SLOT_WEIGHTS];
    for (int class = 0; class < SLOT_WEIGHTS; class ++)
        bytes += slots[class] * memory->slot[class];
    return bytes;
}

uint32_t memory_missing(const Memory *memory, const Program *program)
{
    uint32_t needed = MEMORY_WEIGHTS;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (int class = 0; class < SLOT_CLASSES; class ++)
            if (program->ranks[r].slots[class] > (class == SLOT_WEIGHTS ? program->ranks[r].chunk_count : 0))
                needed |= 1u << class;
    return needed & ~memory->given;
}

static MemoryNames names_between(uint32_t sizes, const char *separator)
{
    MemoryNames names = {""};
    const char *next = "";
    for (int i = 0; i <= SLOT_CLASSES; i++)
        if (sizes & 1u << i) {
            const size_t used = strlen(names.text);
            snprintf(names.text + used, sizeof names.text - used, "%s%s", next,
                     i == SLOT_CLASSES ? "weights" : clear_names[i]);
            next = separator;
        }
    return names;
}

MemoryNames memory_names(uint32_t sizes) { return names_between(sizes, ", "); }

void memory_put_missing(uint32_t sizes, FILE *stream)
{
    if (sizes)
        fprintf(stream, ", \"missing_sizes\": [\"%s\"]", names_between(sizes, "\", \"").text);
}

static uint64_t needed(const Memory *memory, const RankProgram *rank, bool activations)
{
    return activations ? rank->peak_activations : memory_bytes(memory, rank);
}

static bool uses_slot(const Instruction *instruction, SlotClass class, uint32_t slot)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++)
        if (operand_is_slot(operand) && operand->class == class && instruction->slot[operand->slot] == slot)
            return true;
    return false;
}

/* The first action that uses the slot with the highest number of a class. Slots come into use in the order of their
   numbers, so from then on all slots of the class have been in use. NULL: the rank has no slot of the class or,
   for weights, only the first version of each chunk. */
static const Action *last_slot_at(const Order *order, const RankProgram *rank, SlotClass class)
{
    const uint32_t least = class == SLOT_WEIGHTS ? rank->chunk_count : 0;
    const Action *action = order->actions;
    for (uint32_t i = 0; rank->slots[class] > least && i < rank->instruction_count; i++) {
        if (!opcode_is_ordered(rank->instructions[i].opcode))
            continue;
        for (const Instruction *half = &rank->instructions[i]; half; half = half->second, action++)
            if (uses_slot(half, class, rank->slots[class] - 1))
                return action;
    }
    return NULL;
}

/* The first action by which every counted slot has been used. For a limit in activations, the SLOT_STASH slots count:
   each saved activation has one. For a limit in bytes, the slots of all classes that have a size count. NULL: no action
   uses a counted slot. */
static const Action *peak_of(const Memory *memory, const Order *order, const RankProgram *rank, bool activations)
{
    const Action *last = NULL; /* a pointer into order->actions, so that a larger address is a later action */
    for (int class = 0; class < SLOT_CLASSES; class ++) {
        if (activations ? class != SLOT_STASH : !memory->slot[class])
            continue;
        const Action *at = last_slot_at(order, rank, (SlotClass) class);
        last = at && (!last || at > last) ? at : last;
    }
    return last;
}

static void check(const Memory *memory, uint64_t limit, bool activations, const Schedule *schedule,
                  const Program *program, Diagnostics *diagnostics)
{
    uint32_t most = 0, above = 0;
    for (uint32_t r = 1; r < schedule->ranks; r++)
        if (needed(memory, &program->ranks[r], activations) > needed(memory, &program->ranks[most], activations))
            most = r;
    const uint64_t needs = needed(memory, &program->ranks[most], activations);
    const uint32_t missing = activations ? 0 : memory_missing(memory, program);
    if (needs <= limit) {
        if (missing) {
            diag_error(diagnostics, (Span){0, 0}, "the limit of %s needs more sizes: " MEMORY_LACKS, memory->limit_text,
                       front_name(memory->front_end, SET_SLOT_BYTES), memory_names(missing).text);
            diag_refuses(diagnostics);
        }
        return;
    }
    for (uint32_t r = 0; r < schedule->ranks; r++)
        above += needed(memory, &program->ranks[r], activations) > limit;
    const RankProgram *rank = &program->ranks[most];
    const Action *peak = peak_of(memory, &schedule->orders[most], rank, activations);
    char at[TEXT + 16] = "", most_allowed[TEXT];
    snprintf(most_allowed, sizeof most_allowed, "%" PRIu64, limit);
    if (peak) {
        char text[TEXT];
        action_text(schedule, peak, text, sizeof text);
        snprintf(at, sizeof at, " from %s on", text);
    }
    const uint32_t further = rank->slots[SLOT_WEIGHTS] - rank->chunk_count;
    char versions[TEXT + 16] = "";
    if (further)
        snprintf(versions, sizeof versions, ", with %s", counted(further, "further version").text);
    const Span span = peak ? peak->span : (Span){0, 0};
    diag_error(diagnostics, span, "rank %u needs %s%s%s, more than the limit of %s", most, missing ? "at least " : "",
               counted(needs, activations ? "activation" : "byte").text, at,
               activations ? most_allowed : memory->limit_text);
    diag_refuses(diagnostics);
    if (!activations)
        diag_help(diagnostics,
                  "rank %u has %u message, %u saved_for_dgrad, %u saved_for_wgrad and %u deferred_wgrad slots, and the "
                  "weights of %s%s",
                  most, rank->slots[SLOT_MESSAGE], rank->slots[SLOT_CONTEXT], rank->slots[SLOT_STASH],
                  rank->slots[SLOT_GRADIENT], counted(rank->chunk_count, "stage").text, versions);
    if (above > 1)
        diag_help(diagnostics, "%u of the %u ranks exceed the limit", above, schedule->ranks);
}

bool memory_check(const Memory *memory, const Schedule *schedule, const Program *program, Diagnostics *diagnostics)
{
    if (memory->limit)
        check(memory, memory->limit, false, schedule, program, diagnostics);
    if (memory->limit_activations)
        check(memory, memory->limit_activations, true, schedule, program, diagnostics);
    return !diag_failed(diagnostics);
}
