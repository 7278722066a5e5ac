/* A session: what all ranks of this process share. Opens, runs and closes it. */
#include "runtime/trainer/rank.h"

#include "balance/balance.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "runtime/launcher/fatal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECES_BYTES = 1 << 20, /* about the size of the buffer that receives pieces from all ranks */
    /* most steps that a trace shows without --trace-steps; fewer if a step has many instructions (KEPT_INSTRUCTIONS) */
    KEPT_STEPS = 16,
    KEPT_INSTRUCTIONS = 1 << 16, /* about how many instructions of a rank a trace shows at most without --trace-steps */
    /* the least deadline while processes start and end: they load libraries then, and machines may be busy */
    QUIET_SECONDS = 30,
};

static void find_counting(Session *session)
{
    const Program *program = session->loaded->program;
    /* from the last rank to the first, so the copy on the lowest rank is stored last and stays */
    for (uint32_t r = program->rank_count; r-- > 0;)
        for (uint32_t c = 0; c < program->ranks[r].chunk_count; c++)
            if (program->ranks[r].chunks[c].pipe == 0)
                session->counting[program->ranks[r].chunks[c].stage] = (Home){(uint16_t)r, (uint8_t)c};
}

static bool is_last(const Program *program, const Chunk *chunk) { return chunk->stage + 1u == program->stages; }

/* Fills in session->ends: where the last stage of each microbatch runs. Returns the largest number of losses that any
   rank has. */
static uint32_t find_ends(Session *session)
{
    const Program *program = session->loaded->program;
    uint32_t most = 0;
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        for (uint32_t i = 0; i < rank->instruction_count; i++)
            for (const Instruction *half = &rank->instructions[i]; half; half = half->second) {
                if (!opcode_is_forward(half->opcode) || !is_last(program, &rank->chunks[half->chunk]))
                    continue;
                const uint32_t number = program->pipes[rank->chunks[half->chunk].pipe].first + half->microbatch;
                session->ends[number] = (End){.member = (int)r, .chunk = half->chunk};
            }
    }
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        uint32_t losses = 0;
        for (uint32_t c = 0; c < rank->chunk_count; c++) {
            const Pipe *pipe = &program->pipes[rank->chunks[c].pipe];
            End *ends = &session->ends[pipe->first];
            for (uint32_t m = 0, place = 0; is_last(program, &rank->chunks[c]) && m < pipe->microbatches; m++)
                if (ends[m].member == (int)r && ends[m].chunk == c) {
                    ends[m].place = place++;
                    ends[m].loss = losses++;
                }
        }
        most = losses > most ? losses : most;
    }
    for (uint32_t m = program->microbatches; m < session->microbatches; m++) { /* microbatches of the other replicas */
        session->ends[m] = session->ends[m - program->microbatches];
        session->ends[m].member += session->mesh.ranks;
    }
    return most;
}

/* Finds the largest sizes of any rank of the program, the ends of all microbatches, and which copy of each stage counts
   (session->counting). False if out of memory. */
static bool survey(Session *session)
{
    const Program *program = session->loaded->program;
    session->counting = arena_array(&session->tables, program->stages, sizeof *session->counting);
    session->ends = arena_array(&session->tables, session->microbatches, sizeof *session->ends);
    if (!session->counting || !session->ends)
        return false;
    find_counting(session);
    for (uint32_t r = 0; r < program->rank_count; r++) {
        const RankProgram *rank = &program->ranks[r];
        const uint32_t forward = session->loaded->forward->ranks[r].instruction_count;
        const uint32_t length = rank->instruction_count > forward ? rank->instruction_count : forward;
        session->longest_stream = length > session->longest_stream ? length : session->longest_stream;
        session->most_chunks = rank->chunk_count > session->most_chunks ? rank->chunk_count : session->most_chunks;
    }
    session->record_bytes = sizeof(RankRecord) + find_ends(session) * sizeof(double);
    return true;
}

static void plan_outputs(Session *session)
{
    const RunOptions *options = session->options;
    session->kept_steps = 1;
    if (options->trace && options->trace_steps) {
        session->kept_steps = (uint32_t)(options->trace_steps < options->steps ? options->trace_steps : options->steps);
    } else if (options->trace) {
        const uint32_t fit = KEPT_INSTRUCTIONS / session->longest_stream;
        session->kept_steps = fit < 1 ? 1 : fit > KEPT_STEPS ? KEPT_STEPS : fit;
    }
    if (options->trace || options->save || options->outputs) {
        const size_t piece = PIECES_BYTES / (size_t)mesh_size(session->mesh) / sizeof(uint64_t) * sizeof(uint64_t);
        session->piece_bytes = piece > 4096 ? piece : 4096;
    }
}

/* Checks the output paths before the first step, so that no training is lost because a file cannot be written. */
static Status check_outputs(const RunOptions *options, Error *error)
{
    const char *const paths[] = {options->outputs, options->save, options->trace, options->profile};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i])
            TRY(file_check(paths[i], error));
    return STATUS_OK;
}

static Status open_world(Session *session, Error *error)
{
    const RunOptions *options = session->options;
    const int members = mesh_size(session->mesh);
    if (options->rank_map && options->rank_map_count != members)
        return error_set(error, STATUS_BAD_USAGE, "--rank-map names %s, but the %s %d",
                         counted((uint64_t)options->rank_map_count, "rank").text,
                         session->mesh.replicas > 1 ? "replicas together have" : "program has", members);
    WorldConfig config = {
        .size = members,
        .replicas = session->mesh.replicas,
        .map = options->rank_map,
        .deadline = options->transport->own_deadline ? options->deadline : 0,
        .deadline_option = "--deadline",
        .link = options->link,
    };
    config.quiet_deadline = config.deadline <= 0 || config.deadline > QUIET_SECONDS ? config.deadline : QUIET_SECONDS;
    return transport_open(options->transport, &config, session->members, error);
}

static Status check_link(const Session *session, Error *error)
{
    const LinkModel *link = &session->options->link;
    const int members = mesh_size(session->mesh);
    if (link->given && strcmp(session->device, "cpu") != 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "--link delays transfers in the host's memory, not those of device %s: use --device cpu",
                         session->device);
    if (link->given && link->last != INT_MAX && link->last >= members)
        return error_set(error, STATUS_BAD_USAGE, "--link: ranks=%d-%d, but ranks have the numbers 0 to %d",
                         link->first, link->last, members - 1);
    return STATUS_OK;
}

/* How many windows the --held-out tokens make: at least one, and no more than the data set has. */
static uint64_t windows_to_try(const Session *session)
{
    const uint64_t all = dataset_windows(session->dataset),
                   wanted = session->options->held_out / session->model.sequence;
    return wanted >= all ? all : wanted > 0 ? wanted : 1;
}

/* Checks --expert-replicas. The experts of a layer and their further copies must divide evenly among the members of an
   expert group, and no member may hold an expert twice. Together they are at most BALANCE_REPLICAS_MAX. */
static Status check_copies(const Session *session, Error *error)
{
    const uint32_t shards = session->loaded->shards, experts = session->model.experts,
                   copies = session->options->expert_replicas;
    const uint64_t physical = (uint64_t)experts + copies, most = (uint64_t)experts * shards;
    if (physical > most)
        return error_set(error, STATUS_BAD_USAGE,
                         "--expert-replicas %u: a rank would hold an expert twice; with experts = %u and "
                         "--expert-parallel %u it can be %llu at most",
                         copies, experts, shards, (unsigned long long)(most - experts));
    if (physical % shards != 0)
        return error_set(error, STATUS_BAD_USAGE,
                         "--expert-replicas %u: %llu physical experts do not divide among --expert-parallel %u ranks; "
                         "--expert-replicas %llu would",
                         copies, (unsigned long long)physical, shards,
                         (unsigned long long)(copies + shards - physical % shards));
    if (physical > BALANCE_REPLICAS_MAX)
        return error_set(error, STATUS_BAD_USAGE, "--expert-replicas %u: a layer can have at most %d physical experts",
                         copies, BALANCE_REPLICAS_MAX);
    return STATUS_OK;
}

static Status check_shards(const Session *session, Error *error)
{
    const ModelConfig *model = &session->model;
    const uint32_t shards = session->loaded->shards;
    if (shards > 1 && !model->experts)
        return error_set(error, STATUS_BAD_USAGE, "--expert-parallel %u: model %s has no experts; --model moe has",
                         shards, model_name(model));
    if (shards < 2)
        return STATUS_OK;
    if (session->options->expert_replicas)
        return check_copies(session, error);
    if (model->experts % shards != 0)
        return error_set(error, STATUS_BAD_USAGE, "--expert-parallel %u does not divide experts = %u", shards,
                         model->experts);
    return STATUS_OK;
}

static Status open_all(Session *session, Error *error)
{
    const RunOptions *options = session->options;
    const Program *program = session->loaded->program;
    const size_t ranks = (size_t)mesh_size(session->mesh);
    session->members = arena_array(&session->tables, ranks, sizeof *session->members);
    session->ranks = arena_array(&session->tables, ranks, sizeof *session->ranks);
    session->own_progress = arena_array(&session->tables, ranks, sizeof *session->own_progress);
    session->watched = arena_array(&session->tables, ranks, sizeof *session->watched);
    if (!session->members || !session->ranks || !session->own_progress || !session->watched || !survey(session))
        return error_set(error, STATUS_RUN_FAILED, "no memory for the tables of %zu ranks", ranks);
    plan_outputs(session);
    if (options->load)
        TRY(weights_check(session, error));
    TRY(check_link(session, error));
    if (!options->simulated) {
        TRY(model_config_check(&session->model, program->stages, error));
        TRY(check_shards(session, error));
        TRY(dataset_open(&session->model, options->data, &session->dataset, error));
        session->held_out = windows_to_try(session);
    }
    TRY(open_world(session, error));
    for (size_t r = 0; r < ranks && options->transport->processes; r++)
        if (session->members[r])
            TRY(session_agree(session, session->members[r], error));
    if (session->members[0])
        TRY(check_outputs(options, error));
    for (size_t r = 0; r < ranks; r++) {
        Progress *progress = session->hooks.progress ? session->hooks.progress : &session->own_progress[r];
        session->ranks[r] = (Rank){
            .session = session,
            .member = (int)r,
            .number = mesh_rank(session->mesh, (int)r),
            .replica = mesh_replica(session->mesh, (int)r),
            .world = session->members[r],
            .progress = progress,
            .squares.clip = 1,
        };
        if (session->members[r])
            progress_reset(progress, (int)r);
    }
    return STATUS_OK;
}

/* Tells the other processes of a failure. They may have opened their sessions and wait for this process; without the
   message they would wait until the deadline. */
static void tell_failure(const Session *session, const Error *error)
{
    for (int r = 0; session->members && r < mesh_size(session->mesh); r++)
        if (session->members[r]) {
            world_abort(session->members[r], error->text);
            return;
        }
}

static const Passes model_passes = {
    .forward = stage_forward,
    .backward_input = stage_backward_input,
    .backward_weight = stage_backward_weight,
    .overlap = stage_overlap,
    .bind = stage_bind,
    .bind_overlap = stage_bind_overlap,
    .run = stage_run,
};

Status session_open(const LoadedProgram *loaded, const RunOptions *options, const SessionHooks *hooks, Session **opened,
                    Error *error)
{
    Session *session = calloc(1, sizeof *session);
    if (!session)
        return error_set(error, STATUS_RUN_FAILED, "no memory for the session");
    session->loaded = loaded;
    session->mesh = loaded_mesh(loaded);
    session->microbatches = loaded->replicas * loaded->program->microbatches;
    session->options = options;
    session->hooks = *hooks;
    session->model = options->model;
    session->device = device_choose(options->simulated ? "cpu" : options->device);
    if (!session->hooks.passes)
        session->hooks.passes = &model_passes;
    Status status = open_all(session, error);
    if (status == STATUS_OK) {
        *opened = session;
        return STATUS_OK;
    }
    if (status != STATUS_BAD_USAGE) /* a wrong command line is found by all processes, in session_agree at the latest */
        tell_failure(session, error);
    session_close(session);
    return status;
}

static void abort_rank(void *of_thread, const char *reason)
{
    const Rank *rank = of_thread;
    world_abort(rank->world, reason);
}

static Status run_threads(Session *session, ProgressWords words, Error *error)
{
    RankThreads threads = {.ranks = session->watched,
                           .work = rank_train,
                           .abort = abort_rank,
                           .words = words,
                           .deadline = session->options->deadline};
    for (int r = 0; r < mesh_size(session->mesh); r++)
        if (session->members[r])
            session->watched[threads.count++] = (WatchedRank){&session->ranks[r], session->ranks[r].progress};
    return watchdog_run(&threads, &session->stuck, error);
}

Status session_run(Session *session, Error *error)
{
    Rank *rank = session->ranks; /* the first rank of this process; under MPI the only one */
    while (!rank->world)
        rank++;
    session->begun = clock_nanoseconds();
    const ProgressWords words = progress_words(session->loaded);
    Status status = STATUS_OK;
    if (!session->options->transport->processes)
        status = run_threads(session, words, error);
    else if ((status = fatal_run(rank->progress, &words, rank_train, rank, error)) != STATUS_OK)
        /* in a run of processes there is no watchdog that aborts the other ranks */
        abort_rank(rank, error->text);
    /* Of a diverged run only rank 0 returns an error: if another process failed, mpirun would kill rank 0. */
    if (status != STATUS_OK || !rank->diverged || rank->member != 0)
        return status;
    *error = session->divergence;
    return STATUS_RUN_FAILED;
}

bool session_close(Session *session)
{
    if (session->stuck)
        return false;
    for (int r = 0; session->members && session->ranks && r < mesh_size(session->mesh); r++)
        if (session->members[r]) {
            rank_close(&session->ranks[r]);
            session->members[r]->run->close(session->members[r]);
        }
    if (session->dataset)
        dataset_close(session->dataset);
    arena_free(&session->tables);
    free(session);
    return true;
}
