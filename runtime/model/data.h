#pragma once

/* Training data. */

#include "base/arena.h"
#include "runtime/model/model.h"

typedef struct DataSource {
    bool is_text; /* reads a file of bytes; the last 10 %, at least sequence + 1 bytes, are held out */
    Status (*open)(Dataset *dataset, const char *path, Error *error);
    /* Writes the inputs and targets of one microbatch. They are random, but depend only on the data set and `key`.
       Either pointer may be NULL. */
    void (*draw)(const Dataset *dataset, uint64_t key, void *inputs, void *targets);
} DataSource;

struct Dataset {
    ModelConfig config;
    Arena arena; /* owns text and name */
    const char *name;
    const char *text;      /* NULL if the source reads no text */
    size_t size, training; /* bytes of the text; the first `training` of them are for training */
};

/* windows of a text as int32: the inputs are bytes, the target of each is the byte after it */
extern const DataSource data_text;
extern const DataSource data_noise; /* inputs and targets are rows of normally distributed floats */
