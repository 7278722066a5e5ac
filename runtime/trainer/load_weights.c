/* Loads initial weights from a file that a run has saved. */
#include "runtime/trainer/rank.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Status unreadable(const char *path, Error *error)
{
    return error_set(error, STATUS_BAD_INPUT, "%s: %s", path, strerror(errno));
}

static Status no_weights(const char *path, FILE *file, Error *error)
{
    return ferror(file) ? unreadable(path, error)
                        : error_set(error, STATUS_BAD_INPUT, "%s: not a file of weights that dprun --save wrote", path);
}

/* What dprun keeps of a file of weights, apart from the model's settings in its head and the weights. */
typedef struct Head {
    unsigned version;
    unsigned long long parameters;
    off_t begin;       /* offset of the numbers in the file, in bytes */
    uint32_t checksum; /* CRC-32 of the head and the numbers */
} Head;

/* Takes a line of the head, without its line end: `parameters N` into `head`, any other `key value` into the session's
   model. If the user gave another value for the key, the model keeps the user's value, and `contradictions` reports the
   line. A line that begins with # is skipped. */
static Status take_line(Session *session, char *line, Head *head, Error *contradictions, Error *error)
{
    char *value = strchr(line, ' ');
    if (*line == '#' || (value && sscanf(line, "parameters %llu", &head->parameters) == 1))
        return STATUS_OK;
    if (!value)
        return error_set(error, STATUS_BAD_INPUT, "`%.40s` is not `key value`", line);
    *value++ = '\0';
    return model_config_adopt(&session->model, line, value, contradictions, error);
}

static Status read_head(Session *session, const char *path, FILE *file, Head *head, Error *error)
{
    char line[200];
    Error contradictions = {0};
    if (!fgets(line, sizeof line, file) || sscanf(line, "DPSWEIGHTS %u", &head->version) != 1)
        return no_weights(path, file, error);
    if (head->version < 1 || head->version > 2)
        return error_set(error, STATUS_BAD_INPUT, "%s: format %u of saved weights; this dprun reads 1 and 2", path,
                         head->version);
    for (bool more = true; more;) {
        if (!fgets(line, sizeof line, file))
            return no_weights(path, file, error);
        line[strcspn(line, "\n")] = '\0';
        more = *line != '\0';
        const Status status = more ? take_line(session, line, head, &contradictions, error) : STATUS_OK;
        if (status != STATUS_OK) {
            error_prefix(error, "%s: ", path);
            return status;
        }
    }
    head->begin = ftello(file);
    if (!*contradictions.text)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_INPUT,
                     "%s: weights of another model: %s; leave out these settings, because the file has them", path,
                     contradictions.text + 2);
}

/* Checks that all numbers are finite and that the checksum is right. Version 1 of the file has no checksum. */
static Status check_numbers(const char *path, FILE *file, Head *head, Error *error)
{
    enum { PIECE = 1 << 14 };
    float piece[PIECE];
    unsigned char stored[4];
    uint32_t checksum = 0;
    const off_t end = head->begin + (off_t)(head->parameters * sizeof *piece);
    rewind(file);
    for (off_t at = 0, size; at < end; at += size) {
        const off_t left = (at < head->begin ? head->begin : end) - at;
        size = left < (off_t)sizeof piece ? left : (off_t)sizeof piece;
        if (fread(piece, 1, (size_t)size, file) != (size_t)size)
            return no_weights(path, file, error);
        checksum = bytes_checksum_on(checksum, piece, (size_t)size);
        for (off_t i = 0; at >= head->begin && i < size / (off_t)sizeof *piece; i++)
            if (!isfinite(piece[i]))
                return error_set(
                    error, STATUS_BAD_INPUT,
                    "%s: weight %lld is not finite: the run that saved it had diverged, or the file is damaged", path,
                    (long long)((at - head->begin) / (off_t)sizeof *piece + i));
    }
    head->checksum = checksum;
    if (head->version < 2)
        return STATUS_OK;
    if (fread(stored, 1, sizeof stored, file) != sizeof stored)
        return no_weights(path, file, error);
    if (checksum != (stored[0] | (uint32_t)stored[1] << 8 | (uint32_t)stored[2] << 16 | (uint32_t)stored[3] << 24))
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: damaged: its content does not fit its checksum; save the weights again", path);
    return STATUS_OK;
}

static Status check_file(Session *session, const char *path, FILE *file, Error *error)
{
    Head head = {0};
    TRY(read_head(session, path, file, &head, error));
    if (head.begin < 0 || fseeko(file, 0, SEEK_END) != 0)
        return unreadable(path, error);
    const uint64_t checksum = head.version < 2 ? 0 : 4, bytes = (uint64_t)(ftello(file) - head.begin);
    if (head.parameters > INT64_MAX / 8 || bytes != head.parameters * sizeof(float) + checksum)
        return error_set(error, STATUS_BAD_INPUT,
                         "%s: damaged: %llu bytes follow its head, which is not the size of %llu parameters", path,
                         (unsigned long long)bytes, head.parameters);
    TRY(check_numbers(path, file, &head, error));
    session->saved_begin = head.begin;
    session->saved_checksum = head.checksum;
    session->saved_parameters = head.parameters;
    return STATUS_OK;
}

Status weights_check(Session *session, Error *error)
{
    const char *path = session->options->load;
    FILE *file = fopen(path, "rb");
    if (!file)
        return unreadable(path, error);
    const Status status = check_file(session, path, file, error);
    fclose(file);
    return status;
}

/* Reads `elements` numbers of the file, from number `at` on, into the weights of a chunk, from element `offset` on. */
static Status read_numbers(Rank *rank, const StageWeights *weights, size_t offset, size_t elements, uint64_t at,
                           FILE *file, Error *error)
{
    enum { PIECE = 4096 };
    const DeviceTable *run = rank->device->run;
    const bool master_weights = weights->master_weights != weights->parameters;
    float piece[PIECE];
    if (at + elements > rank->session->saved_parameters)
        return error_set(error, STATUS_BAD_INPUT, "%s has %llu parameters, but this model has more",
                         rank->session->options->load, (unsigned long long)rank->session->saved_parameters);
    if (fseeko(file, rank->session->saved_begin + (off_t)(at * sizeof *piece), SEEK_SET) != 0)
        return unreadable(rank->session->options->load, error);
    for (size_t done = 0, count; done < elements; done += count) {
        const size_t left = elements - done;
        count = left < PIECE ? left : PIECE;
        errno = 0;
        if (fread(piece, sizeof *piece, count, file) != count)
            return errno ? unreadable(rank->session->options->load, error)
                         : error_set(error, STATUS_RUN_FAILED,
                                     "%s became shorter while dprun read it: is another run saving to it?",
                                     rank->session->options->load);
        TRY(run->load_floats(rank->device, COMPUTE_TYPE, count, piece,
                             (char *)weights->parameters + (offset + done) * run->size[COMPUTE_TYPE], error));
        if (master_weights)
            TRY(run->load_floats(rank->device, MASTER_TYPE, count, piece,
                                 (char *)weights->master_weights + (offset + done) * run->size[MASTER_TYPE], error));
    }
    return STATUS_OK;
}

/* Reads the weights of a chunk. `at`: where the stage begins in the file, in numbers. If a group divides the experts,
   only the experts that this member holds are read. */
static Status read_chunk(Rank *rank, const BoundChunk *chunk, uint64_t at, FILE *file, Error *error)
{
    const ExpertGroup *group = rank->model.expert_group;
    for (size_t i = 0; i < stage_segments(chunk->stage); i++) {
        const StageSegment segment = stage_segment(chunk->stage, i);
        const size_t own = segment.of_all && group ? (size_t)group->self * segment.elements : 0;
        const size_t each = segment.of_all ? segment.expert : segment.elements;
        /* with copies of experts a segment can be larger than the experts in the file: then the experts' matrices
           repeat from the first expert on */
        for (size_t done = 0; done < segment.elements; done += each)
            TRY(read_numbers(rank, &chunk->weights, segment.offset + done, each,
                             at + (segment.of_all ? (own + done) % segment.of_all : 0), file, error));
        at += segment.saved;
    }
    return STATUS_OK;
}

/* Loads stage after stage, in the order of the file. A rank that does not hold a stage does not know how long the
   stage's part of the file is, so the rank with the first copy of the stage tells all others. */
static Status load_stages(Rank *rank, uint64_t *counts, FILE *file, Error *error)
{
    const Session *session = rank->session;
    uint64_t before = 0;
    for (uint32_t s = 0; s < session->loaded->program->stages; s++) {
        const Home *home = &session->counting[s];
        const uint64_t mine = home->rank == rank->member ? rank->chunks[home->chunk].sizes->saved : 0;
        TRY(rank_gather(rank, &mine, sizeof mine, counts, error));
        for (uint32_t c = 0; c < rank->chunk_count; c++)
            if (rank->chunks[c].number == s)
                TRY(read_chunk(rank, &rank->chunks[c], before, file, error));
        before += counts[home->rank];
    }
    if (before == session->saved_parameters)
        return STATUS_OK;
    return error_set(error, STATUS_BAD_INPUT, "%s has %llu parameters, but this model has %llu", session->options->load,
                     (unsigned long long)session->saved_parameters, (unsigned long long)before);
}

Status load_weights(Rank *rank, Error *error)
{
    const char *path = rank->session->options->load;
    uint64_t *counts = calloc((size_t)member_count(rank), sizeof *counts);
    FILE *file = fopen(path, "rb");
    Status status = !counts
                        ? error_set(error, STATUS_RUN_FAILED, "%s: no memory to load its weights", rank_name(rank).text)
                    : !file ? unreadable(path, error)
                            : load_stages(rank, counts, file, error);
    if (file)
        fclose(file);
    free(counts);
    return status;
}
