#include "compiler/prove/prove.h"

#include "program/deadlock.h"

/* Proves that no rank waits forever. In prove_order a rank waits for passes, of other ranks or later in its own order,
   and for the U on the other copies of a stage; in prove_program it waits for the other ends of messages and for these
   U. */

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

/* The position, in the rank's order, of the message or U from which instruction `at` was made. (A rank waits only at
   messages and U.) A message becomes one instruction; a U becomes several, the last of which is ASYNC_UPDATE. The
   program has messages and U in the same sequence as the order, so counting them finds the action. Returns the order's
   count if the order has too few. */
static uint32_t action_of(const Schedule *schedule, const Program *program, uint32_t rank, uint32_t at)
{
    const Order *order = &schedule->orders[rank];
    uint32_t halts = 0, position = 0;
    for (uint32_t i = 0; i < at && i < program->ranks[rank].instruction_count; i++) {
        const uint8_t opcode = program->ranks[rank].instructions[i].opcode;
        halts += opcode_is_post(opcode) || opcode == OP_ASYNC_UPDATE;
    }
    for (; position < order->count; position++) {
        const Action *action = &order->actions[position];
        if (action->kind >= ACTION_U && halts-- == 0)
            break;
    }
    return position;
}

/* Replaces the instructions of the deadlock cycle by the actions that they were made from. False: there is no cycle, or
   action_of finds no action for an instruction. */
static bool find_actions(const Schedule *schedule, const Program *program, Deadlock *deadlock)
{
    bool good = deadlock->cycle > 0;
    for (uint32_t i = 0; i < deadlock->cycle; i++) {
        Wait *wait = &deadlock->waits[i];
        wait->at = action_of(schedule, program, wait->rank, wait->at);
        wait->until = action_of(schedule, program, wait->on, wait->until);
        good = good && wait->at < schedule->orders[wait->rank].count && wait->until < schedule->orders[wait->on].count;
    }
    return good;
}

Status prove_program(const Schedule *schedule, const Program *program, Arena *arena, Diagnostics *diagnostics,
                     Error *error)
{
    Deadlock deadlock;
    const Status status = program_verify_deadlock(program, arena, &deadlock, error);
    if (status == STATUS_OK)
        return status;
    /* the failure is a bug of dpc: reported here, before dprun fails */
    if (!find_actions(schedule, program, &deadlock)) {
        error_prefix(error, "internal error, the compiled program does not pass its verification: ");
        return status;
    }
    *error->text = 0;
    report(schedule, &deadlock, diagnostics);
    if (deadlock.runs_buffered)
        diag_help(diagnostics,
                  "the order would run if each link buffered one message, but a transport need not have buffers: "
                  "dpc accepts only an order that runs without them");
    diag_help(diagnostics,
              "move an action that is waited for to an earlier place in the order of its rank; or leave out all "
              "SEND and RECV: dpc then places them so that the order runs");
    return status;
}
