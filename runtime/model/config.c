#include "base/arena.h"
#include "base/file.h"
#include "base/settings.h"
#include "runtime/model/spec.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* message_most: the most elements of a message. kept_most: the most elements that one microbatch keeps in the whole
   model; 2^44 elements of 8 bytes in 2^16 slots still fit in a size_t. */
static const uint64_t message_most = (uint64_t)1 << 32;
static const double kept_most = 0x1p44;

typedef enum KeyType { KEY_U32, KEY_ROUTER, KEY_U64, KEY_REAL } KeyType;

/* OF_WEIGHTS: the run that saves weights and the run that loads them must agree on the setting. OF_EXPERTS: only models
   with experts have the setting. */
enum { OF_WEIGHTS = 1, OF_EXPERTS = 2, OF_EXPERT_WEIGHTS = OF_WEIGHTS | OF_EXPERTS };

/* A setting: its field in ModelConfig and its range. */
typedef struct Key {
    const char *name;
    KeyType type;
    int of;
    size_t offset;
    double least, most;
} Key;

/* clang-format off */
#define FIELD(field) offsetof(ModelConfig, field)
static const Key keys[] = {
    {"layers",            KEY_U32,    OF_WEIGHTS,        FIELD(layers),            0, 1 << 20},
    {"hidden",            KEY_U32,    OF_WEIGHTS,        FIELD(hidden),            1, 1 << 16},
    {"heads",             KEY_U32,    OF_WEIGHTS,        FIELD(heads),             1, 1 << 16},
    {"sequence",          KEY_U32,    OF_WEIGHTS,        FIELD(sequence),          1, 1 << 16},
    {"microbatch_size",   KEY_U32,    0,                 FIELD(microbatch_size),   1, 1 << 16},
    {"vocabulary",        KEY_U32,    OF_WEIGHTS,        FIELD(vocabulary),        1, 1 << 20},
    {"experts",           KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(experts),           1, 1 << 12},
    {"experts_per_token", KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(experts_per_token), 1, 1 << 12},
    {"expert_hidden",     KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(expert_hidden),     1, 1 << 16},
    {"shared_experts",    KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(shared_experts),    0, 1 << 8},
    {"expert_groups",     KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(expert_groups),     1, ROUTING_GROUPS_MOST},
    {"groups_per_token",  KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(groups_per_token),  1, ROUTING_GROUPS_MOST},
    {"dense_layers",      KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(dense_layers),      0, 1 << 20},
    {"expert_interval",   KEY_U32,    OF_EXPERT_WEIGHTS, FIELD(expert_interval),   1, 1 << 20},
    {"router",            KEY_ROUTER, OF_EXPERT_WEIGHTS, FIELD(router),            0, 0},
    {"gate_factor",       KEY_REAL,   OF_EXPERT_WEIGHTS, FIELD(gate_factor),       1e-6, 1e6},
    {"bias_rate",         KEY_REAL,   OF_EXPERTS,        FIELD(bias_rate),         0, 1e6},
    {"balance_loss",      KEY_REAL,   OF_EXPERTS,        FIELD(balance_loss),      0, 1e6},
    {"seed",              KEY_U64,    0,                 FIELD(seed),              0, 0x1p64},
    {"learning_rate",     KEY_REAL,   0,                 FIELD(learning_rate),     0, 1e6},
    {"warmup_steps",      KEY_REAL,   0,                 FIELD(warmup_steps),      0, 1e15},
    {"beta1",             KEY_REAL,   0,                 FIELD(beta1),             0, 0.9999999},
    {"beta2",             KEY_REAL,   0,                 FIELD(beta2),             0, 0.9999999},
    {"epsilon",           KEY_REAL,   0,                 FIELD(epsilon),           1e-30, 1},
    {"weight_decay",      KEY_REAL,   0,                 FIELD(weight_decay),      0, 1e6},
    {"clip_norm",         KEY_REAL,   0,                 FIELD(clip_norm),         0, 1e30},
};
#undef FIELD
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys, GIVEN_MODEL = 1 << KEYS };

static const char *const router_names[ROUTER_SCORES] = {"sigmoid", "softmax"};
static const size_t key_sizes[] = {[KEY_U32] = sizeof(uint32_t),
                                   [KEY_ROUTER] = sizeof(uint32_t),
                                   [KEY_U64] = sizeof(uint64_t),
                                   [KEY_REAL] = sizeof(double)};

#define MODEL(name) &model_##name,
const ModelSpec *const models[] = {MODEL_LIST NULL};
#undef MODEL

static const ModelSpec *model_named(const char *name)
{
    for (const ModelSpec *const *model = models; *model; model++)
        if (strcmp((*model)->name, name) == 0)
            return *model;
    return NULL;
}

bool model_is_built_in(const char *name) { return model_named(name) != NULL; }

const char *model_name(const ModelConfig *config) { return config->model->name; }

bool model_reads_text(const ModelConfig *config) { return config->model->data->is_text; }

/* "gpt, mlp". */
typedef struct ModelNames {
    char text[128];
} ModelNames;

static ModelNames all_models(void)
{
    ModelNames names = {""};
    for (size_t i = 0, used = 0; models[i] && used < sizeof names.text; i++)
        used += (size_t)snprintf(names.text + used, sizeof names.text - used, "%s%s", i ? ", " : "", models[i]->name);
    return names;
}

static Status no_model(const char *name, Error *error)
{
    return error_set(error, STATUS_BAD_INPUT, "no model '%s'; there are: %s", name, all_models().text);
}

static const Key *key_named(const char *name)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static uint32_t given_bit(const Key *key) { return 1u << (key - keys); }

static Status bad_value(const Key *key, const char *value, Error *error)
{
    if (key->type == KEY_U64)
        return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be a whole number below 2^64", key->name, value);
    if (key->type == KEY_ROUTER)
        return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be sigmoid or softmax", key->name, value);
    return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be a %snumber from %.10g to %.10g", key->name, value,
                     key->type == KEY_REAL ? "" : "whole ", key->least, key->most);
}

static Status set_router(const Key *key, const char *value, uint32_t *field, Error *error)
{
    for (*field = 0; *field < ROUTER_SCORES; ++*field)
        if (strcmp(value, router_names[*field]) == 0)
            return STATUS_OK;
    return bad_value(key, value, error);
}

static Status set_value(void *context, const char *name, const char *value, Error *error)
{
    ModelConfig *config = context;
    const Key *key = key_named(name);
    if (!key)
        return settings_unknown("key", name, &keys[0].name, sizeof *keys, KEYS, error);
    void *field = (char *)config + key->offset;
    config->given |= given_bit(key);
    char *end;
    errno = 0;
    if (key->type == KEY_ROUTER)
        return set_router(key, value, field, error);
    if (key->type == KEY_REAL) {
        const double real = strtod(value, &end);
        if (end == value || *end || errno == ERANGE || !(real >= key->least && real <= key->most))
            return bad_value(key, value, error);
        *(double *)field = real;
        return STATUS_OK;
    }
    const unsigned long long whole = strtoull(value, &end, 10);
    /* strtoull would accept a sign and negate the value */
    if (!isdigit((unsigned char)*value) || *end || errno == ERANGE)
        return bad_value(key, value, error);
    if (key->type == KEY_U64) {
        *(uint64_t *)field = whole;
        return STATUS_OK;
    }
    if ((double)whole < key->least || (double)whole > key->most)
        return bad_value(key, value, error);
    *(uint32_t *)field = (uint32_t)whole;
    return STATUS_OK;
}

/* State while the settings of a file are loaded. */
typedef struct Loading {
    ModelConfig *config;
    bool is_first;
} Loading;

static Status load_value(void *context, const char *name, const char *value, Error *error)
{
    Loading *loading = context;
    const bool is_first = loading->is_first;
    loading->is_first = false;
    if (strcmp(name, "model") != 0)
        return set_value(loading->config, name, value, error);
    const ModelSpec *model = model_named(value);
    if (!is_first)
        return error_set(error, STATUS_BAD_INPUT,
                         "'model' must be the first key: it sets the defaults of the other keys");
    if (!model)
        return no_model(value, error);
    *loading->config = model->defaults;
    loading->config->given = GIVEN_MODEL;
    return STATUS_OK;
}

static Status assign_value(void *context, const char *name, const char *value, Error *error)
{
    if (strcmp(name, "model") == 0)
        return error_set(error, STATUS_BAD_INPUT,
                         "model = %s: choose the model with --model %s, at any place on the command line", value,
                         value);
    return set_value(context, name, value, error);
}

Status model_config_load(const char *name, ModelConfig *config, Error *error)
{
    const ModelSpec *model = name ? model_named(name) : NULL;
    *config = model ? model->defaults : models[0]->defaults;
    config->given = model ? GIVEN_MODEL : 0;
    if (model || !name)
        return STATUS_OK;
    Arena arena = {0};
    char *text;
    size_t size;
    Status status = file_read(name, &arena, &text, &size, error);
    if (status != STATUS_OK)
        error_prefix(error, "no built-in model (%s) and no readable file: ", all_models().text);
    else
        status = settings_take(name, text, size, load_value, &(Loading){config, true}, error);
    arena_free(&arena);
    return status;
}

Status model_config_set(ModelConfig *config, const char *assignment, Error *error)
{
    char *const copy = strdup(assignment);
    if (!copy)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    const Status status = settings_assign(copy, assign_value, config, error);
    free(copy);
    return status == STATUS_BAD_INPUT ? STATUS_BAD_USAGE : status;
}

static void contradict(Error *contradictions, const char *key, const char *there, const char *here)
{
    const size_t used = strlen(contradictions->text);
    snprintf(contradictions->text + used, sizeof contradictions->text - used,
             "; %s is %s in the file, but %s in this run", key, there, here);
}

/* Changes to the defaults of another model, but keeps the settings that were given. */
static void change_model(ModelConfig *config, const ModelSpec *model)
{
    const ModelConfig before = *config;
    *config = model->defaults;
    config->given = before.given;
    for (const Key *key = keys; key < keys + KEYS; key++)
        if (before.given & given_bit(key))
            memcpy((char *)config + key->offset, (const char *)&before + key->offset, key_sizes[key->type]);
}

static Status adopt_model(ModelConfig *config, const char *name, Error *contradictions, Error *error)
{
    const ModelSpec *model = model_named(name);
    if (!model)
        return no_model(name, error);
    if (model == config->model)
        return STATUS_OK;
    if (config->given & GIVEN_MODEL)
        contradict(contradictions, "model", name, model_name(config));
    else
        change_model(config, model);
    return STATUS_OK;
}

typedef struct ValueText {
    char text[32];
} ValueText;

/* The value of a setting, as a file of settings has it. */
static ValueText value_of(const ModelConfig *config, const Key *key)
{
    ValueText value;
    const void *const field = (const char *)config + key->offset;
    if (key->type == KEY_REAL) {
        const double real = *(const double *)field;
        snprintf(value.text, sizeof value.text, "%.15g", real);
        if (strtod(value.text, NULL) != real)
            snprintf(value.text, sizeof value.text, "%.17g", real);
    } else if (key->type == KEY_U64)
        snprintf(value.text, sizeof value.text, "%" PRIu64, *(const uint64_t *)field);
    else if (key->type == KEY_ROUTER)
        snprintf(value.text, sizeof value.text, "%s", router_names[*(const uint32_t *)field]);
    else
        snprintf(value.text, sizeof value.text, "%" PRIu32, *(const uint32_t *)field);
    return value;
}

Status model_config_adopt(ModelConfig *config, const char *name, const char *value, Error *contradictions, Error *error)
{
    if (strcmp(name, "model") == 0)
        return adopt_model(config, value, contradictions, error);
    const Key *key = key_named(name);
    ModelConfig there = *config;
    TRY(set_value(&there, name, value, error));
    if (!(key->of & OF_WEIGHTS))
        return error_set(error, STATUS_BAD_INPUT,
                         "%s does not belong in a file of weights: dprun --save writes no such line", name);
    char *const own = (char *)config + key->offset, *const saved = (char *)&there + key->offset;
    if ((config->given & given_bit(key)) && memcmp(own, saved, key_sizes[key->type]) != 0)
        contradict(contradictions, name, value, value_of(config, key).text);
    else
        memcpy(own, saved, key_sizes[key->type]);
    return STATUS_OK;
}

void model_config_write_sizes(const ModelConfig *config, FILE *stream)
{
    fprintf(stream, "model %s\nlayers %u\nhidden %u\n", model_name(config), config->layers, config->hidden);
    for (size_t i = 0; i < MODEL_SIZES && config->model->sizes[i]; i++)
        fprintf(stream, "%s %s\n", config->model->sizes[i], value_of(config, key_named(config->model->sizes[i])).text);
}

void model_config_write(const ModelConfig *config, FILE *stream)
{
    fprintf(stream, "model %s\n", model_name(config));
    for (const Key *key = keys; key < keys + KEYS; key++)
        fprintf(stream, "%s %s\n", key->name, value_of(config, key).text);
}

/* Refuses settings of experts for a model without experts: they would have no effect. */
static Status check_given(const ModelConfig *config, Error *error)
{
    for (const Key *key = keys; key < keys + KEYS; key++)
        if ((key->of & OF_EXPERTS) && (config->given & given_bit(key)) && !config->model->is_other)
            return error_set(error, STATUS_BAD_INPUT, "%s = %s: model %s has no experts; --model moe has", key->name,
                             value_of(config, key).text, model_name(config));
    return STATUS_OK;
}

Status model_config_check(ModelConfig *config, uint32_t stages, Error *error)
{
    TRY(check_given(config, error));
    if (config->layers == 0)
        config->layers = stages;
    if (config->layers < stages)
        return error_set(error, STATUS_BAD_INPUT, "layers = %u: %u stages need at least one layer each",
                         (unsigned)config->layers, (unsigned)stages);
    const uint64_t rows = (uint64_t)config->microbatch_size * config->sequence;
    if (rows > message_most / config->hidden)
        return error_set(
            error, STATUS_BAD_INPUT,
            "microbatch_size * sequence * hidden is %llu; it must be at most %llu: make one of them smaller",
            (unsigned long long)(rows * config->hidden), (unsigned long long)message_most);
    /* an upper estimate of what each layer saves between passes and gives to the next component, plus the logits and
       their gradient */
    const double kept =
        (double)rows * (config->layers * (32.0 * config->hidden + (double)config->heads * config->sequence) +
                        2.0 * config->vocabulary);
    if (kept > kept_most)
        return error_set(error, STATUS_BAD_INPUT,
                         "a microbatch is too large: the model would save about %.4g numbers of it, and it can save "
                         "%.4g at most; make sequence or microbatch_size smaller",
                         kept, (double)kept_most);
    return config->model->check ? config->model->check(config, error) : STATUS_OK;
}
