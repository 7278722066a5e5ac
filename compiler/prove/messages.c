#include "compiler/prove/channels.h"
#include "compiler/prove/prove.h"

enum { TEXT = 48 };

/* The text of an action. A function returns it by value, so one call of diag_error can print several actions. */
typedef struct ActionText {
    char text[TEXT];
} ActionText;

static ActionText text_of(const Schedule *schedule, const Action *action)
{
    ActionText made;
    action_text(schedule, action, made.text, sizeof made.text);
    return made;
}
#define TEXT_OF(action) text_of(schedule, action).text

/* --- messages --- */

/* For each message, the positions of its SEND and its RECV in the orders of their ranks. */
typedef struct MessageTable {
    /* [0: activations, 1: gradients][pipe][pass_index of the pass that computes the value of the message]: position of
       the SEND or RECV; POSITION_NONE: none yet */
    uint32_t **sent[2], **received[2];
} MessageTable;

/* The stage that computes the value of a message, and the stage that needs it. False: one of them is not a stage of the
   pipe. */
static bool message_stages(const PlacedPipe *pipe, const Action *message, uint32_t *producer, uint32_t *consumer)
{
    const uint32_t other = (uint32_t)action_other_stage(message);
    if (message->stage >= pipe->stages || other >= pipe->stages)
        return false;
    *producer = action_is_send(message) ? message->stage : other;
    *consumer = action_is_send(message) ? other : message->stage;
    return true;
}

static uint32_t *message_entry(const Schedule *schedule, const MessageTable *messages, const Action *message)
{
    const PlacedPipe *pipe = &schedule->pipes[message->pipe];
    uint32_t producer, consumer;
    if (!message_stages(pipe, message, &producer, &consumer))
        return NULL;
    uint32_t **of = action_is_send(message) ? messages->sent[action_is_gradient(message)]
                                            : messages->received[action_is_gradient(message)];
    return &of[message->pipe][pass_index(pipe, producer, message->microbatch)];
}

/* Checks that the stages and the microbatch of a message exist, that its stage is on this rank and its other end on
   another rank, that the rank has the message once, and that a SEND comes after the pass that computes the value and a
   RECV before the pass that needs it. False: it reported an error. */
static bool check_message(const Schedule *schedule, const PassTable *table, MessageTable *messages, uint32_t rank,
                          uint32_t position, Diagnostics *diagnostics)
{
    const Action *message = &schedule->orders[rank].actions[position];
    const PlacedPipe *pipe = &schedule->pipes[message->pipe];
    uint32_t producer = 0, consumer = 0;
    if (!message_stages(pipe, message, &producer, &consumer) || message->microbatch >= pipe->microbatches) {
        diag_error(diagnostics, message->span, "rank %u: %s has no other end: stages are 0..%u, microbatches 0..%u",
                   rank, TEXT_OF(message), pipe->stages - 1, pipe->microbatches - 1);
        diag_help(diagnostics,
                  "a message is named by the stage that it leaves or comes to: what 0SEND_F0 sends is 1RECV_F0");
        return false;
    }
    const uint32_t home = stage_home(pipe, message->stage, message->microbatch).rank;
    if (home != rank) {
        diag_error(diagnostics, message->span, "rank %u has %s, but stage %u%s is on rank %u", rank, TEXT_OF(message),
                   message->stage, pipe->replicated ? " for this microbatch" : "", home);
        return false;
    }
    const uint32_t other = action_is_send(message) ? consumer : producer;
    if (stage_home(pipe, other, message->microbatch).rank == rank) {
        diag_error(diagnostics, message->span, "rank %u has %s, but stage %u is on this rank too: remove the message",
                   rank, TEXT_OF(message), other);
        return false;
    }
    uint32_t *entry = message_entry(schedule, messages, message);
    if (*entry != POSITION_NONE) {
        diag_error(diagnostics, message->span, "rank %u has %s twice", rank, TEXT_OF(message));
        diag_note(diagnostics, schedule->orders[rank].actions[*entry].span, "the first is here");
        return false;
    }
    *entry = position;
    const size_t mine = pass_index(pipe, message->stage, message->microbatch);
    const uint32_t pass = (action_is_gradient(message) ? table->backward : table->forward)[message->pipe][mine];
    if (pass == POSITION_NONE) {
        diag_error(diagnostics, message->span, "rank %u has %s, but the order has no backwards", rank,
                   TEXT_OF(message));
        diag_help(diagnostics, "remove the messages of gradients, or add the backwards");
        return false;
    }
    if (action_is_send(message) ? position < pass : position > pass) {
        diag_error(diagnostics, message->span,
                   action_is_send(message) ? "rank %u: %s sends the result of %s, which comes later"
                                           : "rank %u: %s comes after %s, which needs it",
                   rank, TEXT_OF(message), TEXT_OF(&schedule->orders[rank].actions[pass]));
        return false;
    }
    return true;
}

/* Checks that the order has the RECV of the input of a pass and the SEND of its result, if these come from or go to
   another rank. False: it reported an error. */
static bool check_pass(const Schedule *schedule, const MessageTable *messages, uint32_t rank, const Action *pass,
                       Diagnostics *diagnostics)
{
    const PlacedPipe *pipe = &schedule->pipes[pass->pipe];
    const uint8_t kinds[2] = {pass->kind == ACTION_F ? ACTION_RECV_F : ACTION_RECV_B,
                              pass->kind == ACTION_F ? ACTION_SEND_F : ACTION_SEND_B};
    bool good = true;
    for (int i = 0; i < 2; i++) {
        Action message = *pass;
        message.kind = kinds[i];
        uint32_t producer, consumer;
        if (pass->kind == ACTION_W || pass->kind == ACTION_U || !message_stages(pipe, &message, &producer, &consumer) ||
            stage_home(pipe, producer, pass->microbatch).rank == stage_home(pipe, consumer, pass->microbatch).rank ||
            *message_entry(schedule, messages, &message) != POSITION_NONE)
            continue;
        char here[TEXT], missing[TEXT];
        action_text(schedule, pass, here, sizeof here);
        action_text(schedule, &message, missing, sizeof missing);
        const bool first = !diag_failed(diagnostics);
        diag_error(diagnostics, pass->span, "rank %u: the order has %s, but not its message %s", rank, here, missing);
        if (first)
            diag_help(diagnostics, "write all messages, or none: dpc adds them to an order that has no SEND and RECV");
        good = false;
    }
    return good;
}

/* Fills in the other ends of all messages, and the RECVs of the passes. */
static void take_ends(const Schedule *schedule, const MessageTable *messages, PassTable *table, Arena *arena)
{
    table->ends = arena_array(arena, schedule->ranks, sizeof *table->ends);
    for (uint32_t r = 0; r < schedule->ranks; r++) {
        const Order *order = &schedule->orders[r];
        table->ends[r] = arena_array(arena, order->count, sizeof **table->ends);
        for (uint32_t i = 0; i < order->count; i++) {
            Action end = order->actions[i]; /* the message that is looked for */
            if (action_is_message(&end)) {
                end.stage = (uint16_t)action_other_stage(&end);
                end.kind = action_is_send(&end) ? (uint8_t)(end.kind + 1) : (uint8_t)(end.kind - 1);
            } else {
                end.kind = end.kind == ACTION_F ? ACTION_RECV_F : ACTION_RECV_B;
            }
            const bool receives = order->actions[i].kind != ACTION_W && order->actions[i].kind != ACTION_U;
            const uint32_t *position = receives ? message_entry(schedule, messages, &end) : NULL;
            table->ends[r][i] = position ? *position : POSITION_NONE;
        }
    }
}

bool prove_messages(const Schedule *schedule, PassTable *table, Arena *arena, Diagnostics *diagnostics)
{
    MessageTable messages;
    for (int gradient = 0; gradient < 2; gradient++) {
        uint32_t ***of[] = {&messages.sent[gradient], &messages.received[gradient]};
        for (int k = 0; k < 2; k++) {
            *of[k] = arena_array(arena, schedule->pipe_count, sizeof **of[k]);
            for (uint32_t p = 0; p < schedule->pipe_count; p++) {
                const size_t count = (size_t)schedule->pipes[p].stages * schedule->pipes[p].microbatches;
                (*of[k])[p] = arena_array(arena, count, sizeof ***of[k]);
                for (size_t i = 0; i < count; i++)
                    (*of[k])[p][i] = POSITION_NONE;
            }
        }
    }
    bool good = true;
    for (int passes = 0; passes < 2; passes++)
        for (uint32_t r = 0; r < schedule->ranks; r++)
            for (uint32_t i = 0; i < schedule->orders[r].count; i++) {
                const Action *action = &schedule->orders[r].actions[i];
                if (!passes && action_is_message(action))
                    good = check_message(schedule, table, &messages, r, i, diagnostics) && good;
                else if (passes && !action_is_message(action))
                    good = check_pass(schedule, &messages, r, action, diagnostics) && good;
            }
    if (good)
        take_ends(schedule, &messages, table, arena);
    return good;
}

bool prove_channels(const Schedule *schedule, const PassTable *table, Arena *arena, Diagnostics *diagnostics)
{
    const ChannelVerdict swap = channels_swap(schedule, table, CHANNELS_EDGE, arena);
    if (swap.safety == SAFE)
        return true;
    const Action *sent = &schedule->orders[swap.sender].actions[swap.sent];
    diag_error(diagnostics, schedule->orders[swap.receiver].actions[swap.received].span, "%s",
               channel_verdict_text(schedule, &swap, arena));
    diag_note(diagnostics, sent->span, "%s is here", TEXT_OF(sent));
    diag_help(diagnostics, "messages from one rank to another arrive in the order in which they are sent");
    return false;
}
