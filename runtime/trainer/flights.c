/* Prepares the tables in which a rank notes the times of its all-to-alls and components. */
#include "runtime/trainer/rank.h"

static size_t flights_of(const Rank *rank, const Instruction *instruction)
{
    if (rank->session->options->simulated)
        return simulator_flights(&rank->simulator, instruction);
    size_t count = 0;
    for (const Instruction *half = instruction; half; half = half->second) {
        if (opcode_is_forward(half->opcode))
            count += stage_all_to_alls(rank->chunks[half->chunk].stage, RECIPE_F);
        else if (half->opcode == OP_BACKWARD || half->opcode == OP_BACKWARD_INPUT)
            count += stage_all_to_alls(rank->chunks[half->chunk].stage, RECIPE_B);
    }
    return count;
}

/* The most spans of components that an instruction notes. A B counts as two passes, I and W. */
static size_t components_of(const Rank *rank, const Instruction *instruction)
{
    size_t count = 0;
    for (const Instruction *half = instruction; half && opcode_is_pass(half->opcode); half = half->second) {
        const size_t each = rank->session->options->simulated ? simulator_spans_most(&rank->simulator, half)
                                                              : stage_spans_most(rank->chunks[half->chunk].stage);
        count += half->opcode == OP_BACKWARD ? 2 * each : each;
    }
    return count;
}

/* Whether the run notes when components ran. It does so for a trace, if passes are simulated or if each call of the
   device returns only when its operation is done. */
static bool notes_components(const Rank *rank)
{
    return rank->session->options->trace && (rank->session->options->simulated || !rank->device->run->async);
}

Status rank_open_flights(Rank *rank, Error *error)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    Flights *flights = &rank->flights;
    PartSpans *components = &rank->components;
    const bool notes = notes_components(rank);
    for (uint32_t i = 0; i < own->instruction_count; i++) {
        flights->room += flights_of(rank, &own->instructions[i]);
        components->room += notes ? components_of(rank, &own->instructions[i]) : 0;
    }
    flights->entries = rank_table(rank, flights->room, sizeof *flights->entries);
    components->entries = rank_table(rank, components->room, sizeof *components->entries);
    rank->simulator.flights = rank->experts.flights = flights;
    rank->simulator.components = notes ? components : NULL;
    for (uint32_t c = 0; notes && rank->chunks && c < rank->chunk_count; c++)
        stage_note_spans(rank->chunks[c].stage, components);
    return flights->entries && components->entries ? STATUS_OK : rank_no_tables(rank, error);
}
