/* The work of one rank: opens it, runs the steps, and writes the files together with all other ranks. */
#include "runtime/trainer/rank.h"

#include "base/clock.h"
#include "base/file.h"

#include <stdlib.h>

/* Gathers the records of all ranks. This is also a barrier: no rank continues before all ranks have called it. */
static Status tell(Rank *rank, Error *error)
{
    const atomic_bool *stop = rank->session->hooks.stop;
    rank->records.own->norm = rank->squares.norm;
    rank->records.own->stop =
        (stop && atomic_load_explicit(stop, memory_order_relaxed)) || profile_is_long_enough(rank);
    Status status = rank_gather(rank, rank->records.own, rank->session->record_bytes, rank->records.all, error);
    if (status != STATUS_OK)
        error_prefix(error, "%s, end of step %llu: ", rank_name(rank).text, (unsigned long long)rank->step);
    return status;
}

/* Stores in the record when the first pass or U of the instruction stream began, when the last one ended, and how long
   these took in total. */
static void note_times(Rank *rank, const Program *program)
{
    const Instruction *instructions = program->ranks[rank->number].instructions;
    const int64_t *clock = executor_clock(rank->executor);
    RankRecord *record = rank->records.own;
    record->begun = record->ended = record->busy = 0;
    for (uint32_t i = 0; instructions[i].opcode != OP_END; i++) {
        if (!opcode_is_pass(instructions[i].opcode) && instructions[i].opcode != OP_ASYNC_UPDATE)
            continue;
        if (record->busy == 0)
            record->begun = clock[i];
        record->ended = clock[i + 1];
        record->busy += record->ended - clock[i];
    }
    record->begun = clock_common(rank->times.compared, record->begun);
    record->ended = clock_common(rank->times.compared, record->ended);
}

static Status run_stream(Rank *rank, bool evaluating, Error *error)
{
    const LoadedProgram *loaded = rank->session->loaded;
    ProductClock *products = &rank->device->products;
    *products = (ProductClock){.on = true};
    rank->flights.count = 0;
    rank->components.count = 0;
    TRY(executor_run(rank->executor, evaluating, rank->step, error));
    TRY(stages_read_losses(rank, error));
    note_times(rank, evaluating ? loaded->forward : loaded->program);
    rank->records.own->products = products->nanoseconds;
    rank->records.own->operations = products->operations;
    rank->records.own->all_to_alls = flights_times(&rank->flights);
    TRY(placing_step(rank, error));
    return tell(rank, error);
}

/* The loss of microbatch m (of all replicas) from the gathered records. */
static double told_loss(const Rank *rank, uint32_t m)
{
    const End *end = &rank->session->ends[m];
    return rank_record(rank, end->member)->losses[end->loss];
}

/* Computes the mean loss over the held-out windows, in as many rounds of the forward-only stream as needed. All windows
   have equal weight; microbatches that only fill up the last round do not count. */
static Status evaluate(Rank *rank, double *loss, Error *error)
{
    const Session *session = rank->session;
    const uint32_t microbatches = session->microbatches, size = session->model.microbatch_size;
    double sum = 0;
    for (uint64_t round = 0; held_out_windows(session->held_out, size, round * microbatches).count; round++) {
        TRY(stages_fill(rank, round, true, error));
        TRY(run_stream(rank, true, error));
        for (uint32_t m = 0; m < microbatches; m++)
            sum += held_out_windows(session->held_out, size, round * microbatches + m).count * told_loss(rank, m);
    }
    *loss = sum / (double)session->held_out;
    return STATUS_OK;
}

static bool anyone_stops(const Rank *rank)
{
    bool stops = false;
    for (int r = 0; r < member_count(rank); r++)
        stops |= rank_record(rank, r)->stop != 0;
    return stops;
}

/* Makes the step's report from the records; rank->records.losses and rank->records.busy hold its arrays. */
static StepReport make_report(Rank *rank, int64_t begun)
{
    const uint32_t microbatches = rank->session->microbatches;
    const int members = member_count(rank);
    StepReport report = {
        .step = rank->step,
        .last = rank->step == rank->session->options->steps || anyone_stops(rank),
        .losses = rank->records.losses,
        .seconds = (double)(clock_nanoseconds() - begun) * 1e-9,
        .busy = rank->records.busy,
    };
    for (uint32_t m = 0; m < microbatches; m++)
        report.loss += rank->records.losses[m] = told_loss(rank, m);
    report.loss /= microbatches;
    double cost = 0, busy = 0, layers = 0, placed = 0;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int r = 0; r < members; r++) {
        const RankRecord *record = rank_record(rank, r);
        const double span = (double)(record->ended - record->begun) * 1e-9;
        cost = span > cost ? span : cost;
        report.gradient_norm = larger_norm(report.gradient_norm, record->norm);
        layers += record->tallies.layers;
        report.expert_load += record->tallies.loads;
        report.worst_expert_load = fmax(report.worst_expert_load, record->tallies.worst_load);
        report.balance_loss += record->tallies.balance_loss / microbatches;
        placed += record->placing.layers;
        report.rank_load += record->placing.loads;
        report.worst_rank_load = fmax(report.worst_rank_load, record->placing.worst_load);
        report.moved += record->placing.moved;
        report.placed |= record->placing.placed;
        first = record->begun < first ? record->begun : first;
        last = record->ended > last ? record->ended : last;
        rank->records.busy[r] = (double)record->busy * 1e-9;
        busy += rank->records.busy[r];
        report.product_seconds += (double)record->products * 1e-9;
        report.operations += record->operations;
        report.all_to_all_seconds += (double)record->all_to_alls.in_flight * 1e-9;
        report.all_to_all_waited += (double)record->all_to_alls.waited * 1e-9;
    }
    report.expert_load /= fmax(layers, 1);
    report.rank_load /= fmax(placed, 1);
    report.makespan = (double)(last - first) * 1e-9;
    const double all = cost * members;
    const bool crowded = rank->times.processors && rank->times.processors < (uint32_t)members;
    report.bubble_rate = crowded ? NAN : all > 0 ? (all - busy) / all : 0;
    return report;
}

/* Runs one step, from its data to its report. */
static Status step(Rank *rank, bool *last, Error *error)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const Observer *observer = &session->hooks.observer;
    const int64_t begun = clock_nanoseconds();
    rank->step++;
    TRY(stages_fill(rank, rank->step, false, error));
    rank->squares.norm = 0;
    rank->records.own->tallies = (StageTallies){0};
    TRY(run_stream(rank, false, error));
    trace_keep(rank);
    StepReport report = make_report(rank, begun);
    if (rank->profile)
        profile_step(rank, report.makespan);
    diverged_in_step(rank, &report);
    *last = report.last |= rank->diverged;
    report.has_held_out = report.last && !rank->diverged && !program->forward_only && !session->options->simulated &&
                          !session->options->profile && model_reads_text(&session->model);
    if (report.has_held_out)
        TRY(evaluate(rank, &report.held_out_loss, error));
    report.held_out_tokens = session->held_out * session->model.sequence;
    diverged_on_held_out(rank, report.held_out_loss);
    if (rank->member == 0 && observer->step)
        observer->step(observer->context, &report);
    return STATUS_OK;
}

/* Reports, on rank 0, that every rank is ready and what will run. */
static Status tell_ready(Rank *rank, Error *error)
{
    const Session *session = rank->session;
    const Observer *observer = &session->hooks.observer;
    TRY(tell(rank, error));
    RunFacts facts = {
        .program = session->loaded->program,
        .replicas = session->loaded->replicas,
        .reference = session->loaded->reference,
        .shards = session->loaded->shards,
        .model = &session->model,
        .device = session->options->simulated ? "sim" : session->device,
        .transport = session->options->transport->name,
        .steps = session->options->steps,
        .processors = rank->times.processors,
        .ready_seconds = (double)(clock_nanoseconds() - session->begun) * 1e-9,
    };
    if (session->dataset) {
        facts.data = dataset_name(session->dataset);
        facts.byte_entropy = dataset_byte_entropy(session->dataset);
    }
    for (int r = 0; r < member_count(rank); r++) {
        facts.parameters += rank_record(rank, r)->parameters;
        facts.planned_bytes += rank_record(rank, r)->planned_bytes;
    }
    if (rank->member == 0 && observer->ready)
        observer->ready(observer->context, &facts);
    return STATUS_OK;
}

static Status write_named(Rank *rank, const char *path, Status (*write)(Rank *, FILE *, Error *), Error *error)
{
    OutputFile file;
    TRY((write == trace_steps ? file_begin_text : file_begin)(path, &file, error));
    Status status = write(rank, file.stream, error);
    if (status == STATUS_OK)
        return file_finish(&file, error);
    error_prefix(error, "cannot write %s: ", path);
    file_abandon(&file);
    return status;
}

/* Writes a file. A diverged run uses another name, so it does not overwrite the file of a good run; to standard output,
   a pipe or a device it writes nothing. */
static Status write_file(Rank *rank, const char *path, Status (*write)(Rank *, FILE *, Error *), Error *error)
{
    if (!path)
        return STATUS_OK;
    if (rank->member != 0)
        return write(rank, NULL, error);
    char *other = NULL;
    if (rank->diverged)
        TRY(diverged_path(rank, path, &other, error));
    const Status status =
        rank->diverged && !other ? write(rank, NULL, error) : write_named(rank, other ? other : path, write, error);
    free(other);
    return status;
}

Status compare_clocks(Rank *rank, int which, Error *error)
{
    const bool computes = !rank->session->options->simulated && !rank->device->run->async;
    return clocks_compare(rank->world, computes, &rank->times.compared[which], &rank->times.processors, error);
}

Status rank_train(void *of_thread, Error *error)
{
    Rank *rank = of_thread;
    const RunOptions *options = rank->session->options;
    TRY(rank_open(rank, error));
    if (options->load)
        TRY(load_weights(rank, error));
    if (options->profile)
        TRY(profile_begin(rank, error));
    TRY(compare_clocks(rank, 0, error));
    TRY(tell_ready(rank, error));
    for (bool last = false; !last;)
        TRY(step(rank, &last, error));
    if (options->save)
        TRY(diverged_in_weights(rank, error));
    TRY(write_file(rank, options->outputs, save_outputs, error));
    TRY(write_file(rank, options->save, save_weights, error));
    TRY(write_file(rank, options->trace, trace_steps, error));
    TRY(write_file(rank, options->profile, write_profile, error));
    return tell(rank, error); /* a barrier: no rank closes before all ranks have got here */
}
