#include "compiler/schedule/passes.h"

#include <string.h>

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
    table.forward_sent = table.forward;
    table.backward_sent = table.backward;
    return table;
}

static bool find_dependence(const Schedule *schedule, uint32_t *const *forward, uint32_t *const *backward,
                            const Action *pass, Dependence *dependence)
{
    const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
    uint32_t stage;
    if (pass->kind == ACTION_F && pass->stage > 0)
        stage = pass->stage - 1u;
    else if ((pass->kind == ACTION_B || pass->kind == ACTION_I) && pass->stage + 1u < pipe->stages)
        stage = pass->stage + 1u;
    else
        return false;
    uint32_t *const *positions = pass->kind == ACTION_F ? forward : backward;
    dependence->rank = stage_home(pipe, stage, pass->microbatch).rank;
    dependence->position = positions[pass->pipe][pass_index(pipe, stage, pass->microbatch)];
    return true;
}

bool pass_dependence(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence)
{
    return find_dependence(schedule, table->forward, table->backward, pass, dependence);
}

bool pass_sender(const Schedule *schedule, const PassTable *table, const Action *pass, Dependence *dependence)
{
    return find_dependence(schedule, table->forward_sent, table->backward_sent, pass, dependence);
}

static void place_copies(Schedule *schedule, const PassTable *table, Arena *arena)
{
    schedule->copies = arena_array(arena, schedule->pipes[0].stages, sizeof *schedule->copies);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
            Copies *copies = &schedule->copies[schedule->chunks[r][c].stage];
            const uint32_t versions = table->updates[r][c].count;
            copies->versions = versions > copies->versions ? versions : copies->versions;
            copies->count++;
        }
    for (uint32_t s = 0; s < schedule->pipes[0].stages; s++) {
        Copies *copies = &schedule->copies[s];
        copies->homes = arena_array(arena, copies->count, sizeof *copies->homes);
        copies->gradients = arena_array(arena, copies->versions, sizeof *copies->gradients);
        copies->count = 0;
    }
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        for (uint32_t r = 0; r < schedule->ranks; r++)
            for (uint32_t c = 0; c < schedule->chunk_counts[r]; c++) {
                Copies *copies = &schedule->copies[schedule->chunks[r][c].stage];
                if (schedule->chunks[r][c].pipe == p)
                    copies->homes[copies->count++] = (Home){(uint16_t)r, (uint8_t)c};
            }
}

/* Fills in `updates` of the rank's chunks. Adds the number of gradients that each U uses to Copies.gradients of the
   version that the U makes. */
static void take_updates(const Schedule *schedule, uint32_t rank, Updates *updates, Arena *arena)
{
    const Order *order = &schedule->orders[rank];
    uint32_t *gathered = arena_array(arena, schedule->chunk_counts[rank], sizeof *gathered);
    for (uint32_t c = 0; c < schedule->chunk_counts[rank]; c++)
        updates[c] = (Updates){.at = arena_array(arena, updates[c].count, sizeof *updates->at)};
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        Updates *of = &updates[action->chunk];
        gathered[action->chunk] += action->kind == ACTION_B || action->kind == ACTION_W;
        if (action->kind != ACTION_U)
            continue;
        schedule->copies[action->stage].gradients[of->count] += gathered[action->chunk];
        gathered[action->chunk] = 0;
        of->at[of->count++] = i;
    }
}

void copies_find(Schedule *schedule, PassTable *table, Arena *arena)
{
    schedule->asynchronous = false;
    table->updates = arena_array(arena, schedule->ranks, sizeof *table->updates);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        table->updates[r] = arena_array(arena, schedule->chunk_counts[r], sizeof **table->updates);
        for (uint32_t i = 0; i < order->count; i++)
            if (order->actions[i].kind == ACTION_U) {
                table->updates[r][order->actions[i].chunk].count++;
                schedule->asynchronous = true;
            }
    }
    place_copies(schedule, table, arena);
    for (uint32_t r = 0; r < schedule->ranks && schedule->asynchronous; r++)
        take_updates(schedule, r, table->updates[r], arena);
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
                table->updates[r][pass->chunk].at[pass->microbatch - 1] = i;
        }
}

void passes_take_sends(const Schedule *schedule, PassTable *table, Arena *arena)
{
    uint32_t **const from[] = {table->forward, table->backward};
    uint32_t ***const to[] = {&table->forward_sent, &table->backward_sent};
    for (int k = 0; k < 2; k++) {
        *to[k] = arena_array(arena, schedule->pipe_count, sizeof **to[k]);
        for (uint32_t p = 0; p < schedule->pipe_count; p++) {
            const size_t count = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches;
            (*to[k])[p] = arena_array(arena, count, sizeof *(*to[k])[p]);
            memcpy((*to[k])[p], from[k][p], count * sizeof *(*to[k])[p]);
        }
    }
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        uint32_t last = POSITION_NONE;
        for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
            const Action *action = &schedule->orders[r].actions[i];
            const bool forward = action->kind == ACTION_SEND_F;
            if (!action_is_message(action))
                last = i;
            else if (forward || action->kind == ACTION_SEND_B)
                (forward ? table->forward_sent : table->backward_sent)[action->pipe][pass_index(
                    &schedule->pipes[action->pipe], action->stage, action->microbatch)] = last;
        }
    }
}
