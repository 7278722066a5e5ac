#pragma once

/* The costs of --cost F=...,I=...,W=...,comm=... */

#include "program/times/costs.h"

static inline Costs costs_of(double forward, double input, double weight, double latency)
{
    Costs costs = costs_unit;
    costs.all[COST_F] = forward;
    costs.all[COST_I] = input;
    costs.all[COST_W] = weight;
    costs.latency = latency;
    return costs;
}
