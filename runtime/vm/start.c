/* Starting weights that a run has saved. */
#include "runtime/vm/machine.h"

#include "runtime/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Status unreadable(const char *path, Error *error)
{
    return error_set(error, STATUS_BAD_INPUT, "%s: %s", path, strerror(errno));
}

/* A line of the file beside the one that it has to be, both without their end. */
static Status check_line(const char *path, const char *found, const char *wanted, Error *error)
{
    if (strcmp(found, wanted) == 0)
        return STATUS_OK;
    const int key = (int)strcspn(wanted, " ");
    if (strncmp(found, wanted, (size_t)key + 1) != 0)
        return error_set(error, STATUS_BAD_INPUT, "%s: no weights that dprun --save wrote: `%.40s` where `%.40s` should stand", path, found, wanted);
    const bool kind = strncmp(wanted, "model ", 6) == 0;
    return error_set(error, STATUS_BAD_INPUT, "%s: of a model of %s, this run's is of %s: %s%.*s%s%s", path, found, wanted,
                     kind ? "--model" : "--set ", kind ? 0 : key, wanted, kind ? " " : "=", found + key + 1);
}

/* Up to the weights: they are of this model, and all there. */
static Status read_head(Session *session, const char *path, FILE *file, Error *error)
{
    char line[200], *wanted = weights_head(&session->model);
    unsigned long long parameters;
    if (!wanted)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the head of the weights");
    Status status = STATUS_OK;
    for (char *next, *own = wanted; status == STATUS_OK && *own; own = next) {
        next = strchr(own, '\n');
        *next++ = 0;
        if (!fgets(line, sizeof line, file))
            status = ferror(file) ? unreadable(path, error) : error_set(error, STATUS_BAD_INPUT, "%s: no weights that dprun --save wrote", path);
        line[strcspn(line, "\n")] = 0;
        if (status == STATUS_OK && *own != '#')
            status = check_line(path, line, own, error);
    }
    free(wanted);
    TRY(status);
    if (!fgets(line, sizeof line, file) || sscanf(line, "parameters %llu", &parameters) != 1 || !fgets(line, sizeof line, file) || *line != '\n')
        return error_set(error, STATUS_BAD_INPUT, "%s: its head does not say how many parameters follow", path);
    const off_t begin = ftello(file);
    if (begin < 0 || fseeko(file, 0, SEEK_END) != 0)
        return unreadable(path, error);
    const uint64_t bytes = (uint64_t)(ftello(file) - begin);
    if (parameters > INT64_MAX / sizeof(float) || bytes != parameters * sizeof(float))
        return error_set(error, STATUS_BAD_INPUT, "%s: %llu bytes follow its head, not those of %llu parameters", path,
                         (unsigned long long)bytes, parameters);
    session->saved_begin = begin;
    session->saved_parameters = parameters;
    return STATUS_OK;
}

Status weights_check(Session *session, Error *error)
{
    const char *path = session->options->load;
    FILE *file = fopen(path, "rb");
    if (!file)
        return unreadable(path, error);
    const Status status = read_head(session, path, file, error);
    fclose(file);
    return status;
}

static Status read_chunk(Rank *rank, const BoundChunk *chunk, uint64_t before, FILE *file, Error *error)
{
    enum { PIECE = 4096 };
    const DeviceTable *run = rank->device->run;
    const StageWeights *weights = &chunk->weights;
    const bool masters = weights->masters != weights->parameters;
    float piece[PIECE];
    if (fseeko(file, rank->session->saved_begin + (off_t)(before * sizeof *piece), SEEK_SET) != 0)
        return unreadable(rank->session->options->load, error);
    for (size_t done = 0, count; done < chunk->sizes->parameters; done += count) {
        const size_t left = chunk->sizes->parameters - done;
        count = left < PIECE ? left : PIECE;
        errno = 0;
        if (fread(piece, sizeof *piece, count, file) != count)
            return errno ? unreadable(rank->session->options->load, error)
                         : error_set(error, STATUS_RUN_FAILED, "%s became shorter", rank->session->options->load);
        TRY(run->load_floats(rank->device, ELEMENTS, count, piece, (char *)weights->parameters + done * run->size[ELEMENTS], error));
        if (masters)
            TRY(run->load_floats(rank->device, MASTERS, count, piece, (char *)weights->masters + done * run->size[MASTERS], error));
    }
    return STATUS_OK;
}

/* Stage after stage, as they lie in the file: who holds the one that counts says how long each is. */
static Status load_stages(Rank *rank, uint64_t *counts, FILE *file, Error *error)
{
    const Session *session = rank->session;
    uint64_t before = 0;
    for (uint32_t s = 0; s < session->loaded->program->stages; s++) {
        const Home *home = &session->counting[s];
        const uint64_t mine = home->rank == rank->number ? rank->chunks[home->chunk].sizes->parameters : 0;
        TRY(rank->transport->gather(rank->endpoint, &mine, sizeof mine, counts, error));
        for (uint32_t c = 0; c < rank->chunk_count; c++)
            if (rank->chunks[c].number == s)
                TRY(read_chunk(rank, &rank->chunks[c], before, file, error));
        before += counts[home->rank];
    }
    if (before == session->saved_parameters)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_INPUT, "%s: %llu parameters; this model has %llu", session->options->load,
                     (unsigned long long)session->saved_parameters, (unsigned long long)before);
}

Status load_weights(Rank *rank, Error *error)
{
    const char *path = rank->session->options->load;
    uint64_t *counts = calloc(rank->session->loaded->program->rank_count, sizeof *counts);
    FILE *file = fopen(path, "rb");
    Status status = !counts ? error_set(error, STATUS_RUN_FAILED, "rank %d: no memory to load its weights", rank->number)
                    : !file ? unreadable(path, error)
                            : load_stages(rank, counts, file, error);
    if (file)
        fclose(file);
    free(counts);
    return status;
}
