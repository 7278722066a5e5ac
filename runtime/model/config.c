#include "runtime/base/arena.h"
#include "runtime/base/file.h"
#include "runtime/model/model.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a message, and of all that a microbatch leaves in the model: 2^44 of 8 bytes in 2^16 slots are a size yet. */
static const uint64_t message_most = (uint64_t)1 << 32;
static const double kept_most = 0x1p44;

typedef enum KeyType { KEY_U32, KEY_U64, KEY_REAL } KeyType;

/* Every key: where it goes and what it may be. */
typedef struct Key {
    const char *name;
    KeyType type;
    size_t offset;
    double least, most;
} Key;

static const Key keys[] = {
    {"layers", KEY_U32, offsetof(ModelConfig, layers), 0, 1 << 20},
    {"hidden", KEY_U32, offsetof(ModelConfig, hidden), 1, 1 << 16},
    {"heads", KEY_U32, offsetof(ModelConfig, heads), 1, 1 << 16},
    {"sequence", KEY_U32, offsetof(ModelConfig, sequence), 1, 1 << 16},
    {"microbatch_size", KEY_U32, offsetof(ModelConfig, microbatch_size), 1, 1 << 16},
    {"vocabulary", KEY_U32, offsetof(ModelConfig, vocabulary), 1, 1 << 20},
    {"seed", KEY_U64, offsetof(ModelConfig, seed), 0, 0x1p64},
    {"learning_rate", KEY_REAL, offsetof(ModelConfig, learning_rate), 0, 1e6},
    {"warmup_steps", KEY_REAL, offsetof(ModelConfig, warmup_steps), 0, 1e15},
    {"beta1", KEY_REAL, offsetof(ModelConfig, beta1), 0, 0.9999999},
    {"beta2", KEY_REAL, offsetof(ModelConfig, beta2), 0, 0.9999999},
    {"epsilon", KEY_REAL, offsetof(ModelConfig, epsilon), 1e-30, 1},
    {"weight_decay", KEY_REAL, offsetof(ModelConfig, weight_decay), 0, 1e6},
    {"clip_norm", KEY_REAL, offsetof(ModelConfig, clip_norm), 0, 1e30},
};
enum { KEYS = sizeof keys / sizeof *keys };

static const struct {
    const char *name;
    ModelConfig config;
} models[] = {
    {"gpt",
     {.kind = MODEL_GPT, .hidden = 96, .heads = 4, .sequence = 64, .microbatch_size = 1, .vocabulary = 256, .seed = 1,
      .learning_rate = 4e-3, .warmup_steps = 20, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1,
      .clip_norm = 1}},
    {"mlp",
     {.kind = MODEL_MLP, .hidden = 256, .heads = 1, .sequence = 64, .microbatch_size = 1, .vocabulary = 256, .seed = 1,
      .learning_rate = 1e-3, .warmup_steps = 20, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.01,
      .clip_norm = 1}},
};
enum { MODELS = sizeof models / sizeof *models };

static const ModelConfig *model_named(const char *name)
{
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i].config;
    return NULL;
}

/* Levenshtein's distance, of words short enough for a row on the stack. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    const size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return a_length + b_length;
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t edit = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = change < edit ? change : edit;
        }
    }
    return row[b_length];
}

static Status unknown_key(const char *name, Error *error)
{
    const Key *nearest = &keys[0];
    for (size_t i = 1; i < KEYS; i++)
        if (distance(name, keys[i].name) < distance(name, nearest->name))
            nearest = &keys[i];
    return error_set(error, STATUS_BAD_INPUT, "no key '%s'; the nearest is '%s'", name, nearest->name);
}

static Status bad_value(const Key *key, const char *value, Error *error)
{
    if (key->type == KEY_U64)
        return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be a whole number below 2^64", key->name, value);
    return error_set(error, STATUS_BAD_INPUT, "%s = %s: it must be a %snumber from %.10g to %.10g", key->name, value,
                     key->type == KEY_REAL ? "" : "whole ", key->least, key->most);
}

static Status set_value(ModelConfig *config, const char *name, const char *value, Error *error)
{
    const Key *key = NULL;
    for (size_t i = 0; i < KEYS && !key; i++)
        if (strcmp(keys[i].name, name) == 0)
            key = &keys[i];
    if (!key)
        return unknown_key(name, error);
    void *field = (char *)config + key->offset;
    char *end;
    errno = 0;
    if (key->type == KEY_REAL) {
        const double real = strtod(value, &end);
        if (end == value || *end || errno == ERANGE || !(real >= key->least && real <= key->most))
            return bad_value(key, value, error);
        *(double *)field = real;
        return STATUS_OK;
    }
    const unsigned long long whole = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno == ERANGE) /* strtoull takes a sign, and turns it round */
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

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

/* Cuts `text` into key and value. */
static Status split(char *text, char **name, char **value, Error *error)
{
    char *equals = strchr(text, '=');
    if (!equals)
        return error_set(error, STATUS_BAD_INPUT, "'%s' is not 'key = value'", text);
    *equals = '\0';
    *name = trim(text);
    *value = trim(equals + 1);
    return STATUS_OK;
}

static Status set_line(ModelConfig *config, char *line, bool is_first, Error *error)
{
    char *name, *value;
    TRY(split(line, &name, &value, error));
    if (strcmp(name, "model") != 0)
        return set_value(config, name, value, error);
    const ModelConfig *model = model_named(value);
    if (!is_first)
        return error_set(error, STATUS_BAD_INPUT, "'model' must be the first key: it sets all others");
    if (!model)
        return error_set(error, STATUS_BAD_INPUT, "no model '%s'; there are gpt and mlp", value);
    *config = *model;
    return STATUS_OK;
}

static Status parse_file(const char *path, char *text, ModelConfig *config, Error *error)
{
    bool is_first = true;
    unsigned number = 1;
    for (char *line = text, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line[strcspn(line, "#")] = '\0';
        line = trim(line);
        if (!*line)
            continue;
        const Status status = set_line(config, line, is_first, error);
        if (status != STATUS_OK) {
            error_prefix(error, "%s:%u: ", path, number);
            return status;
        }
        is_first = false;
    }
    return STATUS_OK;
}

Status model_config_load(const char *name, ModelConfig *config, Error *error)
{
    const ModelConfig *model = model_named(name);
    *config = model ? *model : models[0].config;
    if (model)
        return STATUS_OK;
    Arena arena = {0};
    char *text;
    size_t size;
    Status status = file_read(name, &arena, &text, &size, error);
    if (status != STATUS_OK)
        error_prefix(error, "no built-in model (gpt, mlp) and no readable file: ");
    else if (memchr(text, '\0', size))
        status = error_set(error, STATUS_BAD_INPUT, "%s: not a text of 'key = value' lines", name);
    else
        status = parse_file(name, text, config, error);
    arena_free(&arena);
    return status;
}

Status model_config_set(ModelConfig *config, const char *assignment, Error *error)
{
    char *text = strdup(assignment), *name, *value;
    if (!text)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    Status status = split(text, &name, &value, error);
    if (status == STATUS_OK && strcmp(name, "model") == 0)
        status = error_set(error, STATUS_BAD_INPUT, "model = %s: a model sets all keys and comes first: --model %s", value, value);
    else if (status == STATUS_OK)
        status = set_value(config, name, value, error);
    free(text);
    return status == STATUS_BAD_INPUT ? STATUS_BAD_USAGE : status;
}

Status model_config_check(ModelConfig *config, uint32_t stages, Error *error)
{
    if (config->layers == 0)
        config->layers = stages;
    if (config->layers < stages)
        return error_set(error, STATUS_BAD_INPUT, "layers = %u: %u stages need a layer each", (unsigned)config->layers,
                         (unsigned)stages);
    const uint64_t rows = (uint64_t)config->microbatch_size * config->sequence;
    if (rows > message_most / config->hidden)
        return error_set(error, STATUS_BAD_INPUT, "microbatch_size * sequence * hidden is over %llu",
                         (unsigned long long)message_most);
    /* generously: of a layer its context, stash, gradient and what lies between; the head's logits and their gradient */
    const double kept = (double)rows * (config->layers * (32.0 * config->hidden + (double)config->heads * config->sequence) +
                                        2.0 * config->vocabulary);
    if (kept > kept_most)
        return error_set(error, STATUS_BAD_INPUT, "this model is too large: a microbatch leaves about %.1g numbers in it", kept);
    if (config->kind == MODEL_MLP)
        return STATUS_OK;
    if (config->hidden % config->heads != 0)
        return error_set(error, STATUS_BAD_INPUT, "heads = %u does not divide hidden = %u", (unsigned)config->heads,
                         (unsigned)config->hidden);
    if (config->vocabulary < 256)
        return error_set(error, STATUS_BAD_INPUT, "vocabulary = %u: bytes need 256", (unsigned)config->vocabulary);
    return STATUS_OK;
}
