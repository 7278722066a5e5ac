/* Physical experts on the ranks of an expert group: counts their rows in every step, and after every N-th step but the
   last moves experts so that ranks get about the same number of rows (balance.h). All members of a group compute the
   same placement from the same counts, so nobody has to send it. */
#include "runtime/trainer/rank.h"

#include "balance/balance.h"

#include <setjmp.h>
#include <string.h>

/* A chunk's layer with experts. */
struct PlacedLayer {
    const BoundChunk *chunk;
    size_t index; /* the index of the layer among the chunk's layers with experts */
    ExpertCopies *copies;
    /* [experts] rows that each expert got in the whole group since the layer's experts were last placed */
    double *loads;
};

static uint32_t held(const Rank *rank, const PlacedLayer *layer)
{
    return layer->copies->physical / (uint32_t)rank->experts.members;
}

/* --- open --- */

static uint32_t count_layers(const Rank *rank)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        for (size_t i = 0; stage_copies(rank->chunks[c].stage, i); i++)
            count++;
    return count;
}

static bool find_layers(Rank *rank, Placing *placing)
{
    PlacedLayer *layer = placing->layers;
    ExpertCopies *copies;
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        for (size_t i = 0; (copies = stage_copies(rank->chunks[c].stage, i)); i++) {
            double *loads = rank_table(rank, copies->experts, sizeof *loads);
            *layer++ = (PlacedLayer){.chunk = &rank->chunks[c], .index = i, .copies = copies, .loads = loads};
            placing->physical = copies->physical;
            placing->expert_bytes = stage_expert_bytes(rank->chunks[c].stage);
            if (!loads)
                return false;
        }
    return true;
}

static uint32_t least_of(uint32_t one, uint32_t other) { return one < other ? one : other; }

Status placing_open(Rank *rank, Error *error)
{
    Placing *placing = &rank->placing;
    const RunOptions *options = rank->session->options;
    const uint32_t members = (uint32_t)rank->experts.members;
    placing->layer_count = count_layers(rank);
    if (!placing->layer_count)
        return STATUS_OK;
    placing->layers = rank_table(rank, placing->layer_count, sizeof *placing->layers);
    if (!placing->layers || !find_layers(rank, placing))
        return rank_no_tables(rank, error);
    const size_t counts = (size_t)placing->layer_count * placing->physical;
    placing->moves = options->moves ? least_of(options->moves, placing->physical) : placing->physical;
    placing->begins = rank_table(rank, 2 * ((size_t)members + 1), sizeof *placing->begins);
    placing->placement = rank_table(rank, placing->physical, sizeof *placing->placement);
    placing->sent = rank_table(rank, members * counts, sizeof *placing->sent);
    placing->received = rank_table(rank, members * counts, sizeof *placing->received);
    bool good = placing->begins && placing->placement && placing->sent && placing->received;
    if (options->rebalance) {
        placing->outgoing = rank_table(rank, least_of(members - 1, placing->moves), placing->expert_bytes);
        placing->incoming =
            rank_table(rank, least_of(placing->physical / members, placing->moves), placing->expert_bytes);
        good &= placing->outgoing && placing->incoming;
    }
    return good ? STATUS_OK : rank_no_tables(rank, error);
}

/* --- counting --- */

/* An all-to-all in the group; placing->begins has the offsets. */
static Status exchange(Rank *rank, const void *send, void *receive, Error *error)
{
    const ExpertGroup *group = &rank->experts;
    AllToAll pieces = {.send = send,
                       .receive = receive,
                       .send_begins = rank->placing.begins,
                       .receive_begins = rank->placing.begins + group->members + 1};
    TRY(group->post(group->context, &pieces, error));
    return group->wait(group->context, &pieces, error);
}

/* Sends the counts of this member to all members; received[0] becomes the sum over the group. */
static Status sum_counts(Rank *rank, Error *error)
{
    Placing *placing = &rank->placing;
    const size_t members = (size_t)rank->experts.members, counts = (size_t)placing->layer_count * placing->physical;
    for (uint32_t l = 0; l < placing->layer_count; l++) {
        ExpertCopies *copies = placing->layers[l].copies;
        memcpy(placing->sent + (size_t)l * placing->physical, copies->rows, placing->physical * sizeof *copies->rows);
        memset(copies->rows, 0, placing->physical * sizeof *copies->rows);
    }
    for (size_t m = 1; m < members; m++)
        memcpy(placing->sent + m * counts, placing->sent, counts * sizeof *placing->sent);
    for (size_t m = 0; m <= members; m++)
        placing->begins[m] = placing->begins[members + 1 + m] = m * counts * sizeof *placing->sent;
    TRY(exchange(rank, placing->sent, placing->received, error));
    for (size_t i = counts; i < members * counts; i++)
        placing->received[i % counts] += placing->received[i];
    return STATUS_OK;
}

/* Adds the rows of a layer's physical experts to the loads of the experts, and to what the step reports. */
static void add_counts(Rank *rank, PlacedLayer *layer, const uint32_t *rows)
{
    PlacingRecord *record = &rank->records.own->placing;
    const uint32_t each = held(rank, layer);
    double largest = 0, all = 0;
    for (int m = 0; m < rank->experts.members; m++) {
        double load = 0;
        for (uint32_t p = (uint32_t)m * each; p < ((uint32_t)m + 1) * each; p++) {
            layer->loads[layer->copies->expert[p]] += rows[p];
            load += rows[p];
        }
        all += load;
        largest = load > largest ? load : largest;
    }
    const double over = all > 0 ? largest * rank->experts.members / all : 1;
    record->layers++;
    record->loads += over;
    record->worst_load = fmax(record->worst_load, over);
}

/* --- placing anew --- */

static Status find_placement(const Rank *rank, const PlacedLayer *layer, uint32_t *placement, Arena *arena,
                             Error *error)
{
    jmp_buf exhausted;
    double bound;
    const BalanceShape shape = {.experts = layer->copies->experts,
                                .replicas = layer->copies->physical,
                                .gpus = (uint32_t)rank->experts.members,
                                .groups = 1,
                                .nodes = 1};
    const BalanceRequest request = {.distinct = true, .from = layer->copies->expert, .moves = rank->placing.moves};
    arena->exhausted = &exhausted;
    if (setjmp(exhausted))
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory to place experts", rank_name(rank).text);
    return balance_best(&shape, &request, layer->loads, placement, &bound, arena, error);
}

/* Finds the physical experts of the member that the new placement changes. Returns the one with index `round` among
   them; if fewer change, the number of physical experts of the layer. */
static uint32_t changed(const Rank *rank, const PlacedLayer *layer, int member, uint32_t round)
{
    const uint32_t each = held(rank, layer);
    for (uint32_t p = (uint32_t)member * each; p < ((uint32_t)member + 1) * each; p++)
        if (rank->placing.placement[p] != layer->copies->expert[p] && round-- == 0)
            return p;
    return layer->copies->physical;
}

/* From which of an expert's present copies a member gets the weights. Members choose the copies in turn, so that the
   owners of the copies share the sending. */
static uint32_t source_of(const ExpertCopies *copies, uint32_t expert, int member)
{
    const uint32_t first = copies->begins[expert], count = copies->begins[expert + 1] - first;
    return copies->copies[first + (uint32_t)member % count];
}

/* Plans a round, in which each member gets at most one expert, and packs the weights that this member sends. Adds to
   *moved how many experts move. */
static Status pack_round(Rank *rank, const PlacedLayer *layer, uint32_t round, uint32_t *moved, Error *error)
{
    Placing *placing = &rank->placing;
    const uint32_t each = held(rank, layer), self = (uint32_t)rank->experts.self;
    size_t *send = placing->begins, *receive = placing->begins + rank->experts.members + 1;
    uint32_t from = UINT32_MAX; /* the member that sends to this one; UINT32_MAX: none */
    send[0] = receive[0] = 0;
    for (int m = 0; m < rank->experts.members; m++) {
        const uint32_t to = changed(rank, layer, m, round);
        send[m + 1] = send[m];
        if (to == layer->copies->physical)
            continue;
        const uint32_t source = source_of(layer->copies, placing->placement[to], m);
        ++*moved;
        if ((uint32_t)m == self)
            from = source / each;
        if (source / each != self)
            continue;
        TRY(stage_copy_expert(layer->chunk->stage, layer->index, source % each, layer->chunk->weights.parameters,
                              placing->outgoing + send[m], true, error));
        send[m + 1] += placing->expert_bytes;
    }
    for (uint32_t m = 0; m < (uint32_t)rank->experts.members; m++)
        receive[m + 1] = receive[m] + (m == from ? placing->expert_bytes : 0);
    return STATUS_OK;
}

/* Moves the weights of a layer. A member overwrites its old experts only after all rounds, when all its new experts
   have arrived: until then other members may still need the old ones. */
static Status move_experts(Rank *rank, const PlacedLayer *layer, uint32_t *moved, Error *error)
{
    Placing *placing = &rank->placing;
    uint32_t before, to;
    uint32_t round = 0;
    do {
        before = *moved;
        TRY(pack_round(rank, layer, round, moved, error));
        if (*moved > before)
            TRY(exchange(rank, placing->outgoing, placing->incoming + round * placing->expert_bytes, error));
        round++;
    } while (*moved > before);
    for (round = 0; (to = changed(rank, layer, rank->experts.self, round)) < layer->copies->physical; round++)
        TRY(stage_copy_expert(layer->chunk->stage, layer->index, to % held(rank, layer),
                              layer->chunk->weights.parameters, placing->incoming + round * placing->expert_bytes,
                              false, error));
    group_place_copies(layer->copies, placing->placement);
    return STATUS_OK;
}

static Status place_anew(Rank *rank, PlacedLayer *layer, uint32_t *moved, Error *error)
{
    Arena arena = {0};
    const Status found = find_placement(rank, layer, rank->placing.placement, &arena, error);
    arena_free(&arena);
    TRY(found);
    memset(layer->loads, 0, layer->copies->experts * sizeof *layer->loads);
    return move_experts(rank, layer, moved, error);
}

Status placing_step(Rank *rank, Error *error)
{
    Placing *placing = &rank->placing;
    const RunOptions *options = rank->session->options;
    PlacingRecord *record = &rank->records.own->placing;
    uint32_t moved = 0;
    *record = (PlacingRecord){0};
    if (!placing->layer_count)
        return STATUS_OK;
    record->placed = options->rebalance && rank->step % options->rebalance == 0 && rank->step < options->steps;
    TRY(sum_counts(rank, error));
    for (uint32_t l = 0; l < placing->layer_count; l++) {
        add_counts(rank, &placing->layers[l], placing->received + (size_t)l * placing->physical);
        if (record->placed)
            TRY(place_anew(rank, &placing->layers[l], &moved, error));
    }
    record->moved = rank->experts.self == 0 ? moved : 0;
    return STATUS_OK;
}
