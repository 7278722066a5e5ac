/* Where a rank is in its program, as text: for messages of failures, and for the parts of the launcher that watch the
   ranks (watchdog.c, guard.c, fatal.c). */
#include "runtime/executor/executor.h"
#include "runtime/executor/walk.h"

#include <stdio.h>

/* "instruction I (TEXT, FILE.dps:LINE)" */
static void instruction_place(const Program *program, uint32_t rank, const RankProgram *own, uint32_t instruction,
                              char *text, size_t size)
{
    char words[160], line[16] = "";
    const Instruction *place = &own->instructions[instruction];
    program_instruction_text(program, rank, place, words, sizeof words);
    if (place->line)
        snprintf(line, sizeof line, ":%u", place->line);
    const uint32_t number = own->numbers ? own->numbers[instruction] : instruction;
    snprintf(text, size, "instruction %u (%s, %s%s)", number, words, program->source, line);
}

Status walk_failed(const Walk *walk, size_t place, Status status, Error *error)
{
    char text[256];
    instruction_place(walk->program, walk->rank, walk->own, (uint32_t)place, text, sizeof text);
    error_prefix(error, "%s, %s: ", walk->name.text, text);
    return status;
}

int walk_awaited(const Instruction *instructions, size_t place)
{
    const uint16_t slot = instructions[place].message;
    if (instructions[place].opcode != OP_WAIT)
        return -1;
    for (size_t i = place; i-- > 0;)
        if (opcode_is_post(instructions[i].opcode) && instructions[i].message == slot)
            return instructions[i].peer;
    return -1;
}

static const Program *program_of(const LoadedProgram *loaded, const Progress *progress)
{
    return atomic_load_explicit(&progress->evaluating, memory_order_relaxed) ? loaded->forward : loaded->program;
}

static uint32_t rank_of(const LoadedProgram *loaded, const Progress *progress)
{
    return (uint32_t)mesh_rank(loaded_mesh(loaded), atomic_load(&progress->member));
}

static const RankProgram *own_program(const LoadedProgram *loaded, const Progress *progress)
{
    return &program_of(loaded, progress)->ranks[rank_of(loaded, progress)];
}

static void write_place(const void *loaded, const Progress *progress, char *text, size_t size)
{
    const uint64_t place = atomic_load_explicit(&progress->place, memory_order_relaxed);
    const Program *program = program_of(loaded, progress);
    *text = '\0';
    if (place != PROGRESS_IDLE)
        instruction_place(program, rank_of(loaded, progress), own_program(loaded, progress), (uint32_t)place, text,
                          size);
}

static int awaited(const void *loaded, const Progress *progress)
{
    const uint64_t place = atomic_load_explicit(&progress->place, memory_order_relaxed);
    const Mesh mesh = loaded_mesh(loaded);
    const int replica = mesh_replica(mesh, atomic_load(&progress->member));
    const int peer =
        place == PROGRESS_IDLE ? -1 : walk_awaited(own_program(loaded, progress)->instructions, (uint32_t)place);
    return peer < 0 ? -1 : mesh_member(mesh, peer, replica);
}

ProgressWords progress_words(const LoadedProgram *loaded)
{
    return (ProgressWords){.mesh = loaded_mesh(loaded), .program = loaded, .place = write_place, .awaited = awaited};
}
