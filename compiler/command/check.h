#pragma once

/* dpc check: under which channels an order with messages is safe. */

#include "compiler/command/options.h"
#include "compiler/prove/channels.h"

typedef struct CheckedOrder {
    const char *path;
    const Schedule *schedule;
    /* why the order is wrong under any channels; NULL: it has verdicts */
    const char *refused;
    ChannelVerdict verdicts[CHANNEL_MODELS];
    Channels weakest;  /* the strictest model that is SAFE; CHANNEL_MODELS: none is */
    SweepResult swept; /* with --sweep: dpc places the messages, so what is proven is safe under all models */
} CheckedOrder;

/* Checks each input: fills in orders[options->trials.input_count]. With --sweep, prints each sweep on `sweeps`, and its
   failures and a progress bar on `errors`; NULL: prints nothing. STATUS_BAD_INPUT: a file cannot be read. */
Status check_orders(const Options *options, Arena *arena, FILE *sweeps, FILE *errors, CheckedOrder *orders,
                    Error *error);

/* Whether no order is refused, and all are safe under the model that is asked for; without one: under any model. */
bool check_is_safe(const Options *options, const CheckedOrder *orders);

void check_put_text(const Options *options, const CheckedOrder *orders, Arena *arena, FILE *stream);
void check_put_json(const Options *options, const CheckedOrder *orders, Arena *arena, FILE *stream);
