/* --profile: measures the parts of the model and the transfers, and writes a cost file from which dpc predicts every
   schedule of this model.

   The parts are measured while the program trains as usual. So their times are those of training: other ranks compute
   at the same time, caches hold what earlier passes left, and an activation was computed by another processor. A part
   that is measured alone in a loop would be faster.

   Only the 10 % of the steps that have the shortest makespans are used: on a shared machine these are the least
   disturbed ones. Of these steps every sample is used. With only the fastest samples of each part, dpc would predict a
   step in which all parts are fastest at once.

   The transfers are measured after the last step, by round trips between neighbouring ranks. The fastest 10 % of them
   are used. */
#include "runtime/trainer/rank.h"

#include "base/clock.h"
#include "base/compare.h"
#include "base/counted.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_KEPT = 4096, /* how many steps are kept at most: the last ones */
    LEAST_STEPS = 4,   /* the fewest steps of a profile if --steps is not given */
    SIZES = 2,         /* number of message sizes */
    ROUND_TRIPS = 256, /* the most round trips with one neighbour, for each size of message */
    ROUND_TRIPS_AT_ONCE = 16,
    /* ns of pause before each message: after it the transport's waiting thread sleeps, as it does while a pass runs */
    PAUSE = 200000,
    /* round trips are measured with whole messages and with messages of 1 / SMALL_DIVISOR of that size */
    SMALL_DIVISOR = 64,
};
static const double message_seconds = 1; /* round trips with one neighbour end after this time */

typedef struct ProfiledStep {
    double makespan;
    PartTimes times;
} ProfiledStep;

/* Times are in nanoseconds. */
typedef struct Figure {
    double sum;
    uint64_t count;
    /* the least and the largest mean of a step; for messages, the least and the largest time of a message */
    double least, most;
} Figure;

/* What each rank sends to all others. All ranks use `elapsed` of rank 0; only rank 0 uses the rest. It contains no
   pointers. */
typedef struct Figures {
    Figure parts[2][MODEL_PARTS][PART_PASSES]; /* as in PartTimes */
    double pairs;
    Figure messages[SIZES];
    int64_t elapsed;  /* ns since the round trips with the present neighbour began */
    double gradients; /* bytes of the gradients of the rank's stages; only one copy of a stage counts */
} Figures;

struct Profile {
    PartTimes now; /* the step that runs now: the rank's stages add their times to it */
    int64_t begun;
    uint64_t count; /* number of steps so far */
    uint32_t kept;  /* how many of the fastest steps are used */
    double trips[SIZES][ROUND_TRIPS];
    Figures own, *all; /* [members] */
    ProfiledStep *steps;
};

Status profile_begin(Rank *rank, Error *error)
{
    const uint64_t steps = rank->session->options->steps;
    if (rank->device->run->async)
        return error_set(error, STATUS_BAD_USAGE,
                         "--profile measures on the CPU (--device cpu); on a GPU the costs of stages come from "
                         "dprun --trace and dpc calibrate");
    Profile *profile = arena_array(&rank->tables, 1, sizeof *profile);
    if (profile) {
        profile->steps = arena_array(&rank->tables, steps < STEPS_KEPT ? steps : STEPS_KEPT, sizeof *profile->steps);
        profile->all = arena_array(&rank->tables, (size_t)member_count(rank), sizeof *profile->all);
    }
    if (!profile || !profile->steps || !profile->all)
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory for its profile", rank_name(rank).text);
    for (uint32_t c = 0; c < rank->chunk_count; c++)
        stage_time_parts(rank->chunks[c].stage, &profile->now);
    profile->begun = clock_nanoseconds();
    rank->profile = profile;
    return STATUS_OK;
}

bool profile_is_long_enough(const Rank *rank)
{
    const double seconds = rank->session->options->seconds;
    return rank->profile && seconds > 0 && rank->step >= LEAST_STEPS &&
           (double)(clock_nanoseconds() - rank->profile->begun) >= seconds * 1e9;
}

void profile_step(Rank *rank, double makespan)
{
    Profile *profile = rank->profile;
    profile->steps[profile->count % STEPS_KEPT] = (ProfiledStep){makespan, profile->now};
    profile->count++;
    profile->now = (PartTimes){0};
}

static int compare_steps(const void *left, const void *right)
{
    const double a = ((const ProfiledStep *)left)->makespan, b = ((const ProfiledStep *)right)->makespan;
    return (a > b) - (a < b);
}

/* Moves the 10 % of the kept steps, rounded up, that have the shortest makespans to the front. The first step of the
   run is not used, unless it is the only one. All ranks know the same makespans, so they choose the same steps. */
static void choose_steps(Profile *profile)
{
    const bool first = profile->count > 1 && profile->count <= STEPS_KEPT;
    const uint64_t held = profile->count < STEPS_KEPT ? profile->count : STEPS_KEPT;
    profile->steps += first;
    qsort(profile->steps, held - first, sizeof *profile->steps, compare_steps);
    profile->kept = (uint32_t)(held - first + 9) / 10;
}

static void add(Figure *figure, double sum, uint64_t count, double least, double most)
{
    if (!count)
        return;
    figure->least = figure->count && figure->least < least ? figure->least : least;
    figure->most = figure->most > most ? figure->most : most;
    figure->sum += sum;
    figure->count += count;
}

static void sum_steps(Profile *profile)
{
    choose_steps(profile);
    for (uint32_t s = 0; s < profile->kept; s++) {
        const PartTimes *times = &profile->steps[s].times;
        for (int paired = 0; paired < 2; paired++)
            for (int part = 0; part < MODEL_PARTS; part++)
                for (int pass = 0; pass < PART_PASSES; pass++) {
                    const PartTime *time = &times->parts[paired][part][pass];
                    const double sum = (double)time->nanoseconds, mean = sum / (double)time->count;
                    add(&profile->own.parts[paired][part][pass], sum, time->count, mean, mean);
                }
        profile->own.pairs += (double)times->pairs;
    }
}

/* --- transfers --- */

static Status pass_on(Rank *rank, int peer, bool send, size_t bytes, Error *error)
{
    Message message = {.block = executor_block(rank->executor, 0), .bytes = bytes, .peer = peer, .is_send = send};
    Communicator *pipeline = rank->communicators.pipeline;
    TRY(pipeline->run->post(pipeline, &message, error));
    return pipeline->run->wait(pipeline, &message, error);
}

static int64_t pause_from(int64_t begun)
{
    while (clock_nanoseconds() < begun + PAUSE)
        ;
    return begun + PAUSE;
}

/* Sends a message there and back, with a pause before each direction, so that the receiver is already waiting. On the
   rank that leads, *one_way becomes the time of one direction in ns. */
static Status round_trip(Rank *rank, int peer, bool leads, size_t bytes, double *one_way, Error *error)
{
    if (leads) {
        const int64_t sent = pause_from(clock_nanoseconds());
        TRY(pass_on(rank, peer, true, bytes, error));
        TRY(pass_on(rank, peer, false, bytes, error));
        *one_way = (double)(clock_nanoseconds() - sent - PAUSE) / 2;
        return STATUS_OK;
    }
    TRY(pass_on(rank, peer, false, bytes, error));
    pause_from(clock_nanoseconds());
    return pass_on(rank, peer, true, bytes, error);
}

static size_t message_size(const Rank *rank, int size)
{
    const size_t large = executor_message_bytes(rank->executor), small = large / SMALL_DIVISOR;
    return size ? large : small ? small : 1;
}

/* *enough: whether rank 0 has measured for long enough. All ranks get the same answer, so they stop together. A
   collective of all ranks. */
static Status tell_elapsed(Rank *rank, int64_t begun, bool *enough, Error *error)
{
    Profile *profile = rank->profile;
    profile->own.elapsed = clock_nanoseconds() - begun;
    TRY(rank_gather(rank, &profile->own, sizeof profile->own, profile->all, error));
    *enough = (double)profile->all[0].elapsed >= message_seconds * 1e9;
    return STATUS_OK;
}

/* Measures round trips between neighbouring ranks, all pairs at once: ranks 0 and 1, 2 and 3, ...; with `odd` ranks 1
   and 2, 3 and 4, ... A collective of all ranks. */
static Status exchange(Rank *rank, bool odd, Error *error)
{
    const int ranks = (int)rank->session->loaded->program->rank_count;
    const bool leads = rank->number % 2 == odd;
    const int peer = leads ? rank->number + 1 : rank->number - 1;
    Profile *profile = rank->profile;
    const int64_t begun = clock_nanoseconds();
    bool enough = false;
    int count = 0;
    for (; count < ROUND_TRIPS && !enough; count += ROUND_TRIPS_AT_ONCE) {
        for (int i = count; i < count + ROUND_TRIPS_AT_ONCE && peer >= 0 && peer < ranks; i++)
            for (int size = 0; size < SIZES; size++)
                TRY(round_trip(rank, peer, leads, message_size(rank, size), &profile->trips[size][i], error));
        TRY(tell_elapsed(rank, begun, &enough, error));
    }
    for (int size = 0; size < SIZES && leads && peer < ranks; size++) {
        double *trips = profile->trips[size], sum = 0;
        const int fastest = (count + 9) / 10;
        qsort(trips, (size_t)count, sizeof *trips, compare_doubles);
        for (int i = 0; i < fastest; i++)
            sum += trips[i];
        add(&profile->own.messages[size], sum, (uint64_t)fastest, trips[0], trips[fastest - 1]);
    }
    return STATUS_OK;
}

static Status time_messages(Rank *rank, Error *error)
{
    const Program *program = rank->session->loaded->program;
    bool messages = program->rank_count > 1;
    for (uint32_t r = 0; r < program->rank_count; r++)
        messages = messages && program->ranks[r].slots[SLOT_MESSAGE] > 0;
    for (int odd = 0; odd < 2 && messages; odd++)
        TRY(exchange(rank, odd, error));
    return STATUS_OK;
}

/* --- the cost file --- */

static double mean(const Figure *figure) { return figure->sum / (double)figure->count; }

static void add_all(const Rank *rank, Figures *together)
{
    const Profile *profile = rank->profile;
    *together = (Figures){0};
    for (int r = 0; r < member_count(rank); r++) {
        const Figures *of = &profile->all[r];
        const Figure *from = &of->parts[0][0][0];
        Figure *to = &together->parts[0][0][0];
        for (size_t i = 0; i < sizeof of->parts / sizeof *from; i++)
            add(&to[i], from[i].sum, from[i].count, from[i].least, from[i].most);
        for (int size = 0; size < SIZES; size++)
            add(&together->messages[size], of->messages[size].sum, of->messages[size].count, of->messages[size].least,
                of->messages[size].most);
        together->pairs += of->pairs;
        together->gradients += of->gradients;
    }
}

/* The times of a part's pass outside F&Bs; if it ran only in F&Bs, the times there. NULL: it has not run. */
static const Figure *figure_of(const Figures *figures, int part, int pass)
{
    for (int paired = 0; paired < 2; paired++)
        if (figures->parts[paired][part][pass].count)
            return &figures->parts[paired][part][pass];
    return NULL;
}

/* `sample`: what a sample of the figure is, in the singular; `remark`: words after the number of samples. */
static void put(FILE *stream, const char *key, double value, const Figure *figure, const char *sample,
                const char *remark)
{
    fprintf(stream, "%-16s = %-11.5g # measured: %s%s, %.4g to %.4g\n", key, value, counted(figure->count, sample).text,
            remark, figure->least * 1e-6, figure->most * 1e-6);
}

static void put_parts(const Figures *figures, FILE *stream)
{
    for (int part = 0; part < MODEL_PARTS; part++)
        for (int pass = 0; pass < PART_PASSES; pass++) {
            const Figure *figure = figure_of(figures, part, pass);
            char key[32];
            snprintf(key, sizeof key, "%s.%c", part_names[part], part_pass_letters[pass]);
            if (figure)
                put(stream, key, mean(figure) * 1e-6, figure, "time", "");
        }
}

/* Writes `overlap`: the time of F&Bs divided by the sum of the times that their parts take outside F&Bs. 1 if no F&B
   ran its parts together. */
static void put_overlap(const Figures *figures, const char *device, FILE *stream)
{
    double turn = 0;
    for (int part = 0; part < MODEL_PARTS; part++)
        for (int pass = 0; pass < PART_PASSES; pass++)
            if (figures->parts[1][part][pass].count)
                turn += (double)figures->parts[1][part][pass].count * mean(figure_of(figures, part, pass));
    if (turn > 0)
        fprintf(stream,
                "%-16s = %-11.5g # measured: time of an F&B, divided by that of its parts one after the other\n",
                "overlap", figures->pairs / turn);
    else
        fprintf(stream, "%-16s = %-11d # derived: device %s runs the parts of an F&B one after the other\n", "overlap",
                1, device);
}

static void put_messages(const Rank *rank, const Figures *figures, FILE *stream)
{
    const Figure *small = &figures->messages[0], *large = &figures->messages[1];
    if (!small->count) {
        fprintf(stream, "# There are no times of messages: the program sends none.\n");
        return;
    }
    const double bytes = (double)message_size(rank, 1), fewer = (double)message_size(rank, 0);
    const double slope = (mean(large) - mean(small)) / (bytes - fewer), latency = mean(large) - slope * bytes;
    fprintf(stream, "%-16s = %-11.0f # of a message\n", "bytes", bytes);
    if (slope > 0 && latency > 0) {
        put(stream, "comm", latency * 1e-6, small, "message", "");
        fprintf(stream, "%-16s = %-11.5g # bytes a second; measured: messages of %.0f and of %.0f bytes\n", "bandwidth",
                1e9 / slope, fewer, bytes);
    } else {
        put(stream, "comm", mean(large) * 1e-6, large, "message", ", and those of fewer bytes take no less");
    }
}

static double gradient_bytes(const Rank *rank)
{
    double bytes = 0;
    for (uint32_t c = 0; c < rank->chunk_count && !rank->session->loaded->program->forward_only; c++)
        if (rank->chunks[c].counts)
            bytes += (double)(rank->chunks[c].sizes->parameters * rank->device->run->size[MASTER_TYPE]);
    return bytes;
}

static void put_gradients(const Figures *figures, FILE *stream)
{
    if (figures->gradients > 0)
        fprintf(stream,
                "%-16s = %-11.0f # bytes of the gradient of the whole model, which replicas sum\n"
                "%-16s = %-11d # number of stages of these gradients; with more stages, each has its share\n",
                "gradients", figures->gradients, "stages", 1);
}

static void put_head(const Rank *rank, FILE *stream)
{
    const Session *session = rank->session;
    const Program *program = session->loaded->program;
    const ModelConfig *model = &session->model;
    fputs("# Times of the parts of a model. For dpc --cost @FILE, with any schedule and any number of stages.\n",
          stream);
    fprintf(stream, "# Model %s: layers %u, hidden %u, heads %u, sequence %u, microbatch_size %u, vocabulary %u.\n",
            session->options->model_name ? session->options->model_name : model_name(model), model->layers,
            model->hidden, model->heads, model->sequence, model->microbatch_size, model->vocabulary);
    fprintf(stream,
            "# Measured by dprun --profile with %s on %s, device %s, transport %s: the means over the fastest\n",
            program->schedule, counted((uint64_t)member_count(rank), "rank").text, session->device,
            session->options->transport->name);
    fprintf(stream,
            "# %u of %s. A comment gives the number of samples and the shortest and the longest mean of a step.\n",
            rank->profile->kept, counted(rank->profile->count, "step").text);
    if (rank->times.processors && rank->times.processors < (uint32_t)member_count(rank))
        fprintf(stream,
                "# %u ranks shared %s: the times contain waits for a processor. Fewer ranks give truer times.\n",
                (unsigned)member_count(rank), counted(rank->times.processors, "processor").text);
    fprintf(stream, "%-16s = %-11s # seconds: times are in milliseconds\n", "unit", "1e-3");
    fprintf(stream, "%-16s = %-11u # of all stages together\n", "model_layers", model->layers);
}

Status write_profile(Rank *rank, FILE *stream, Error *error)
{
    Profile *profile = rank->profile;
    Figures together;
    sum_steps(profile);
    profile->own.gradients = gradient_bytes(rank);
    TRY(time_messages(rank, error));
    TRY(rank_gather(rank, &profile->own, sizeof profile->own, profile->all, error));
    if (!stream)
        return STATUS_OK;
    add_all(rank, &together);
    put_head(rank, stream);
    put_parts(&together, stream);
    put_overlap(&together, rank->session->device, stream);
    put_messages(rank, &together, stream);
    put_gradients(&together, stream);
    return STATUS_OK;
}
