#include "compiler/prove/prove.h"

enum { TEXT = 48 };

/* The state of a chunk's weights while the order of its rank is checked. */
typedef struct Weights {
    uint32_t newest;     /* the newest version so far; 0: the weights at the beginning of the step */
    uint32_t gathered;   /* number of gradients computed since the last U */
    const Action *first; /* the backward pass that computed the first of these gradients */
    bool reported;       /* an F whose version does not exist was reported; the next F would fail for the same reason */
} Weights;

typedef struct Check {
    const Schedule *schedule;
    const PassTable *table;
    Diagnostics *diagnostics;
    uint32_t rank;
    Weights *chunks;
    bool good;
} Check;

/* Checks that the version of the weights that an F uses exists when the F runs. If its pipe names no versions, a
   microbatch uses the newest one, which always exists (weight stashing; PipeDream, SOSP 2019, section 3.3). If the pipe
   names versions, as for vertical sync (the same section) or double buffering (PipeDream-2BW, ICML 2021, section 3),
   the named one may not exist yet. */
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
    diag_pass_error(check->diagnostics, pass->span,
                    "rank %u: %s uses version %u of the weights, but the newest at that point is version %u",
                    check->rank, here, wanted, newest);
    diag_note(check->diagnostics, pipe->version_span, "the version is given here");
    for (const Action *later = pass; later < order->actions + order->count; later++)
        if (later->kind == ACTION_U && later->chunk == pass->chunk && later->microbatch == wanted) {
            char there[TEXT];
            action_text(check->schedule, later, there, sizeof there);
            diag_note(check->diagnostics, later->span, "%s, which makes that version, comes later in the order", there);
            diag_help(check->diagnostics, "let the microbatch use an older version, or write the U earlier");
            return;
        }
    diag_help(check->diagnostics, "each U of the chunk makes one version; before the first there is version 0");
}

static void report_no_gradient(Check *check, uint32_t rank, const Action *update)
{
    const bool copies = check->schedule->copies[update->stage].count > 1;
    char here[TEXT];
    action_text(check->schedule, update, here, sizeof here);
    check->good = false;
    diag_pass_error(check->diagnostics, update->span, "rank %u: %s has no gradient to use", rank, here);
    diag_help(check->diagnostics,
              copies ? "a U uses the gradients of the B's or W's since the U before it, on all copies of the stage"
                     : "a U uses the gradients of its chunk's B's or W's since the U before it");
}

static void take_update(Check *check, const Action *update)
{
    Weights *weights = &check->chunks[update->chunk];
    if (!weights->gathered && check->schedule->copies[update->stage].count == 1) {
        report_no_gradient(check, check->rank, update);
    } else if (update->microbatch != weights->newest + 1) {
        char here[TEXT];
        action_text(check->schedule, update, here, sizeof here);
        check->good = false;
        diag_error(check->diagnostics, update->span,
                   "rank %u: %s makes version %u of the weights, so its number must be %u", check->rank, here,
                   weights->newest + 1, weights->newest + 1);
        diag_help(check->diagnostics, "the U's of a stage are numbered 1, 2, 3, ... in their order");
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
            diag_pass_error(check->diagnostics, weights->first->span, "rank %u: no U uses the gradient of %s",
                            check->rank, first);
        else
            diag_pass_error(check->diagnostics, weights->first->span,
                            "rank %u: no U uses the gradients of %s and %u more", check->rank, first,
                            weights->gathered - 1);
        diag_help(
            check->diagnostics,
            "if a U updates weights within the training step, a U must follow the last backward pass of every stage");
    }
}

/* --- copies of a stage: they make each version together --- */

/* The U of the chunk that makes version `version`; NULL: the chunk has no such U, as for version 0, the initial
   weights. */
static const Action *update_of(const Check *check, Home home, uint32_t version)
{
    const Updates *updates = &check->table->updates[home.rank][home.chunk];
    return version && version <= updates->count ? &check->schedule->orders[home.rank].actions[updates->at[version - 1]]
                                                : NULL;
}

/* Checks that every version has a U on each copy of the stage, and a gradient on at least one. A copy without the U
   would keep older weights, or the others would wait for it forever. The gradients of a replicated stage are summed
   before each update (SOSP 2019, section 4). */
static void check_copies(Check *check, uint32_t stage)
{
    const Schedule *schedule = check->schedule;
    const Copies *copies = &schedule->copies[stage];
    Updates *const *updates = check->table->updates;
    Home most = copies->homes[0], fewest = most;
    for (uint32_t i = 1; i < copies->count; i++) {
        const Home home = copies->homes[i];
        const uint32_t count = updates[home.rank][home.chunk].count;
        most = count > updates[most.rank][most.chunk].count ? home : most;
        fewest = count < updates[fewest.rank][fewest.chunk].count ? home : fewest;
    }
    const uint32_t versions = updates[fewest.rank][fewest.chunk].count;
    if (updates[most.rank][most.chunk].count != versions) {
        const Action *alone = update_of(check, most, versions + 1), *last = update_of(check, fewest, versions);
        char here[TEXT], there[TEXT];
        action_text(schedule, alone, here, sizeof here);
        check->good = false;
        diag_error(check->diagnostics, alone->span,
                   "rank %u: %s makes version %u of the weights of stage %u, but the copy of this stage on rank %u has "
                   "no U that makes it",
                   most.rank, here, versions + 1, stage, fewest.rank);
        if (last) {
            action_text(schedule, last, there, sizeof there);
            diag_note(check->diagnostics, last->span, "%s is the last U of stage %u on rank %u", there, stage,
                      fewest.rank);
        }
        diag_help(
            check->diagnostics,
            "the copies of a stage make each version together: each needs a U, even one that has no new gradient");
        return;
    }
    for (uint32_t k = 0; k < versions && copies->count > 1; k++)
        if (!copies->gradients[k])
            report_no_gradient(check, copies->homes[0].rank, update_of(check, copies->homes[0], k + 1));
}

/* Checks that all pipes name versions of the weights or none does: program_reference makes one pipe of all of them, in
   which either every microbatch names a version or none does. False: it reported an error. */
static bool pipes_agree(const Schedule *schedule, Diagnostics *diagnostics)
{
    const PlacedPipe *named = NULL, *other = NULL;
    for (uint32_t p = 0; p < schedule->pipe_count; p++)
        *(schedule->pipes[p].versions ? &named : &other) = &schedule->pipes[p];
    if (!named || !other)
        return true;
    diag_error(diagnostics, other->span,
               "pipe %s does not say which version of the weights its microbatches use, but pipe %s does", other->name,
               named->name);
    diag_note(diagnostics, named->version_span, "as here");
    diag_help(diagnostics, "either all pipes name versions or none");
    return false;
}

bool prove_versions(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics)
{
    Check check = {.schedule = schedule, .table = table, .diagnostics = diagnostics, .good = true};
    for (uint32_t p = 0; p < schedule->pipe_count && !schedule->asynchronous; p++)
        if (schedule->pipes[p].versions) {
            diag_error(diagnostics, schedule->pipes[p].version_span,
                       "a version of the weights is named here, but no rank has a U, which makes new versions");
            diag_help(diagnostics, "write a U, which makes a new version of a stage's weights, or name no versions");
            return false;
        }
    if (!schedule->asynchronous)
        return true;
    if (!pipes_agree(schedule, diagnostics))
        return false;
    for (check.rank = 0; check.rank < schedule->ranks; check.rank++) {
        const uint32_t chunks = schedule->chunk_counts[check.rank];
        check.chunks = arena_array(arena, chunks, sizeof *check.chunks);
        check_rank(&check, chunks);
    }
    for (uint32_t s = 0; s < schedule->pipes[0].stages && check.good; s++)
        check_copies(&check, s);
    return check.good;
}
