/* Collects the data of all ranks in rank 0's process and writes them: weights, outputs. */
#include "runtime/trainer/rank.h"

#include "runtime/base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

Status collect(Rank *rank, int owner, const void *mine, size_t bytes, FILE *stream, Error *error)
{
    const size_t most = rank->session->piece_bytes;
    memcpy(rank->collection.piece, &bytes, sizeof bytes);
    TRY(rank_gather(rank, rank->collection.piece, sizeof bytes, rank->collection.pieces, error));
    memcpy(&bytes, rank->collection.pieces + (size_t)owner * sizeof bytes, sizeof bytes);
    for (size_t done = 0; done < bytes; done += most) {
        const size_t piece = bytes - done < most ? bytes - done : most;
        if (rank->member == owner)
            memcpy(rank->collection.piece, (const char *)mine + done, piece);
        TRY(rank_gather(rank, rank->collection.piece, piece, rank->collection.pieces, error));
        if (!stream)
            continue;
        rank->collection.checksum =
            bytes_checksum_on(rank->collection.checksum, rank->collection.pieces + (size_t)owner * piece, piece);
        if (fwrite(rank->collection.pieces + (size_t)owner * piece, 1, piece, stream) != piece)
            /* returns at once, as later calls would overwrite errno */
            return error_set(error, STATUS_RUN_FAILED, "%s", strerror(errno));
    }
    return STATUS_OK;
}

/* The head of a file of weights. It depends only on the model, not on the schedule or the number of ranks. NULL: no
   memory. The caller frees it. */
static char *weights_head(const ModelConfig *model, uint64_t parameters)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return NULL;
    fputs(
        "DPSWEIGHTS 2\n"
        "# Lines of text up to the first empty one, then `parameters` numbers, float32 little-endian: the layers in "
        "the\n"
        "# order of the model, of each layer its components, of each component its matrices and vectors, row by row, "
        "each\n"
        "# filled up with zeros to a multiple of 16. Then the CRC-32 of all before it, in four bytes, little-endian.\n",
        stream);
    model_config_write_sizes(model, stream);
    fprintf(stream, "parameters %llu\n\n", (unsigned long long)parameters);
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

static Status write_head(Rank *rank, uint64_t parameters, FILE *stream, Error *error)
{
    char *head = weights_head(&rank->session->model, parameters);
    if (!head)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the head of the weights");
    fputs(head, stream);
    rank->collection.checksum = bytes_checksum_on(0, head, strlen(head));
    free(head);
    return STATUS_OK;
}

static void write_checksum(uint32_t checksum, FILE *stream)
{
    for (int shift = 0; shift < 32; shift += 8)
        putc((int)(checksum >> shift & 0xff), stream);
}

Status save_weights(Rank *rank, FILE *stream, Error *error)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    uint64_t parameters = 0;
    for (int r = 0; r < member_count(rank); r++)
        parameters += rank_record(rank, r)->parameters;
    Status status = stream ? write_head(rank, parameters, stream, error) : STATUS_OK;
    for (uint32_t s = 0; status == STATUS_OK && s < program->stages; s++) {
        const Home *home = &session->counting[s];
        float *weights = NULL;
        size_t count = 0;
        if (home->rank == rank->member) {
            const BoundChunk *chunk = &rank->chunks[home->chunk];
            count = chunk->sizes->parameters;
            weights = malloc(count * sizeof *weights);
            if (!weights)
                return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its weights to be saved",
                                 rank_name(rank).text);
            status =
                rank->device->run->store_floats(rank->device, MASTERS, count, chunk->weights.masters, weights, error);
        }
        if (status == STATUS_OK)
            status = collect(rank, home->rank, weights, count * sizeof *weights, stream, error);
        free(weights);
    }
    if (stream)
        write_checksum(rank->collection.checksum, stream);
    return status;
}

Status save_outputs(Rank *rank, FILE *stream, Error *error)
{
    const uint32_t microbatches = rank->session->microbatches;
    const End *ends = rank->session->ends;
    Status status = STATUS_OK;
    for (uint32_t m = 0, next; status == STATUS_OK && m < microbatches; m = next) {
        const End *first = &ends[m];
        next = m + 1; /* consecutive microbatches of one chunk are written together */
        while (next < microbatches && ends[next].member == first->member && ends[next].chunk == first->chunk)
            next++;
        char *outputs = NULL;
        size_t bytes = 0;
        if (first->member == rank->member) {
            const BoundChunk *chunk = &rank->chunks[first->chunk];
            const size_t each = chunk->sizes->outputs * sizeof(float);
            bytes = (next - m) * each;
            outputs = malloc(bytes);
            if (!outputs)
                return error_set(error, STATUS_RUN_FAILED, "%s: no memory for the outputs to be saved",
                                 rank_name(rank).text);
            status =
                rank->device->run->download(rank->device, bytes, chunk->outputs + first->place * each, outputs, error);
        }
        if (status == STATUS_OK)
            status = collect(rank, first->member, outputs, bytes, stream, error);
        free(outputs);
    }
    return status;
}
