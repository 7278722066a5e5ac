#include "runtime/model/experts.h"

#include <math.h>
#include <stdio.h>

/* Divides one of the stage's buffers into consecutive tensors. */
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
    const size_t size = cursor->component->device->run->size[COMPUTE_TYPE];
    return take(cursor, (count * sizeof(int32_t) + size - 1) / size);
}

/* A tensor of its own if a group divides the experts. Otherwise `same`: without a group both tensors are one. */
static Address take_apart(Cursor *cursor, size_t elements, Address same)
{
    return cursor->component->config.expert_group ? take(cursor, elements) : same;
}

static void take_context(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, routed = rows * c->config.experts_per_token, shared = rows * shared_width(&c->config);
    Cursor cursor = {c, begin, 0};
    frame->logits = take(&cursor, rows * c->config.experts);
    frame->gates = take(&cursor, routed);
    frame->chosen = take_numbers(&cursor, routed);
    frame->placed = experts_have_copies(&c->config) ? take_numbers(&cursor, routed) : frame->chosen;
    frame->places = take_numbers(&cursor, routed);
    frame->counts_sent = c->config.expert_group ? take_numbers(&cursor, experts_physical(&c->config)) : no_address;
    frame->counts_received = c->config.expert_group ? take_numbers(&cursor, experts_physical(&c->config)) : no_address;
    frame->wide = take(&cursor, 2 * experts_room(c) * c->config.expert_hidden);
    frame->results = take(&cursor, routed * c->config.hidden);
    frame->made = take_apart(&cursor, experts_room(c) * c->config.hidden, frame->results);
    frame->shared_wide = take(&cursor, 2 * shared);
    frame->residual = take(&cursor, shared ? rows * c->config.hidden : 0);
    frame->context = cursor.used;
}

static void take_stash(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, room = experts_room(c), shared = rows * shared_width(&c->config);
    Cursor cursor = {c, begin, 0};
    frame->normed = take(&cursor, rows * c->config.hidden);
    const size_t begins = experts_physical(&c->config) + (size_t)1;
    frame->begins = take_numbers(&cursor, begins);
    frame->held = c->config.expert_group ? take_numbers(&cursor, begins) : frame->begins;
    frame->balance = take(&cursor, 1);
    frame->rows = take(&cursor, room * c->config.hidden);
    frame->sent = c->config.expert_group ? frame->results : frame->rows;
    frame->active = take(&cursor, room * c->config.expert_hidden);
    frame->shared_active = take(&cursor, shared);
    frame->stash = cursor.used;
    frame->statistics = take(&cursor, 0);
}

static void take_gradient(ExpertsFrame *frame, const Component *c, Address begin)
{
    const size_t rows = c->rows, routed = rows * c->config.experts_per_token, shared = rows * shared_width(&c->config);
    const size_t room = experts_room(c);
    Cursor cursor = {c, begin, 0};
    frame->drows = take(&cursor, routed * c->config.hidden);
    frame->dgates = take(&cursor, routed);
    frame->dshared = take(&cursor, shared ? rows * c->config.hidden : 0);
    frame->drouted = take(&cursor, rows * c->config.hidden);
    frame->dresults = take(&cursor, room * c->config.hidden);
    frame->dmade = take_apart(&cursor, room * c->config.hidden, frame->drows);
    frame->dsent = c->config.expert_group ? frame->drows : frame->dresults;
    frame->dactive = take(&cursor, room * c->config.expert_hidden);
    frame->shared_dactive = take(&cursor, shared);
    frame->dwide = take(&cursor, 2 * room * c->config.expert_hidden);
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

static size_t members(const ModelConfig *config)
{
    return config->expert_group ? (size_t)config->expert_group->members : 1;
}

uint32_t experts_physical(const ModelConfig *config)
{
    return config->experts + (config->expert_group ? config->expert_group->replicas : 0);
}

uint32_t experts_held(const ModelConfig *config) { return experts_physical(config) / (uint32_t)members(config); }

bool experts_have_copies(const ModelConfig *config)
{
    return config->expert_group && (config->expert_group->replicas || config->expert_group->moves);
}

size_t experts_room(const Component *component)
{
    const ModelConfig *config = &component->config;
    const size_t held = experts_held(config),
                 most = config->experts_per_token < held ? config->experts_per_token : held;
    const size_t worst = members(config) * component->rows * most;
    const double planned = ceil(config->expert_rows * (double)component->rows * config->experts_per_token);
    return config->expert_group && config->expert_rows > 0 && planned < (double)worst ? (size_t)planned : worst;
}

Status experts_exchange(Component *component, int number, const char *what, bool back, RecipePass pass, Error *error)
{
    const ModelConfig *config = &component->config;
    if (!config->expert_group)
        return STATUS_OK;
    const GroupExchange fields = {
        .group = config->expert_group,
        .what = what,
        .experts = experts_physical(config),
        .row_bytes = config->hidden * component->device->run->size[COMPUTE_TYPE],
        .room = experts_room(component),
        .equal = component->rows * config->experts_per_token,
        .back = back,
        .flight = {.layer = component->layer, .component = (uint8_t)component->kind->part, .pass = (uint8_t)pass},
    };
    component->exchanges[number] = group_make_exchange(&fields);
    return component->exchanges[number] ? STATUS_OK : error_set(error, STATUS_RUN_FAILED, "out of memory");
}

void experts_send_rows(const Component *component, const ExpertsFrame *frame, int exchange, Address x, Address y,
                       OpList *list)
{
    GroupExchange *own = component->exchanges[exchange];
    if (!own)
        return;
    op_append(list,
              &(Op){.kind = OPERATION_rows_post, .exchange = own, .rows_post = {x, frame->begins, frame->held, y}});
    op_append(list, &(Op){.kind = OPERATION_rows_wait, .exchange = own, .rows_wait = {x, y}});
}

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
