#pragma once

/* Whether an order with messages runs on the channels of a runtime. A rank posts the operations of its order one after
   the other, each to the end of a queue. It runs its passes in their order, each after the messages that the pass
   needs. A send starts after the passes before it in the order. A message is transferred when both its send and its
   receive are first in their queues. So sends and receives match by position, as in runtimes whose messages have no
   names. */

#include "compiler/schedule/passes.h"
#include "program/deadlock.h"

/* Which operations of a rank share a queue, from the strictest model to the weakest: an order that is safe under one is
   safe under all later ones. Without U the first two have the same verdicts: what a rank waits for are messages, and it
   waits for them in the order in which it posts them. */
typedef enum Channels {
    CHANNELS_RENDEZVOUS, /* all, passes too: a send waits for its receive, and the rank for its send */
    CHANNELS_RANK,       /* all messages of the rank */
    CHANNELS_PAIR,       /* messages to and from one other rank */
    CHANNELS_EDGE,       /* messages to one other rank; those from it share another queue */
    CHANNELS_KIND,       /* the same, activations and gradients in queues of their own */
    CHANNEL_MODELS
} Channels;

extern const char *const channel_names[CHANNEL_MODELS]; /* "rendezvous", ... */
/* What a user must have for each model, after "with" or "needs": "a communicator for each pair of ranks". */
extern const char *const channel_words[CHANNEL_MODELS];

typedef enum Safety { SAFE, SWAPS, DEADLOCKS } Safety;
extern const char *const safety_names[]; /* "safe", "swaps", "deadlocks" */

typedef struct ChannelVerdict {
    Safety safety;
    /* of SWAPS: the send (position `sent` of rank `sender`) and the receive (position `received` of rank `receiver`)
       that meet as message `number` of their channel, from 1, and are not of one message */
    uint32_t sender, sent, receiver, received, number;
    /* of DEADLOCKS: the shortest cycle. Positions are actions; a rank may be in the cycle with several queues */
    Deadlock deadlock;
} ChannelVerdict;

/* Judges the messages of orders that prove_messages has accepted. Swaps are found before deadlocks. The arena owns the
   cycle. Takes linear time if each rank has few neighbours. */
ChannelVerdict channels_judge(const Schedule *schedule, const PassTable *table, Channels channels, Arena *arena);

/* Judges under all models, [CHANNEL_MODELS]. Returns the strictest that is SAFE; CHANNEL_MODELS: none is. */
Channels channels_judge_all(const Schedule *schedule, const PassTable *table, Arena *arena, ChannelVerdict *verdicts);

/* The words of a verdict that is not SAFE, in the arena: the two messages, or the cycle. */
const char *channel_verdict_text(const Schedule *schedule, const ChannelVerdict *verdict, Arena *arena);

/* Like channels_judge, without a search for deadlocks: SAFE or SWAPS. */
ChannelVerdict channels_swap(const Schedule *schedule, const PassTable *table, Channels channels, Arena *arena);
