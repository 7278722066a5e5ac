/* The times of a rank's all-to-alls. */
#include "runtime/trainer/rank.h"

static size_t of_instruction(const Rank *rank, const Instruction *instruction)
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

Status rank_open_flights(Rank *rank, Error *error)
{
    const RankProgram *own = &rank->session->loaded->program->ranks[rank->number];
    Flights *flights = &rank->flights;
    for (uint32_t i = 0; i < own->instruction_count; i++)
        flights->room += of_instruction(rank, &own->instructions[i]);
    flights->entries = rank_table(rank, flights->room, sizeof *flights->entries);
    rank->simulator.flights = rank->experts.flights = flights;
    return flights->entries ? STATUS_OK : rank_no_tables(rank, error);
}
