#include "compiler/prove/versions.h"

enum { TEXT = 48 };

/* The weights of a chunk, on the way through its rank's order. */
typedef struct Weights {
    uint32_t newest;     /* version */
    uint32_t gathered;   /* gradients that no U has taken */
    const Action *first; /* the backward pass that made the first of them */
    bool reported;       /* an F without its version: those that follow fail alike */
} Weights;

typedef struct Check {
    const Schedule *schedule;
    Diagnostics *diagnostics;
    uint32_t rank;
    Weights *chunks;
    bool good;
} Check;

/* Weight stashing (PipeDream, SOSP 2019, section 3.3) gives a microbatch the newest version at its F; a pipe may name another, as
   for vertical sync (the same section) or double buffering (PipeDream-2BW, ICML 2021, section 3). */
static void take_forward(Check *check, const Action *pass)
{
    const PlacedPipe *pipe = &check->schedule->pipes[pass->pipe];
    const Order *order = &check->schedule->orders[check->rank];
    Weights *weights = &check->chunks[pass->chunk];
    const uint32_t newest = weights->newest;
    if (!pipe->versions || pipe->versions[pass->microbatch] <= newest || weights->reported)
        return;
    weights->reported = true;
    const uint32_t wanted = pipe->versions[pass->microbatch];
    char here[TEXT];
    action_text(check->schedule, pass, here, sizeof here);
    check->good = false;
    diag_error(check->diagnostics, pass->span, "rank %u: %s is to use version %u of the weights, but only version %u is there",
               check->rank, here, wanted, newest);
    diag_note(check->diagnostics, pipe->version_span, "it says so here");
    for (const Action *later = pass; later < order->actions + order->count; later++)
        if (later->kind == ACTION_U && later->chunk == pass->chunk && later->microbatch == wanted) {
            char there[TEXT];
            action_text(check->schedule, later, there, sizeof there);
            diag_note(check->diagnostics, later->span, "%s, which makes that version, comes later in the order", there);
            return;
        }
    diag_help(check->diagnostics, "each U of the chunk makes one version; before the first there is version 0");
}

static void take_update(Check *check, const Action *update)
{
    Weights *weights = &check->chunks[update->chunk];
    char here[TEXT];
    action_text(check->schedule, update, here, sizeof here);
    if (!weights->gathered) {
        check->good = false;
        diag_error(check->diagnostics, update->span, "rank %u: %s has no gradient to take", check->rank, here);
        diag_help(check->diagnostics, "it takes what the B's or W's of its chunk since the last U have made");
    } else if (update->microbatch != weights->newest + 1) {
        check->good = false;
        diag_error(check->diagnostics, update->span, "rank %u: %s makes version %u", check->rank, here, weights->newest + 1);
        diag_help(check->diagnostics, "the U's of a stage are numbered from 1");
    }
    weights->newest++;
    weights->gathered = 0;
}

static void check_rank(Check *check, uint32_t chunks)
{
    const Order *order = &check->schedule->orders[check->rank];
    for (uint32_t i = 0; i < order->count; i++) {
        const Action *action = &order->actions[i];
        Weights *weights = &check->chunks[action->chunk];
        if (action->kind == ACTION_F)
            take_forward(check, action);
        if (action->kind == ACTION_U)
            take_update(check, action);
        if ((action->kind == ACTION_B || action->kind == ACTION_W) && weights->gathered++ == 0)
            weights->first = action;
    }
    for (uint32_t c = 0; c < chunks; c++) {
        const Weights *weights = &check->chunks[c];
        if (!weights->gathered)
            continue;
        char first[TEXT];
        action_text(check->schedule, weights->first, first, sizeof first);
        check->good = false;
        if (weights->gathered == 1)
            diag_error(check->diagnostics, weights->first->span, "rank %u: no U takes the gradient of %s", check->rank, first);
        else
            diag_error(check->diagnostics, weights->first->span, "rank %u: no U takes the gradients of %s and %u more", check->rank, first,
                       weights->gathered - 1);
        diag_help(check->diagnostics, "where weights are updated within the step a U must follow the last backward pass of every stage");
    }
}

static bool has_updates(const Schedule *schedule)
{
    for (uint32_t r = 0; r < schedule->ranks; r++)
        for (uint32_t i = 0; i < schedule->orders[r].count; i++)
            if (schedule->orders[r].actions[i].kind == ACTION_U)
                return true;
    return false;
}

bool versions_check(Schedule *schedule, Arena *arena, Diagnostics *diagnostics)
{
    Check check = {.schedule = schedule, .diagnostics = diagnostics, .good = true};
    schedule->asynchronous = has_updates(schedule);
    for (uint32_t p = 0; p < schedule->pipe_count && !schedule->asynchronous; p++)
        if (schedule->pipes[p].versions) {
            diag_error(diagnostics, schedule->pipes[p].version_span, "no rank ever makes another version of its weights");
            diag_help(diagnostics, "a U updates the weights of a stage within the step");
            return false;
        }
    if (!schedule->asynchronous)
        return true;
    if (schedule->pipe_count > 1 || schedule->pipes[0].replicated) {
        const bool several = schedule->pipe_count > 1;
        diag_error(diagnostics, schedule->pipes[several].span, "U updates one copy of a stage by itself, but here stages have several");
        diag_help(diagnostics, "a schedule that updates weights within the step has one pipe, each stage on one rank");
        return false;
    }
    for (check.rank = 0; check.rank < schedule->ranks; check.rank++) {
        const uint32_t chunks = schedule->chunk_counts[check.rank];
        check.chunks = arena_array(arena, chunks, sizeof *check.chunks);
        check_rank(&check, chunks);
    }
    return check.good;
}
