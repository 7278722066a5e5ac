#include "runtime/model/stage.h"

#include "base/bytes.h"
#include "runtime/model/spec.h"

#include <stddef.h>
#include <stdlib.h>

static Status add_component(Stage *stage, const ComponentKind *kind, uint32_t layer, uint32_t place,
                            uint32_t microbatches, Error *error)
{
    Part *part = &stage->parts[stage->part_count];
    part->component = (Component){
        .kind = kind,
        .config = stage->config,
        .device = stage->device,
        .place = place,
        .layer = layer == NO_LAYER ? 0 : stage->first_layer + layer,
        .loss_scale = 1.0 / (double)microbatches,
        .rows = (size_t)stage->config.microbatch_size * stage->config.sequence,
    };
    part->layer = layer;
    stage->part_count++;
    return kind->open(&part->component, error);
}

/* The components of a layer, in the order of its forward, NULL-terminated if fewer than LAYER_COMPONENTS. */
static const ComponentKind *const *layer_components(const ModelConfig *config, uint32_t layer)
{
    const ModelSpec *model = config->model;
    return model->is_other && model->is_other(config, layer) ? model->other_layer : model->layer;
}

/* How many values of Component.place are reserved for each layer. The number is the same for all layers, so the initial
   weights of a layer do not depend on which kinds of layers come before it. */
static uint32_t layer_places(const ModelSpec *model)
{
    uint32_t count = 0;
    while (count < LAYER_COMPONENTS && (model->layer[count] || model->other_layer[count]))
        count++;
    return count;
}

static Status add_components(Stage *stage, uint32_t number, uint32_t stages, uint32_t microbatches, Error *error)
{
    const ModelConfig *config = &stage->config;
    const ModelSpec *model = config->model;
    const uint32_t each = layer_places(model);
    if (number == 0)
        TRY(add_component(stage, model->first, NO_LAYER, 0, microbatches, error));
    const uint32_t begin = stage_first_layer(config->layers, stages, number);
    const uint32_t end = stage_first_layer(config->layers, stages, number + 1);
    stage->first_layer = begin;
    for (uint32_t layer = begin; layer < end; layer++) {
        const ComponentKind *const *kinds = layer_components(config, layer);
        for (uint32_t i = 0; i < LAYER_COMPONENTS && kinds[i]; i++)
            TRY(add_component(stage, kinds[i], layer - begin, 1 + each * layer + i, microbatches, error));
    }
    if (number + 1 == stages)
        TRY(add_component(stage, model->last, NO_LAYER, 1 + each * config->layers, microbatches, error));
    return STATUS_OK;
}

/* Begins a new block: sets where its parts of the buffers begin. `between`: another block comes before it in the stage.
   Then the stash gets room for the activation between the two blocks, and if `learns_before`, the gradient buffer gets
   room for the gradient of that activation. */
static void begin_block(StageSizes *sizes, Part *part, bool between, bool learns_before)
{
    const size_t message = component_round(sizes->message);
    if (between) {
        part->x = sizes->stash;
        sizes->stash += message;
    }
    if (between && learns_before) {
        part->dx = sizes->gradient;
        sizes->gradient += message;
    }
    part->context = sizes->context;
    part->stash = sizes->stash;
    part->gradient = sizes->gradient;
}

/* Sets the offsets of the parameters. Those of experts come after all others. */
static void lay_out_parameters(Stage *stage)
{
    StageSizes *sizes = &stage->sizes;
    for (int of_experts = 0; of_experts < 2; of_experts++)
        for (size_t i = 0; i < stage->part_count; i++) {
            Part *part = &stage->parts[i];
            const size_t parameters = component_offset(&part->component, part->component.parameter_count);
            if (of_experts != (part->component.of_experts[0] > 0))
                continue;
            part->parameters = sizes->parameters;
            sizes->parameters += parameters;
            sizes->experts += of_experts ? parameters : 0;
        }
    for (size_t i = 0; i < stage_segments(stage); i++)
        sizes->saved += stage_segment(stage, i).saved;
}

static void lay_out(Stage *stage, bool learns_before)
{
    StageSizes *sizes = &stage->sizes;
    for (size_t i = 0; i < stage->part_count; i++) {
        Part *part = &stage->parts[i];
        const Component *component = &part->component;
        if (component->kind->continues) {
            const Part *first = &stage->parts[i - 1];
            part->x = first->x, part->dx = first->dx;
            part->context = first->context, part->stash = first->stash, part->gradient = first->gradient;
        } else {
            begin_block(sizes, part, i > 0, learns_before);
        }
        part->learns_before = learns_before || component->kind->continues;
        learns_before = learns_before || component->parameter_count > 0;
        sizes->context += component_round(component->context);
        sizes->stash += component_round(component->stash);
        sizes->gradient += component_round(component->gradient);
        if (sizes->workspace < component->workspace)
            sizes->workspace = component->workspace;
    }
}

#define FIELD(name) ((Address){1 + offsetof(PassBuffers, name) / sizeof(void *), 0})

/* The addresses of the operands of the `index`-th component. */
static PassAddresses addresses_of(const Stage *stage, size_t index)
{
    const Part *part = &stage->parts[index];
    const Component *c = &part->component;
    size_t begin = index, end = index + 1; /* the components of its block: begin .. end - 1 */
    while (stage->parts[begin].component.kind->continues)
        begin--;
    while (end < stage->part_count && stage->parts[end].component.kind->continues)
        end++;
    const bool first = begin == 0, last = end == stage->part_count, learns = stage->parts[begin].learns_before;
    const Address stash = FIELD(stash), gradient = FIELD(gradient), dx = stage->first ? no_address : FIELD(dx);
    return (PassAddresses){
        .parameters = component_at(c, FIELD(parameters), part->parameters),
        .parameter_gradients = component_master_at(c, FIELD(parameter_gradients), part->parameters),
        .expert_gradients = component_master_at(c, FIELD(expert_gradients), part->parameters),
        .x = first ? FIELD(x) : component_at(c, stash, part->x),
        .y = last ? FIELD(y) : component_at(c, stash, stage->parts[end].x),
        .dy = last ? FIELD(dy) : component_at(c, gradient, stage->parts[end].dx),
        .dx = first    ? dx
              : learns ? component_at(c, gradient, part->dx)
                       : no_address,
        .context = component_at(c, FIELD(context), part->context),
        .stash = component_at(c, stash, part->stash),
        .gradient = component_at(c, gradient, part->gradient),
        .workspace = FIELD(workspace),
        .inputs = FIELD(inputs),
        .targets = FIELD(targets),
        .outputs = FIELD(outputs),
        .loss = FIELD(loss),
    };
}

static void list_part(Stage *stage, size_t index, RecipePass pass)
{
    Part *part = &stage->parts[index];
    const ComponentKind *kind = part->component.kind;
    void (*const append)(const Component *, const PassAddresses *, OpList *) = pass == RECIPE_F ? kind->forward
                                                                               : pass == RECIPE_B
                                                                                   ? kind->backward_input
                                                                                   : kind->backward_weight;
    const PassAddresses at = addresses_of(stage, index);
    OpList *list = &stage->lists[pass];
    part->ops[pass].begin = list->count;
    if (append)
        append(&part->component, &at, list);
    part->ops[pass].end = list->count;
}

double stage_product(const Stage *stage)
{
    const ModelConfig *config = &stage->config;
    return 2.0 * config->microbatch_size * config->sequence * config->hidden * config->hidden;
}

Status stage_list_operations(Stage *stage, Error *error)
{
    for (int pass = 0; pass < RECIPE_PASSES; pass++)
        op_list_free(&stage->lists[pass]);
    for (size_t i = 0; i < stage->part_count; i++) {
        list_part(stage, i, RECIPE_F);
        list_part(stage, stage->part_count - 1 - i, RECIPE_B);
        list_part(stage, stage->part_count - 1 - i, RECIPE_W);
    }
    const DeviceFusion *fusion = stage->device->run->fusion;
    for (int pass = 0; pass < RECIPE_PASSES; pass++) {
        TRY(op_list_finish(&stage->lists[pass], error));
        if (fusion && stage_product(stage) < fusion->small)
            TRY(fusion->prepare(stage->device, &stage->lists[pass], 0, 0, error));
    }
    return STATUS_OK;
}

static void data_sizes(Stage *stage, bool first, bool last)
{
    StageSizes *sizes = &stage->sizes;
    const Component *begins = &stage->parts[0].component, *ends = &stage->parts[stage->part_count - 1].component;
    sizes->message = begins->rows * stage->config.hidden;
    sizes->inputs = first ? begins->data_bytes : 0;
    sizes->targets = last ? ends->data_bytes : 0;
    sizes->outputs = last ? ends->outputs : 0;
}

/* Allocates host memory for the largest tally of the stage and for the parameter of that tally. */
static Status make_counts(Stage *stage, Error *error)
{
    size_t most = 0;
    for (size_t i = 0; i < stage->part_count; i++)
        for (size_t p = 0; p < stage->parts[i].component.parameter_count; p++) {
            const Component *component = &stage->parts[i].component;
            const size_t elements = component->tallies[p] ? component->parameters[p].elements : 0;
            most = elements > most ? elements : most;
        }
    stage->counts = most ? calloc(2 * most, sizeof *stage->counts) : NULL;
    return stage->counts || !most ? STATUS_OK : error_set(error, STATUS_RUN_FAILED, "out of memory");
}

Status stage_open(const ModelConfig *config, Device *device, uint32_t number, uint32_t stages, uint32_t microbatches,
                  Stage **opened, Error *error)
{
    *opened = NULL;
    const uint32_t begin = stage_first_layer(config->layers, stages, number);
    const uint32_t layers = stage_first_layer(config->layers, stages, number + 1) - begin;
    const size_t most = 2 + (size_t)layer_places(config->model) * layers;
    Stage *stage = calloc(1, sizeof *stage + most * sizeof *stage->parts);
    if (!stage)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    stage->number = ++device->stages;
    stage->config = *config;
    stage->device = device;
    stage->first = number == 0;
    Status status = add_components(stage, number, stages, microbatches, error);
    if (status == STATUS_OK) {
        data_sizes(stage, number == 0, number + 1 == stages);
        lay_out_parameters(stage);
        lay_out(stage, number > 0);
        status = make_counts(stage, error);
    }
    if (status == STATUS_OK)
        status = stage_list_operations(stage, error);
    if (status != STATUS_OK) {
        stage_close(stage);
        return status;
    }
    *opened = stage;
    return STATUS_OK;
}

void stage_close(Stage *stage)
{
    if (!stage)
        return;
    for (int pass = 0; pass < RECIPE_PASSES; pass++)
        op_list_free(&stage->lists[pass]);
    for (PairList *pair = stage->pairs, *next; pair; pair = next) {
        next = pair->next;
        op_list_free(&pair->list);
        free(pair);
    }
    for (size_t i = 0; i < stage->part_count; i++) {
        for (int x = 0; x < COMPONENT_EXCHANGES; x++)
            free(stage->parts[i].component.exchanges[x]);
        free(stage->parts[i].component.copies);
    }
    free(stage->counts);
    free(stage); /* the device owns the stage's kernels */
}

static uint32_t checksum_on(uint32_t checksum, const OpList *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const Op *op = &list->ops[i];
        const KernelShape *shape = op->kernel ? &op->kernel->shape : NULL;
        const double scale = op->scale;
        uint64_t numbers[8 + 2 * OPERATION_OPERANDS] = {(uint64_t)op->kind,
                                                        op->count,
                                                        op->rows,
                                                        op->columns,
                                                        op->sequence,
                                                        shape ? shape->rows : 0,
                                                        shape ? shape->columns : 0,
                                                        shape ? shape->outputs : 0};
        for (int k = 0; k < OPERATION_OPERANDS; k++) {
            numbers[8 + 2 * k] = op->operands[k].base;
            numbers[9 + 2 * k] = op->operands[k].offset;
        }
        checksum = bytes_checksum_on(checksum, numbers, sizeof numbers);
        checksum = bytes_checksum_on(checksum, &scale, sizeof scale);
    }
    return checksum;
}

uint32_t stage_checksum(const Stage *stage)
{
    uint32_t checksum = 0;
    for (int pass = 0; pass < RECIPE_PASSES; pass++)
        checksum = checksum_on(checksum, &stage->lists[pass]);
    for (const PairList *pair = stage->pairs; pair; pair = pair->next)
        checksum = checksum_on(checksum, &pair->list);
    return checksum;
}

size_t stage_all_to_alls(const Stage *stage, RecipePass pass)
{
    const OpList *list = &stage->lists[pass];
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++)
        count += list->ops[i].kind == OPERATION_counts_post || list->ops[i].kind == OPERATION_rows_post;
    return count;
}

const StageSizes *stage_sizes(const Stage *stage) { return &stage->sizes; }
