#include "runtime/model/experts.h"

/* Divides one of the stage's buffers into consecutive parts. */
typedef struct Cursor {
    const Component *component;
    Address begin;
    size_t used;
} Cursor;

static Address take(Cursor *cursor, size_t elements)
{
    const Address taken = component_at(cursor->component, cursor->begin, cursor->used);
    cursor->used += component_round(elements);
    return taken;
}

static Address take_numbers(Cursor *cursor, size_t count)
{
    const size_t size = cursor->component->device->run->size[ELEMENTS];
    return take(cursor, (count * sizeof(int32_t) + size - 1) / size);
}

static void take_context(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, routed = rows * c->config.experts_per_token, shared = rows * shared_width(&c->config);
    Cursor cursor = {c, begin, 0};
    frame->logits = take(&cursor, rows * c->config.experts);
    frame->gates = take(&cursor, routed);
    frame->chosen = take_numbers(&cursor, routed);
    frame->places = take_numbers(&cursor, routed);
    frame->wide = take(&cursor, 2 * routed * c->config.expert_hidden);
    frame->results = take(&cursor, routed * c->config.hidden);
    frame->shared_wide = take(&cursor, 2 * shared);
    frame->residual = take(&cursor, shared ? rows * c->config.hidden : 0);
    frame->context = cursor.used;
}

static void take_stash(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, routed = rows * c->config.experts_per_token, shared = rows * shared_width(&c->config);
    Cursor cursor = {c, begin, 0};
    frame->normed = take(&cursor, rows * c->config.hidden);
    frame->begins = take_numbers(&cursor, c->config.experts + (size_t)1);
    frame->balance = take(&cursor, 1);
    frame->rows = take(&cursor, routed * c->config.hidden);
    frame->active = take(&cursor, routed * c->config.expert_hidden);
    frame->shared_active = take(&cursor, shared);
    frame->stash = cursor.used;
    frame->statistics = take(&cursor, 0);
}

static void take_gradient(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, routed = rows * c->config.experts_per_token, shared = rows * shared_width(&c->config);
    Cursor cursor = {c, begin, 0};
    frame->drows = take(&cursor, routed * c->config.hidden);
    frame->dgates = take(&cursor, routed);
    frame->dshared = take(&cursor, shared ? rows * c->config.hidden : 0);
    frame->drouted = take(&cursor, rows * c->config.hidden);
    frame->dresults = take(&cursor, routed * c->config.hidden);
    frame->dactive = take(&cursor, routed * c->config.expert_hidden);
    frame->shared_dactive = take(&cursor, shared);
    frame->dwide = take(&cursor, 2 * routed * c->config.expert_hidden);
    frame->shared_dwide = take(&cursor, 2 * shared);
    frame->dlogits = take(&cursor, rows * c->config.experts);
    frame->dnormed = take(&cursor, rows * c->config.hidden);
    frame->gradient = cursor.used;
}

ExpertsFrame experts_frame(const Component *component, const PassAddresses *at)
{
    ExpertsFrame frame;
    take_context(&frame, component, at->context);
    take_stash(&frame, component, at->stash);
    take_gradient(&frame, component, at->gradient);
    return frame;
}

size_t shared_width(const ModelConfig *config) { return (size_t)config->shared_experts * config->expert_hidden; }

Routing experts_routing(const ModelConfig *config)
{
    return (Routing){
        .experts = config->experts,
        .chosen = config->experts_per_token,
        .groups = config->expert_groups,
        .best_groups = config->groups_per_token,
        .softmax = config->router == SCORES_SOFTMAX,
        .factor = config->gate_factor,
    };
}
