#include "compiler/schedule/passes.h"

PassTable pass_table_new(const Schedule *schedule, Arena *arena)
{
    PassTable table;
    table.forward = arena_array(arena, schedule->pipe_count, sizeof *table.forward);
    table.backward = arena_array(arena, schedule->pipe_count, sizeof *table.backward);
    table.weight = arena_array(arena, schedule->pipe_count, sizeof *table.weight);
    for (uint32_t p = 0; p < schedule->pipe_count; p++) {
        const size_t count = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches;
        uint32_t **of[] = {&table.forward[p], &table.backward[p], &table.weight[p]};
        for (int k = 0; k < 3; k++) {
            *of[k] = arena_array(arena, count, sizeof **of[k]);
            for (size_t i = 0; i < count; i++)
                (*of[k])[i] = POSITION_NONE;
        }
    }
    return table;
}

bool pass_dependence(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence)
{
    const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
    uint32_t stage;
    if (pass->kind == ACTION_F && pass->stage > 0)
        stage = pass->stage - 1u;
    else if ((pass->kind == ACTION_B || pass->kind == ACTION_I) && pass->stage + 1u < pipe->stages)
        stage = pass->stage + 1u;
    else
        return false;
    uint32_t *const *positions = pass->kind == ACTION_F ? table->forward : table->backward;
    dependence->rank = stage_home(pipe, stage, pass->microbatch).rank;
    dependence->position = positions[pass->pipe][pass_index(pipe, stage, pass->microbatch)];
    return true;
}

void passes_index(const Schedule *schedule, PassTable *table)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *pass = &schedule->orders[r].actions[i];
            const size_t index = pass_index(&schedule->pipes[pass->pipe], pass->stage, pass->microbatch);
            if (pass->kind == ACTION_F)
                table->forward[pass->pipe][index] = i;
            if (pass->kind == ACTION_B || pass->kind == ACTION_I)
                table->backward[pass->pipe][index] = i;
            if (pass->kind == ACTION_B || pass->kind == ACTION_W)
                table->weight[pass->pipe][index] = i;
            if (pass->kind == ACTION_U)
                table->update[r][pass->chunk][pass->microbatch - 1] = i;
        }
}
