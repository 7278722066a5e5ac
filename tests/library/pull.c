/* A host that drives the loop itself. All ranks run in one thread; each runs until it must wait for a message or
   sum. */

#include "tests/library/chain.h"

#include <glob.h>

/* --- a transport within one thread: a message is copied when both ends are posted --- */

typedef struct Channel {
    Vector *sends[4096], *receives[4096];
    bool *sent[4096], *received[4096];
    uint32_t send_count, receive_count;
} Channel;

typedef struct Run {
    Host hosts[RANKS_MAX];
    uint32_t ranks;
    Channel channels[RANKS_MAX][RANKS_MAX]; /* [from][to] */
    bool settled[RANKS_MAX][4096];          /* [rank][message slot] */
    bool posted[RANKS_MAX][CHUNKS_MAX], summed[RANKS_MAX][CHUNKS_MAX];
} Run;

static void meet(Channel *channel, uint32_t k)
{
    if (k >= channel->send_count || k >= channel->receive_count)
        return;
    *channel->receives[k] = *channel->sends[k];
    *channel->sent[k] = *channel->received[k] = true;
}

static void post(Run *run, const Host *host, const dps_instruction *action)
{
    const bool sends = action->opcode == DPS_SEND_FORWARD || action->opcode == DPS_SEND_BACKWARD;
    const uint32_t self = host->number, peer = (uint32_t)action->peer;
    Channel *channel = sends ? &run->channels[self][peer] : &run->channels[peer][self];
    uint32_t *count = sends ? &channel->send_count : &channel->receive_count;
    bool *settled = &run->settled[self][action->message];
    assert_true(*count < 4096);
    (sends ? channel->sends : channel->receives)[*count] = message(host, action->message);
    (sends ? channel->sent : channel->received)[*count] = settled;
    *settled = false;
    meet(channel, (*count)++);
}

/* Posts the gradient of the action's chunk. Adds up the gradients of the group when all members have posted theirs. */
static void sum(Run *run, const Host *host, const dps_instruction *action)
{
    dps_group_member member = {.size = sizeof member};
    const uint32_t group = (uint32_t)action->group;
    Vector total = {{0}};
    run->posted[host->number][action->chunk] = true;
    for (uint32_t m = 0; dps_get_group_member(host->program, group, m, &member) == DPS_OK; m++) {
        if (!run->posted[member.rank][member.chunk])
            return;
        for (int i = 0; i < WIDTH; i++)
            total.of[i] += run->hosts[member.rank].gradients[member.chunk].of[i];
    }
    for (uint32_t m = 0; dps_get_group_member(host->program, group, m, &member) == DPS_OK; m++) {
        run->hosts[member.rank].gradients[member.chunk] = total;
        run->posted[member.rank][member.chunk] = false;
        run->summed[member.rank][member.chunk] = true;
    }
}

/* --- the loop of a host --- */

static int run_pass(Host *host, const dps_instruction *pass)
{
    switch (pass->opcode) {
    case DPS_FORWARD:
    case DPS_FORWARD_ONLY: return chain_forward(host, pass);
    case DPS_BACKWARD: return chain_backward_input(host, pass) || chain_backward_weight(host, pass);
    case DPS_BACKWARD_INPUT: return chain_backward_input(host, pass);
    case DPS_BACKWARD_WEIGHT: return chain_backward_weight(host, pass);
    case DPS_OVERLAP:
    case DPS_OVERLAP_FORWARD: return chain_forward(host, pass) || run_pass(host, pass->second);
    case DPS_UPDATE: return chain_update(host, pass);
    case DPS_ASYNC_UPDATE: return chain_update_async(host, pass);
    default: return 0;
    }
}

/* Runs an action. False: it has to wait for another rank. */
static bool perform(Run *run, Host *host, const dps_instruction *action)
{
    bool *const summed = &run->summed[host->number][action->chunk < 0 ? 0 : action->chunk];
    switch (action->opcode) {
    case DPS_SEND_FORWARD:
    case DPS_SEND_BACKWARD:
    case DPS_RECEIVE_FORWARD:
    case DPS_RECEIVE_BACKWARD: post(run, host, action); return true;
    case DPS_WAIT: return run->settled[host->number][action->message];
    case DPS_REDUCE:
        if (action->group >= 0)
            sum(run, host, action);
        return true;
    case DPS_WAIT_REDUCE:
        if (action->group >= 0 && !*summed)
            return false;
        *summed = false;
        return true;
    default: assert_int_equal(run_pass(host, action), 0); return true;
    }
}

/* Runs a rank until it waits for another rank. True: its step has ended. */
static bool advance(Run *run, Host *host, const dps_instruction **waiting)
{
    for (const dps_instruction *action = *waiting;; action = NULL) {
        if (!action)
            assert_int_equal(dps_next(host->rank, &action), DPS_OK);
        *waiting = action;
        if (action->opcode == DPS_END)
            return true;
        if (!perform(run, host, action))
            return false;
        assert_int_equal(dps_done(host->rank, action, DPS_OK), DPS_OK);
    }
}

/* One step of all ranks; returns the loss. */
static double step(Run *run)
{
    const dps_instruction *waiting[RANKS_MAX] = {NULL};
    double loss = 0;
    memset(run->channels, 0, sizeof run->channels);
    for (uint32_t ended = 0, rounds = 0; ended < run->ranks; rounds++) {
        assert_true(rounds < 100000); /* more rounds: the ranks wait for each other forever */
        for (uint32_t r = 0; r < run->ranks; r++)
            if (!waiting[r] || waiting[r]->opcode != DPS_END)
                ended += advance(run, &run->hosts[r], &waiting[r]);
    }
    for (uint32_t r = 0; r < run->ranks; r++) {
        loss += run->hosts[r].loss;
        run->hosts[r].loss = 0;
    }
    return loss;
}

static Run *run_open(dps *d, const dps_program *program, int post_early)
{
    Run *run = calloc(1, sizeof *run);
    dps_program_info info = {.size = sizeof info};
    assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
    run->ranks = info.ranks;
    for (uint32_t r = 0; r < run->ranks; r++)
        host_open(&run->hosts[r], d, program, r,
                  &(dps_rank_options){.size = sizeof(dps_rank_options), .ranks = info.ranks, .post_early = post_early});
    return run;
}

static void run_close(Run *run)
{
    for (uint32_t r = 0; r < run->ranks; r++)
        host_close(&run->hosts[r]);
    free(run);
}

/* --- tests --- */

enum { STEPS = 3, RANKS = 4, MICROBATCHES = 8 };

/* Trains with one schedule, with messages posted early or not. Compares losses and weights with those of the same model
   (chain.h) without a pipeline; an asynchronous schedule only has to run. */
static void train(dps *d, const dps_program *program, int post_early)
{
    dps_program_info info = {.size = sizeof info};
    assert_int_equal(dps_get_program_info(program, &info), DPS_OK);
    Run *run = run_open(d, program, post_early);
    Vector weights[STAGES_MAX];
    for (uint32_t s = 0; s < info.stages; s++)
        weights[s] = initial_weights(s);
    for (int i = 0; i < STEPS; i++) {
        const double loss = step(run);
        if (!info.is_asynchronous)
            assert_equal_numbers(loss, chain_step(weights, &info));
    }
    for (uint32_t r = 0; r < run->ranks && !info.is_asynchronous; r++)
        assert_weights(&run->hosts[r], weights);
    run_close(run);
}

TEST(every_schedule_trains)
{
    glob_t files;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    dps *d = dps_new(NULL);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        dps_program *program = compiled(d, files.gl_pathv[i], RANKS, MICROBATCHES);
        train(d, program, 0);
        train(d, program, 1);
        dps_program_free(program);
    }
    globfree(&files);
    dps_free(d);
}

/* The actions are the instructions of the program, in its order; with messages posted early, the same instructions in
   another order. */
TEST(actions_are_the_instructions_of_the_program)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/dualpipe.dps", RANKS, MICROBATCHES);
    for (int post_early = 0; post_early < 2; post_early++) {
        dps_rank *rank;
        bool seen[4096] = {false};
        int moved = 0, pairs = 0;
        const dps_rank_options options = {.size = sizeof options, .post_early = post_early};
        const dps_instruction *action;
        assert_int_equal(dps_rank_open(d, program, 1, &options, &rank), DPS_OK);
        for (int32_t n = 0; dps_next(rank, &action) == DPS_OK; n++) {
            dps_instruction plain = {.size = sizeof plain};
            assert_int_equal(dps_get_instruction(program, 1, (uint32_t)action->index, 0, &plain), DPS_OK);
            assert_memory_equal(action, &plain, offsetof(dps_instruction, second));
            assert_null(plain.second);
            assert_int_equal(action->second != NULL, action->halves == 2);
            if (action->second) {
                assert_int_equal(dps_get_instruction(program, 1, (uint32_t)action->index, 1, &plain), DPS_OK);
                assert_memory_equal(action->second, &plain, offsetof(dps_instruction, second));
                pairs++;
            }
            assert_false(seen[action->index]);
            seen[action->index] = true;
            moved += action->index != n;
            if (action->opcode == DPS_END)
                break;
            assert_int_equal(dps_done(rank, action, DPS_OK), DPS_OK);
        }
        assert_true(post_early ? moved > 0 : moved == 0);
        assert_true(pairs > 0);
        dps_rank_free(rank);
    }
    dps_program_free(program);
    dps_free(d);
}

/* The forward half computes the loss, and changes no weights. */
TEST(the_forward_half_evaluates)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/zb-v.dps", RANKS, MICROBATCHES), *forward, *again;
    assert_int_equal(dps_forward_half(d, program, &forward), DPS_OK);
    /* a forward-only program has a forward half, too */
    assert_int_equal(dps_forward_half(d, forward, &again), DPS_OK);
    dps_program_free(again);
    dps_program_info info = {.size = sizeof info};
    assert_int_equal(dps_get_program_info(forward, &info), DPS_OK);
    assert_true(info.is_forward_only);
    dps_prediction *prediction;
    assert_int_equal(dps_predict(d, forward, NULL, 0, &prediction), DPS_OK);
    for (dps_format format = DPS_CSV; format <= DPS_TRACE; format++) {
        char *text;
        size_t length;
        assert_int_equal(dps_render(d, prediction, format, 0, &text, &length), DPS_OK);
        dps_release(d, text);
    }
    dps_prediction_free(prediction);
    for (uint32_t r = 0; r < RANKS; r++) {
        dps_rank_info whole = {.size = sizeof whole}, half = {.size = sizeof half};
        dps_get_rank_info(program, r, &whole);
        dps_get_rank_info(forward, r, &half);
        for (int class = 0; class < DPS_SLOT_CLASSES; class ++)
            assert_true(half.slots[class] <= whole.slots[class]);
    }
    dps_program_free(program);
    Run *run = run_open(d, forward, 0);
    Vector weights[STAGES_MAX];
    for (uint32_t s = 0; s < info.stages; s++)
        weights[s] = initial_weights(s);
    const double loss = chain_step(weights, &info);
    assert_equal_numbers(step(run), loss);
    assert_equal_numbers(step(run), loss);
    run_close(run);
    dps_program_free(forward);
    dps_free(d);
}

TEST(calls_in_the_wrong_order_are_refused)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/1f1b.dps", 2, 4);
    dps_rank *rank;
    const dps_instruction *first, *none, *next;
    assert_int_equal(dps_rank_open(d, program, 0, NULL, &rank), DPS_OK);
    assert_int_equal(dps_next(rank, &first), DPS_OK);
    assert_int_equal(dps_next(rank, &none), DPS_BAD_USAGE);
    assert_null(none);
    assert_string_equal(dps_rank_error(rank),
                        "rank 0: dps_next: the action before this one is not done: call dps_done first");
    assert_int_equal(dps_done(rank, first + 1, DPS_OK), DPS_BAD_USAGE);
    assert_int_equal(dps_done(rank, NULL, DPS_OK), DPS_BAD_USAGE);
    /* the refused calls above have changed nothing, so the rank can continue */
    assert_int_equal(dps_done(rank, first, DPS_OK), DPS_OK);
    assert_int_equal(dps_done(rank, first, DPS_OK), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_rank_error(rank), "dps_done: this is not the action"));
    assert_int_equal(dps_next(rank, &next), DPS_OK);
    assert_int_equal(next->index, 1);
    dps_rank_free(rank); /* a rank may be freed in the middle of a step */
    dps_rank_free(NULL);
    dps_program_free(program);
    dps_free(d);
}

TEST(a_failure_names_its_instruction)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/1f1b.dps", 2, 4);
    dps_rank *rank;
    const dps_instruction *action, *none;
    char expected[300], text[200];
    assert_int_equal(dps_rank_open(d, program, 1, NULL, &rank), DPS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dps_next(rank, &action), DPS_OK);
        assert_int_equal(dps_done(rank, action, DPS_OK), DPS_OK);
    }
    assert_int_equal(dps_next(rank, &action), DPS_OK);
    dps_reason(rank, "no memory for the activations");
    assert_int_equal(dps_done(rank, action, DPS_NO_MEMORY), DPS_NO_MEMORY);
    dps_instruction_text(program, 1, 2, text, sizeof text);
    snprintf(expected, sizeof expected, "rank 1, instruction 2 (%s, 1f1b.dps:%d): no memory for the activations", text,
             action->line);
    assert_string_equal(dps_rank_error(rank), expected);
    assert_int_equal(dps_next(rank, &none), DPS_NO_MEMORY); /* a rank that has failed once fails at every later call */
    assert_null(none);
    assert_int_equal(dps_done(rank, action, DPS_OK), DPS_NO_MEMORY);
    assert_string_equal(dps_rank_error(rank), expected);
    dps_rank_free(rank);
    dps_program_free(program);
    dps_free(d);
}

TEST(a_program_for_another_number_of_ranks_is_refused)
{
    dps *d = dps_new(NULL);
    dps_program *program = compiled(d, "schedules/1f1b.dps", 4, 8);
    dps_rank *rank;
    const dps_rank_options eight = {.size = sizeof eight, .ranks = 8}, no_size = {.ranks = 4};
    assert_int_equal(dps_rank_open(d, program, 4, NULL, &rank), DPS_BAD_USAGE);
    assert_null(rank);
    assert_string_equal(dps_error(d), "1f1b has ranks 0 to 3: there is no rank 4");
    assert_int_equal(dps_rank_open(d, program, 0, &eight, &rank), DPS_BAD_USAGE);
    assert_string_equal(dps_error(d), "1f1b was compiled for 4 ranks, but you run 8: compile it for 8");
    assert_int_equal(dps_rank_open(d, program, 0, &no_size, &rank), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_error(d), "dps_rank_options"));
    dps_program_free(program);
    program = compiled(d, "schedules/1f1b.dps", 1, 8);
    assert_int_equal(dps_rank_open(d, program, 0, &eight, &rank), DPS_BAD_USAGE);
    assert_string_equal(dps_error(d), "1f1b was compiled for 1 rank, but you run 8: compile it for 8");
    dps_program_free(program);
    dps_free(d);
}

int main(void) { return test_program("pull", NULL, NULL); }
