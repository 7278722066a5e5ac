#include "base/bytes.h"
#include "base/counted.h"
#include "base/file.h"
#include "runtime/model/random.h"
#include "runtime/model/spec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files of Debian's base-files package. The first one that can be read is the default text. */
static const char *const default_texts[] = {
    "/usr/share/common-licenses/GPL-3",      "/usr/share/common-licenses/GPL-2",
    "/usr/share/common-licenses/Apache-2.0", "/usr/share/common-licenses/LGPL-2.1",
    "/usr/share/common-licenses/MPL-2.0",
};

static const char *default_text(void)
{
    for (size_t i = 0; i < sizeof default_texts / sizeof *default_texts; i++)
        if (access(default_texts[i], R_OK) == 0)
            return default_texts[i];
    return NULL;
}

static Status open_text(Dataset *dataset, const char *path, Error *error)
{
    if (!path)
        path = default_text();
    if (!path)
        return error_set(error, STATUS_BAD_INPUT,
                         "there is no text to train on: no usual one, such as %s, can be read; name a text file with "
                         "--data FILE",
                         default_texts[0]);
    char *bytes;
    TRY(file_read(path, &dataset->arena, &bytes, &dataset->size, error));
    dataset->text = bytes;
    dataset->name = arena_text(&dataset->arena, path, strlen(path));
    if (!dataset->name)
        return error_set(error, STATUS_RUN_FAILED, "out of memory");
    const size_t window = (size_t)dataset->config.sequence + 1;
    if (dataset->size < 2 * window)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s has %s; training and evaluation with sequence = %u need at least %zu bytes", path,
                         counted(dataset->size, "byte").text, (unsigned)dataset->config.sequence, 2 * window);
    const size_t tenth = dataset->size / 10;
    dataset->training = dataset->size - (tenth > window ? tenth : window);
    return STATUS_OK;
}

static Status open_noise(Dataset *dataset, const char *path, Error *error)
{
    if (path)
        return error_set(error, STATUS_BAD_USAGE, "the %s model reads no data, it trains on noise: leave out --data",
                         model_name(&dataset->config));
    dataset->name = "noise";
    return STATUS_OK;
}

Status dataset_open(const ModelConfig *config, const char *path, Dataset **opened, Error *error)
{
    *opened = NULL;
    Dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset)
        return error_set(error, STATUS_RUN_FAILED, "out of memory while opening the data");
    dataset->config = *config;
    const Status status = config->model->data->open(dataset, path, error);
    if (status != STATUS_OK) {
        dataset_close(dataset);
        return status;
    }
    *opened = dataset;
    return STATUS_OK;
}

void dataset_close(Dataset *dataset)
{
    if (!dataset)
        return;
    arena_free(&dataset->arena);
    free(dataset);
}

uint32_t dataset_checksum(const Dataset *dataset) { return bytes_checksum_on(0, dataset->text, dataset->size); }

const char *dataset_name(const Dataset *dataset) { return dataset->name; }

static void window_at(const Dataset *dataset, size_t sample, size_t start, int32_t *inputs, int32_t *targets)
{
    const size_t sequence = dataset->config.sequence;
    const unsigned char *text = (const unsigned char *)dataset->text + start;
    for (size_t i = 0; i < sequence; i++) {
        if (inputs)
            inputs[sample * sequence + i] = text[i];
        if (targets)
            targets[sample * sequence + i] = text[i + 1];
    }
}

static void draw_text(const Dataset *dataset, uint64_t key, void *inputs, void *targets)
{
    /* the number of bytes at which a window may start: the last target of the last window is the last training byte */
    const size_t starts = dataset->training - dataset->config.sequence;
    for (uint32_t sample = 0; sample < dataset->config.microbatch_size; sample++)
        window_at(dataset, sample, random_bits(key, sample) % starts, inputs, targets);
}

static void draw_noise(const Dataset *dataset, uint64_t key, void *inputs, void *targets)
{
    const size_t count = (size_t)dataset->config.microbatch_size * dataset->config.sequence * dataset->config.hidden;
    float *const wanted[2] = {inputs, targets};
    for (uint64_t which = 0; which < 2; which++)
        for (size_t i = 0; wanted[which] && i < count; i++)
            wanted[which][i] = random_normal(random_key(key, which), i);
}

const DataSource data_text = {.is_text = true, .open = open_text, .draw = draw_text};
const DataSource data_noise = {.open = open_noise, .draw = draw_noise};

/* The key of training data. It differs from the keys of weights, which are small indices. */
enum { TRAINING = 0x74726169 };

void dataset_microbatch(const Dataset *dataset, uint64_t step, uint32_t number, void *inputs, void *targets)
{
    const uint64_t key = random_key(random_key(random_key(dataset->config.seed, TRAINING), step), number);
    dataset->config.model->data->draw(dataset, key, inputs, targets);
}

uint64_t dataset_windows(const Dataset *dataset)
{
    /* a window needs one byte after its last input, as the last target */
    return dataset->text ? (dataset->size - dataset->training - 1) / dataset->config.sequence : 0;
}

Windows held_out_windows(uint64_t windows, uint32_t microbatch_size, uint64_t number)
{
    const uint64_t full = windows / microbatch_size;
    Windows own = {number * microbatch_size, microbatch_size};
    if (number < full)
        return own;
    own = (Windows){full * microbatch_size, 0};
    for (uint64_t at = full;; at++) {
        const uint64_t left = windows - own.first;
        own.count = (uint32_t)left;
        while (own.count && microbatch_size % own.count != 0)
            own.count--;
        if (at == number || !own.count)
            return own;
        own.first += own.count;
    }
}

void dataset_held_out(const Dataset *dataset, Windows windows, void *inputs, void *targets)
{
    for (uint32_t sample = 0; sample < dataset->config.microbatch_size; sample++) {
        const uint64_t window = windows.count ? windows.first + sample % windows.count : 0;
        window_at(dataset, sample, dataset->training + window * dataset->config.sequence, inputs, targets);
    }
}

double dataset_byte_entropy(const Dataset *dataset)
{
    size_t counts[256] = {0};
    for (size_t i = 0; i < dataset->training; i++)
        counts[(unsigned char)dataset->text[i]]++;
    double entropy = 0;
    for (size_t byte = 0; byte < 256; byte++) {
        const double share = (double)counts[byte] / (double)dataset->training;
        if (counts[byte])
            entropy -= share * log(share);
    }
    return entropy;
}
