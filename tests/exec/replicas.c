/* Replicas of a pipeline give the same numbers as the whole model on one rank that runs the microbatches of all
   replicas: losses, norms of gradients, held-out loss and saved weights of several steps are equal to the bit. The
   losses before the first update also equal those of one pipeline with as many microbatches. In double, the gradients
   of the first step are those of that pipeline, up to rounding. */
#include "tests/sanitized.h"
#include "tests/exec/training.h"

enum { MOST_REPLICAS = 3 };

/* Microbatches per replica. Every schedule that runs on 1, 2 or 4 ranks accepts this number. */
enum { MICROBATCHES = 4 };

static bool compiles(const char *schedule, int ranks, int microbatches, char program[static 200])
{
    char command[1000];
    const char *build = getenv("BUILD");
    snprintf(program, 200, "%s/prog.bin", folder);
    snprintf(command, sizeof command, "%s/dpc --ranks %d --microbatches %d %s -o %s 2>/dev/null",
             build ? build : "build", ranks, microbatches, schedule, program);
    return system(command) == 0;
}

static void compare_with_reference(const char *what, const char *program, const char *model, int replicas,
                                   Result *together)
{
    Result reference;
    train(&(Training){.path = program, .model = model, .replicas = replicas}, together);
    train(&(Training){.path = program, .model = model, .replicas = replicas, .reference = true}, &reference);
    assert_equal_numbers(what, together, &reference);
    release(&reference);
}

/* Compares the losses before the first update with those of one pipeline that runs all microbatches of the replicas. */
static void compare_first_losses(const char *what, const char *schedule, int ranks, const Result *together)
{
    char program[200];
    Result alone;
    assert_true(compiles(schedule, ranks, (int)together->microbatches, program));
    train(&(Training){.path = program, .model = "gpt"}, &alone);
    assert_int_equal(alone.microbatches, together->microbatches);
    for (uint32_t m = 0; m < alone.microbatches; m++)
        if (memcmp(&alone.numbers.losses[0][m], &together->numbers.losses[0][m], sizeof(double)) != 0)
            fail_msg("%s: microbatch %u: the first loss is not that of one pipeline", what, m);
    release(&alone);
}

static void check(const char *schedule, int ranks, int replicas)
{
    char what[300], program[200];
    Result together;
    snprintf(what, sizeof what, "%s, %d ranks, %d replicas", schedule, ranks, replicas);
    if (!compiles(schedule, ranks, MICROBATCHES, program))
        return; /* the schedule does not run on this number of ranks */
    compare_with_reference(what, program, "gpt", replicas, &together);
    if (!together.asynchronous)
        compare_first_losses(what, schedule, ranks, &together);
    release(&together);
}

static void schedule_equals_reference(void **state)
{
    const char *schedule = *state;
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int replicas = 1 + SANITIZED; replicas <= MOST_REPLICAS - SANITIZED; replicas++)
            check(schedule, ranks, replicas);
}

/* In a model with experts, the tokens of each expert are counted over all replicas. */
TEST(experts_equal_reference)
{
    static const char *const schedules[] = {"schedules/zb-h1.dps", "schedules/dualpipe.dps"};
    for (int s = 0; s < 2; s++)
        for (int replicas = 2; replicas <= MOST_REPLICAS; replicas++) {
            char program[200];
            Result together;
            assert_true(compiles(schedules[s], 2, MICROBATCHES, program));
            compare_with_reference(schedules[s], program, experts, replicas, &together);
            release(&together);
        }
}

/* The gradients of the stages in the first step. */
typedef struct Gradients {
    float *values[STAGES_MAX];
    size_t counts[STAGES_MAX];
    pthread_mutex_t lock;
} Gradients;

static void keep_gradient(void *context, const GradientView *view)
{
    Gradients *kept = context;
    pthread_mutex_lock(&kept->lock);
    if (!kept->values[view->stage]) { /* the first copy of the stage to report */
        kept->counts[view->stage] = view->count;
        kept->values[view->stage] = malloc(view->count * sizeof *view->values);
        assert_non_null(kept->values[view->stage]);
        memcpy(kept->values[view->stage], view->values, view->count * sizeof *view->values);
    }
    pthread_mutex_unlock(&kept->lock);
}

/* Runs one step in double, and keeps the gradients. */
static void first_gradients(const char *program, const char *model, int replicas, int shards, Gradients *kept)
{
    char number[32], divided[40];
    snprintf(number, sizeof number, "--replicas=%d", replicas);
    snprintf(divided, sizeof divided, "--expert-parallel=%d", shards);
    *kept = (Gradients){.lock = PTHREAD_MUTEX_INITIALIZER};
    // clang-format off
    char *arguments[] = {"dprun", "--model", (char *)model, "--set", "hidden=16", "--set", "sequence=8", "--set",
                         "layers=4", "--set", "heads=2", "--set", "microbatch_size=2", "--steps", "1",
                         "--transport=local", number, divided, (char *)program, NULL};
    // clang-format on
    Run run;
    run_load(&run, arguments);
    run.line.run.device = "oracle";
    run_to_end(&run, &(SessionHooks){.observer = {.context = kept, .gradient = keep_gradient}});
}

/* Returns how many gradients of a stage can be compared. If replicas divide the experts, these are the gradients of all
   other parameters, which come first. A replica has `together` = others + experts / shards gradients, one pipeline has
   `alone` = others + experts. */
static size_t comparable(size_t together, size_t alone, size_t shards)
{
    return shards > 1 ? (shards * together - alone) / (shards - 1) : alone;
}

static void compare_gradients(const char *schedule, const char *model, int replicas, int shards)
{
    char program[200];
    Gradients together, alone;
    assert_true(compiles(schedule, 2, MICROBATCHES, program));
    first_gradients(program, model, replicas, shards, &together);
    assert_true(compiles(schedule, 2, replicas * MICROBATCHES, program));
    first_gradients(program, model, 1, 1, &alone);
    assert_non_null(alone.values[0]);
    for (int s = 0; s < STAGES_MAX && alone.values[s]; s++) {
        const size_t count = comparable(together.counts[s], alone.counts[s], (size_t)shards);
        assert_in_range(count, 1, together.counts[s]);
        const double difference = gradient_difference(together.values[s], alone.values[s], count);
        if (!(difference < GRADIENT_LIMIT))
            fail_msg("%s, %s, %d replicas: the gradient of stage %d differs by %g from that of one pipeline", schedule,
                     model, replicas, s, difference);
        free(together.values[s]);
        free(alone.values[s]);
    }
    pthread_mutex_destroy(&together.lock);
    pthread_mutex_destroy(&alone.lock);
}

TEST(gradients_are_those_of_one_pipeline)
{
    static const char *const schedules[] = {"schedules/zb-h1.dps", "schedules/dualpipe.dps"};
    for (int s = 0; s < 2; s++)
        for (int replicas = 2; replicas <= MOST_REPLICAS; replicas++) {
            compare_gradients(schedules[s], "gpt", replicas, 1);
            compare_gradients(schedules[s], experts, replicas, 1);
            compare_gradients(schedules[s], experts, replicas, replicas);
        }
}

int main(void)
{
    return test_each_file("replicas", "schedules/*.dps", schedule_equals_reference, make_folder, remove_folder);
}
