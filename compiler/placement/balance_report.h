#pragma once

/* The output of `dpc balance`. */

#include "balance/balance.h"

#include <stdio.h>

typedef struct BalancePlan {
    BalanceShape shape;
    bool eplb, from, distinct;
    uint32_t layers;
    const double *loads;       /* [layers][experts] */
    const uint32_t *before;    /* [layers][replicas] */
    const uint32_t *placement; /* [layers][replicas] */
    const LayerBalance *layer; /* [layers] */
    const LayerBalance *free;  /* [layers], with --distinct: of the placement that would be made without --distinct */
} BalancePlan;

void balance_put_text(const BalancePlan *plan, FILE *stream);
void balance_put_csv(const BalancePlan *plan, FILE *stream);
void balance_put_json(const BalancePlan *plan, Arena *arena, FILE *stream);

void balance_put_svg(const BalancePlan *plan, Arena *arena, FILE *stream);
