#include "compiler/prove/channels.h"
#include "compiler/prove/prove.h"

/* Proves that no rank waits forever. In prove_order a rank waits for passes, of other ranks or later in its own order,
   and for the U on the other copies of a stage; in prove_program also for the other ends of messages. */

enum { TEXT = 48 };

/* Reports the shortest deadlock cycle: one error, with a note for each further rank. The caller may add a help. */
static void report(const Schedule *schedule, const Deadlock *deadlock, Diagnostics *diagnostics)
{
    for (uint32_t i = 0; i < deadlock->cycle; i++) {
        const Wait *wait = &deadlock->waits[i];
        const Action *halted = &schedule->orders[wait->rank].actions[wait->at];
        char here[TEXT], there[TEXT];
        action_text(schedule, halted, here, sizeof here);
        action_text(schedule, &schedule->orders[wait->on].actions[wait->until], there, sizeof there);
        if (deadlock->cycle == 1)
            diag_error(diagnostics, halted->span,
                       "rank %u waits for itself: %s needs %s, which comes later in its order", wait->rank, here,
                       there);
        else if (i == 0)
            diag_error(diagnostics, halted->span,
                       "deadlock: %u ranks wait for each other: rank %u at %s waits for %s of rank %u", deadlock->cycle,
                       wait->rank, here, there, wait->on);
        else
            diag_note(diagnostics, halted->span, "rank %u at %s waits for %s of rank %u", wait->rank, here, there,
                      wait->on);
    }
}

/* --- the passes of the orders --- */

/* What a stopped rank waits for: the inputs of its pass, or of both halves of its F&B or F&F, or the U on the other
   copies of its stage. position[rank] is where each rank stopped. */
static WaitList *list_waits(const Schedule *schedule, const PassTable *table, const uint32_t *position, uint32_t rank,
                            Arena *arena)
{
    uint32_t at = position[rank];
    const Order *order = &schedule->orders[rank];
    const Action *pass = &order->actions[at];
    const uint32_t most = pass->kind == ACTION_U ? schedule->copies[pass->stage].count : 2;
    WaitList *list = arena_allocate(arena, sizeof *list);
    list->waits = arena_array(arena, most, sizeof *list->waits);
    Dependence there;
    for (uint32_t i = 0; pass_meets(schedule, table, pass, i, &there); i++)
        if (position[there.rank] < there.position)
            list->waits[list->count++] = (Wait){rank, at, there.rank, there.position};
    for (bool more = true; more && at < order->count; at++) {
        pass = &order->actions[at];
        if (action_is_message(pass))
            continue;
        if (pass_dependence(schedule, table, pass, &there) && position[there.rank] <= there.position)
            list->waits[list->count++] = (Wait){rank, at, there.rank, there.position};
        more = pass->overlap;
    }
    return list;
}

bool prove_order(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics,
                 Timeline *times)
{
    if (timeline_run(schedule, table, &costs_unit, arena, times))
        return true;
    Deadlock deadlock;
    WaitList **lists = arena_array(arena, schedule->ranks, sizeof *lists);
    for (uint32_t r = 0; r < schedule->ranks; r++)
        if (times->position[r] < schedule->orders[r].count)
            lists[r] = list_waits(schedule, table, times->position, r, arena);
    deadlock_cycle(lists, schedule->ranks, arena, &deadlock);
    report(schedule, &deadlock, diagnostics);
    diag_help(diagnostics, deadlock.cycle == 1
                               ? "the pass that is waited for must come earlier"
                               : "one of the passes that are waited for must come earlier in the order of its rank");
    return false;
}

/* --- the program --- */

Status prove_program(const Schedule *schedule, const PassTable *table, const Program *program, Arena *arena,
                     Diagnostics *diagnostics, Error *error)
{
    Deadlock of_program;
    const Status status = program_verify_deadlock(program, arena, &of_program, error);
    if (status == STATUS_OK || status == STATUS_NO_MEMORY)
        return status;
    ChannelVerdict verdicts[CHANNEL_MODELS];
    const Channels safe = channels_judge_all(schedule, table, arena, verdicts);
    if (verdicts[0].safety != DEADLOCKS) { /* a bug of dpc: reported here, before dprun fails */
        error_prefix(error, "internal error, the compiled program does not pass its verification: ");
        return status;
    }
    *error->text = 0;
    report(schedule, &verdicts[0].deadlock, diagnostics);
    if (safe < CHANNEL_MODELS)
        diag_help(diagnostics, "the order needs %s (%s in dpc check); dpc compiles only an order that runs without",
                  channel_words[safe], channel_names[safe]);
    diag_help(diagnostics,
              "move an action that is waited for to an earlier place in the order of its rank; or leave out all "
              "SEND and RECV: dpc then places them so that the order runs");
    return status;
}
