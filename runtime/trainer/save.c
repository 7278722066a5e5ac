/* Collects the data of all ranks in rank 0's process and writes them: weights, outputs. */
#include "runtime/trainer/rank.h"

#include "base/bytes.h"

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
            /* sets the error at once, because later calls would overwrite errno */
            return error_set(error, STATUS_RUN_FAILED, "%s", strerror(errno));
    }
    return STATUS_OK;
}

/* Makes the head of a file of weights. It depends only on the model, not on the schedule or the number of ranks. The
   caller frees it. NULL: out of memory. */
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
        return error_set(error, STATUS_RUN_FAILED, "no memory for the head of the file of weights");
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

/* The part of a segment (StageSegment) that one member saves. If a group divides the experts, each member saves its own
   experts, and the last member also the zeros that fill up the segment. The first member saves all other segments. */
typedef struct Piece {
    size_t offset, elements, zeros;
} Piece;

static Piece piece_of(const Stage *stage, size_t segment, int member, int members)
{
    const StageSegment own = stage_segment(stage, segment);
    if (!own.of_all)
        return (Piece){own.offset, member == 0 ? own.elements : 0, 0};
    return (Piece){own.offset, own.elements, member + 1 == members ? own.saved - own.of_all : 0};
}

/* Writes the piece of a segment that member `member` of the expert group, counted from 0, saves. `owner`: the number of
   this member in the mesh. `home`: the first copy of the stage. */
static Status save_piece(Rank *rank, const Home *home, size_t segment, int member, int owner, FILE *stream,
                         Error *error)
{
    if (rank->member != owner)
        return collect(rank, owner, NULL, 0, stream, error);
    const BoundChunk *chunk = &rank->chunks[home->chunk];
    const Piece piece = piece_of(chunk->stage, segment, member, expert_members(rank->session));
    const size_t count = piece.elements + piece.zeros;
    const char *master_weights =
        (const char *)chunk->weights.master_weights + piece.offset * rank->device->run->size[MASTER_TYPE];
    float *numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory to save its weights", rank_name(rank).text);
    Status status =
        rank->device->run->store_floats(rank->device, MASTER_TYPE, piece.elements, master_weights, numbers, error);
    if (status == STATUS_OK)
        status = collect(rank, owner, numbers, count * sizeof *numbers, stream, error);
    free(numbers);
    return status;
}

/* Writes all segments of a stage. A rank without the stage does not know their number, so the rank with the first copy
   of the stage tells all others. */
static Status save_stage(Rank *rank, uint32_t stage, FILE *stream, Error *error)
{
    const Session *session = rank->session;
    const Home *home = &session->counting[stage];
    const int members = expert_members(session);
    uint64_t segments = home->rank == rank->member ? stage_segments(rank->chunks[home->chunk].stage) : 0;
    TRY(rank_gather(rank, &segments, sizeof segments, rank->collection.pieces, error));
    memcpy(&segments, rank->collection.pieces + (size_t)home->rank * sizeof segments, sizeof segments);
    for (size_t i = 0; i < segments; i++)
        for (int m = 0; m < members; m++)
            TRY(save_piece(rank, home, i, m, mesh_member(session->mesh, home->rank, m), stream, error));
    return STATUS_OK;
}

Status save_weights(Rank *rank, FILE *stream, Error *error)
{
    uint64_t parameters = 0;
    for (int m = 0; m < member_count(rank); m++)
        parameters += rank_record(rank, m)->parameters;
    Status status = stream ? write_head(rank, parameters, stream, error) : STATUS_OK;
    for (uint32_t s = 0; status == STATUS_OK && s < rank->session->loaded->program->stages; s++)
        status = save_stage(rank, s, stream, error);
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
                return error_set(error, STATUS_RUN_FAILED, "%s: no memory to save its outputs", rank_name(rank).text);
            status =
                rank->device->run->download(rank->device, bytes, chunk->outputs + first->place * each, outputs, error);
        }
        if (status == STATUS_OK)
            status = collect(rank, first->member, outputs, bytes, stream, error);
        free(outputs);
    }
    return status;
}
