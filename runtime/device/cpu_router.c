/* Routing on the CPU: which experts a token chooses and with which gates, and the rows that each expert gets. */

#include "runtime/device/cpu.h"

#include <math.h>
#include <string.h>

static const float least_sum = 1e-20f; /* added to sums of scores, as in DeepSeek-V3, so that gates stay finite */

size_t cpu_router_scratch(const KernelShape *shape) { return 4 * (size_t)shape->routing.experts; }

/* Arrays with a number for each expert, in the device's scratch memory. */
typedef struct Scratch {
    float *scores, *biased; /* of a token; biased: scores + bias, in route_backward the gradients of the scores */
    /* of a sequence: how often the expert was chosen; the sum of its normalised scores over the tokens */
    float *counts, *shares;
} Scratch;

static Scratch scratch_of(Device *device, size_t experts)
{
    float *memory = ((CpuDevice *)device)->scratch.memory;
    return (Scratch){memory, memory + experts, memory + 2 * experts, memory + 3 * experts};
}

static void softmax(size_t count, const float *logits, float *scores)
{
    float largest = logits[0], sum = 0;
    for (size_t i = 1; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (size_t i = 0; i < count; i++)
        sum += scores[i] = expf(logits[i] - largest);
    for (size_t i = 0; i < count; i++)
        scores[i] /= sum;
}

static void score(const Routing *routing, const float *logits, float *scores)
{
    if (routing->softmax)
        softmax(routing->experts, logits, scores);
    else
        for (size_t i = 0; i < routing->experts; i++)
            scores[i] = 1 / (1 + expf(-logits[i]));
}

static float sum_of(size_t count, const float *values)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* The index of the first largest value; NaN counts as the smallest. If all values are NaN, the last index. */
static size_t largest_of(size_t count, const float *values)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[best] || isnan(values[best]))
            best = i;
    return best;
}

/* The sum of the two largest values, or the only value. */
static float sum_of_two_best(size_t count, const float *values)
{
    const size_t best = largest_of(count, values);
    float second = count > 1 ? -INFINITY : 0;
    for (size_t i = 0; i < count; i++)
        if (i != best && values[i] > second)
            second = values[i];
    return values[best] + second;
}

static void keep_best_groups(const Routing *routing, float *biased)
{
    const size_t size = routing->experts / routing->groups;
    bool kept[ROUTING_GROUPS_MOST] = {false};
    float sums[ROUTING_GROUPS_MOST];
    for (size_t g = 0; g < routing->groups; g++)
        sums[g] = sum_of_two_best(size, biased + g * size);
    for (size_t n = 0; n < routing->best_groups; n++) {
        const size_t best = largest_of(routing->groups, sums);
        kept[best] = true;
        sums[best] = -INFINITY;
    }
    for (size_t i = 0; i < routing->experts; i++)
        if (!kept[i / size])
            biased[i] = -INFINITY;
}

static void choose(const Routing *routing, float *biased, int32_t *chosen)
{
    if (routing->groups > 1)
        keep_best_groups(routing, biased);
    for (size_t j = 0; j < routing->chosen; j++) {
        const size_t best = largest_of(routing->experts, biased);
        chosen[j] = (int32_t)best;
        biased[best] = -INFINITY;
    }
}

static float sum_of_chosen(const Routing *routing, const float *scores, const int32_t *chosen)
{
    float sum = least_sum;
    for (size_t j = 0; j < routing->chosen; j++)
        sum += scores[chosen[j]];
    return sum;
}

/* Routes one token, and adds it to the counts and shares of its sequence. */
static void route_token(const Routing *routing, Scratch s, const float *logits, const float *bias, int32_t *chosen,
                        float *gates)
{
    score(routing, logits, s.scores);
    for (size_t i = 0; i < routing->experts; i++)
        s.biased[i] = s.scores[i] + bias[i];
    choose(routing, s.biased, chosen);
    const float factor = (float)routing->factor / sum_of_chosen(routing, s.scores, chosen);
    for (size_t j = 0; j < routing->chosen; j++) {
        gates[j] = s.scores[chosen[j]] * factor;
        s.counts[chosen[j]]++;
    }
    const float sum = sum_of(routing->experts, s.scores) + least_sum;
    for (size_t i = 0; i < routing->experts; i++)
        s.shares[i] += s.scores[i] / sum;
}

/* The factor of counts[i] shares[i] in the balance loss of a sequence: N / (K S) for the count, and 1 / S to make a
   mean of the sum of shares. N: experts; K: experts per token; S: tokens of the sequence. */
static float worth(const KernelShape *shape)
{
    const float sequence = (float)shape->sequence;
    return (float)shape->routing.experts / ((float)shape->routing.chosen * sequence * sequence);
}

CPU(route)
{
    const KernelShape *shape = &op->kernel->shape;
    const Routing *routing = &shape->routing;
    const size_t experts = routing->experts, k = routing->chosen;
    const Scratch s = scratch_of(device, experts);
    float total = 0;
    for (size_t row = 0; row < shape->rows; row += shape->sequence) {
        memset(s.counts, 0, 2 * experts * sizeof *s.counts); /* also zeroes shares, which come after counts */
        for (size_t t = row; t < row + shape->sequence; t++)
            route_token(routing, s, (const float *)o->logits + t * experts, o->bias, o->chosen + t * k,
                        (float *)o->gates + t * k);
        for (size_t i = 0; i < experts; i++)
            total += s.counts[i] * s.shares[i];
    }
    *(float *)o->balance = (float)op->scale * total * worth(shape) / (float)(shape->rows / shape->sequence);
    return STATUS_OK;
}

/* Computes the gradient of a token's scores into s.biased: from the gradients of its gates, and from the balance loss,
   push * the sum of counts[i] * (normalised score of i). */
static void score_gradients(const Routing *routing, Scratch s, const int32_t *chosen, const float *dgates, float push)
{
    const float sum = sum_of_chosen(routing, s.scores, chosen), all = sum_of(routing->experts, s.scores) + least_sum;
    float mean = 0, mean_push = 0;
    for (size_t i = 0; i < routing->experts; i++)
        mean_push += s.counts[i] * s.scores[i] / all;
    for (size_t i = 0; i < routing->experts; i++)
        s.biased[i] = push * (s.counts[i] - mean_push) / all;
    for (size_t j = 0; j < routing->chosen; j++)
        mean += dgates[j] * s.scores[chosen[j]] / sum;
    for (size_t j = 0; j < routing->chosen; j++)
        s.biased[chosen[j]] += (float)routing->factor * (dgates[j] - mean) / sum;
}

static void logit_gradients(const Routing *routing, Scratch s, float *dlogits)
{
    float mean = 0;
    for (size_t i = 0; routing->softmax && i < routing->experts; i++)
        mean += s.biased[i] * s.scores[i];
    for (size_t i = 0; i < routing->experts; i++)
        dlogits[i] = s.scores[i] * (routing->softmax ? s.biased[i] - mean : s.biased[i] * (1 - s.scores[i]));
}

CPU(route_backward)
{
    const KernelShape *shape = &op->kernel->shape;
    const Routing *routing = &shape->routing;
    const size_t experts = routing->experts, k = routing->chosen;
    const Scratch s = scratch_of(device, experts);
    const float push = (float)op->scale * worth(shape) / (float)(shape->rows / shape->sequence);
    for (size_t row = 0; row < shape->rows; row += shape->sequence) {
        memset(s.counts, 0, experts * sizeof *s.counts);
        for (size_t i = row * k; i < (row + shape->sequence) * k; i++)
            s.counts[o->chosen[i]]++;
        for (size_t t = row; t < row + shape->sequence; t++) {
            score(routing, (const float *)o->logits + t * experts, s.scores);
            score_gradients(routing, s, o->chosen + t * k, (const float *)o->dgates + t * k, push);
            logit_gradients(routing, s, (float *)o->dlogits + t * experts);
        }
    }
    return STATUS_OK;
}

/* A counting sort. The first loop counts the rows of each expert. After the second loop, begins[e + 1] is the end of
   expert e's rows. The third loop sets the places of the rows, from the last row to the first. After the third loop,
   begins[e + 1] is the beginning of expert e's rows, and the memmove copies it to begins[e]. */
CPU(group_rows)
{
    const size_t experts = op->kernel->shape.routing.experts,
                 rows = op->kernel->shape.rows * op->kernel->shape.routing.chosen;
    memset(o->begins, 0, (experts + 1) * sizeof *o->begins);
    for (size_t i = 0; i < rows; i++)
        o->begins[o->chosen[i] + 1]++;
    for (size_t e = 0; e < experts; e++)
        o->begins[e + 1] += o->begins[e];
    for (size_t i = rows; i-- > 0;)
        o->places[i] = --o->begins[o->chosen[i] + 1];
    memmove(o->begins, o->begins + 1, experts * sizeof *o->begins);
    o->begins[experts] = (int32_t)rows;
    return STATUS_OK;
}

CPU(count_loads)
{
    float *sums = o->loads;
    for (size_t e = 0; e < op->kernel->shape.routing.experts; e++)
        sums[e] += (float)(o->begins[e + 1] - o->begins[e]);
    *(float *)o->total += *(const float *)o->balance;
    return STATUS_OK;
}
