#include "compiler/output/dump.h"

#include "base/counted.h"
#include "program/operands.h"

void dump_schedule(const Schedule *schedule, FILE *stream)
{
    fprintf(stream, "schedule %s: %s\n", schedule->name, schedule_sizes(schedule).text);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const PlacedPipe *pipe = &schedule->pipes[p];
        fprintf(stream, "pipe %u %s: %s, microbatches %u..%u of the step\n", p, pipe->name,
                counted(pipe->stages, "stage").text, pipe->first, pipe->first + pipe->microbatches - 1);
    }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        fprintf(stream, "rank %u:", r);
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
            const PlacedChunk *chunk = &schedule->chunks[r][c];
            fprintf(stream, "  chunk %u = stage %u", c, chunk->stage);
            if (schedule->pipe_count > 1)
                fprintf(stream, " of %s", schedule->pipes[chunk->pipe].name);
            char own[80];
            chunk_microbatches_text(schedule, r, c, own, sizeof own);
            fprintf(stream, "%s%s", *own ? " for " : "", own);
        }
        putc('\n', stream);
    }
}

void dump_times(const Schedule *schedule, const Timeline *timeline, FILE *stream)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            if (action_is_message(action))
                continue;
            char text[48];
            action_text(schedule, action, text, sizeof text);
            fprintf(stream, "rank %-4u %-12s %10g %10g\n", r, text, timeline->start[r][i], timeline->end[r][i]);
        }
}

static const char *slot_name(const Instruction *instruction, const Operand *operand)
{
    if (operand->kind == OPERAND_NEWEST || operand->kind == OPERAND_NEXT)
        return operand->kind == OPERAND_NEWEST ? "from" : "to";
    if (!opcode_is_pass(instruction->opcode))
        return "slot";
    return operand->class == SLOT_MESSAGE ? operand_letters(operand) : slot_class_names[operand->class];
}

static void dump_slots(const Instruction *instruction, FILE *stream)
{
    for (const Operand *operand = opcode_table[instruction->opcode].operands; operand->kind; operand++)
        if (operand_is_slot(operand) && instruction->slot[operand->slot] != SLOT_NONE)
            fprintf(stream, " %s=%u", slot_name(instruction, operand), instruction->slot[operand->slot]);
}

/* Prints an instruction with its slots. `action`: the action that it was made from; NULL: the instruction is a WAIT.
   */
static void dump_step(const Schedule *schedule, const Instruction *instruction, const Action *action, FILE *stream)
{
    char text[48] = "wait";
    if (action)
        action_text(schedule, action, text, sizeof text);
    fprintf(stream, "  %-14s", text);
    dump_slots(instruction, stream);
    fputs(instruction->second ? "  overlaps the next\n" : "\n", stream);
}

void dump_plan(const Schedule *schedule, const Program *program, FILE *stream)
{
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const RankProgram *rank = &program->ranks[r];
        const Action *next = schedule->orders[r].actions;
        fprintf(stream, "rank %u: %u message, %u context, %u stash, %u gradient, %u weights slots; at most %s\n", r,
                rank->slots[SLOT_MESSAGE], rank->slots[SLOT_CONTEXT], rank->slots[SLOT_STASH],
                rank->slots[SLOT_GRADIENT], rank->slots[SLOT_WEIGHTS],
                counted(rank->peak_activations, "activation").text);
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            for (const Instruction *half = &rank->instructions[i]; half; half = half->second)
                if (half->opcode == OP_WAIT || opcode_is_ordered(half->opcode))
                    dump_step(schedule, half, half->opcode == OP_WAIT ? NULL : next++, stream);
    }
}

/* The causes of the bubble as text: " (imbalance 14.6 %, order 22.0 %; messages add 3)"; "" if all ranks have the same
   work and messages add no time, so that only the order can cause a bubble. */
static const char *causes_text(const Compilation *c, const Timeline *timeline)
{
    const BubbleCauses causes = timeline_bubble_causes(&c->schedule, &c->table, timeline, c->arena);
    const bool quiet = causes.messages <= 0;
    if (quiet && causes.imbalance < 1e-9)
        return "";
    const char *messages =
        quiet ? "" : arena_format(c->arena, "; messages add %g%s", causes.messages, costs_unit_text(timeline->costs));
    return arena_format(c->arena, " (imbalance %.1f %%, order %.1f %%%s)", 100 * causes.imbalance, 100 * causes.order,
                        messages);
}

void put_recipe_proof(const RecipeFound *found, const char *unit, FILE *stream)
{
    fputs("no order takes less", stream);
    if (found->bound < found->makespan)
        fprintf(stream, " than %.6g%s", found->bound, unit);
}

/* Prints the result of `overlap F&B auto` in one line. */
static void describe_recipe(const RecipeFound *found, const char *unit, FILE *stream)
{
    fprintf(stream, "  overlap F&B auto: the layers of an F&B take %.6g%s; ", found->makespan, unit);
    put_recipe_proof(found, unit, stream);
    putc('\n', stream);
}

void describe(const Compilation *compilation, const Timeline *timeline, const Gap *gap, FILE *stream)
{
    const Schedule *schedule = &compilation->schedule;
    const RankProgram *ranks = compilation->program->ranks;
    uint32_t peak = 0, passes = 0, messages = 0, updates = 0, versions = 0;
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        peak = ranks[r].peak_activations > peak ? ranks[r].peak_activations : peak;
        versions = ranks[r].slots[SLOT_WEIGHTS] > versions ? ranks[r].slots[SLOT_WEIGHTS] : versions;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const uint8_t kind = schedule->orders[r].actions[i].kind;
            passes += kind <= ACTION_W;
            updates += kind == ACTION_U;
            messages += kind == ACTION_SEND_F || kind == ACTION_SEND_B;
        }
    }
    fprintf(stream, "%s: proven for %s\n", schedule->name, schedule_sizes(schedule).text);
    fprintf(stream, "  %s, each exactly once and after what it needs%s\n", counted(passes, "pass").text,
            schedule->forward_only ? "; forward only: nothing is trained" : "");
    if (schedule->asynchronous)
        fprintf(stream,
                "  %s of weights within the step; forward and backward of a microbatch on the same version, the right "
                "one; at most %s on a rank\n",
                counted(updates, "update").text, counted(versions, "version").text);
    fprintf(stream, "  %s, paired in order; no deadlock, even with unbuffered rendezvous\n",
            counted(messages, "message").text);
    fprintf(stream, "  makespan %g%s%s, bubble %.1f %%%s under the given times%s\n", timeline->makespan,
            costs_unit_text(timeline->costs), gap_note(gap, compilation->arena),
            100 * timeline_bubble(schedule, timeline).rate, causes_text(compilation, timeline),
            schedule->forward_only
                ? ""
                : arena_format(compilation->arena, "; at most %s on a rank", counted(peak, "activation").text));
    if (compilation->tree && compilation->tree->order)
        describe_search(&compilation->found, stream);
    if (ast_searches_recipe(compilation->tree))
        describe_recipe(&compilation->recipe_found, costs_unit_text(timeline->costs), stream);
}

void describe_search(const SearchProgress *found, FILE *stream)
{
    if (found->overlap) {
        fprintf(stream, "  the best of %s tried\n", counted(found->tried, "order").text);
        return;
    }
    fprintf(stream,
            "  the best of %s tried: the longest rank takes %g; no order within this memory takes less than %g\n",
            counted(found->tried, "order").text, found->cost, found->bound);
}
