/* The toy host (toy.h) trains with seven synchronous schedules. Its losses equal, up to rounding, those of running the
   layers one after the other. */
#include "tests/executor/toy.h"
#include "tests/test.h"

/* Runs the layers one after the other, microbatch after microbatch. */
static void train_in_sequence(Toy *toy, uint32_t count)
{
    double messages[STAGES_MAX + 1][WIDTH], gradients[STAGES_MAX + 1][WIDTH], saved[WIDTH], stash[WIDTH];
    for (uint32_t s = 0; s < count; s++)
        initialize(&toy->layers[s], s);
    for (int step = 0; step < STEPS; step++, toy->loss = 0) {
        for (uint32_t m = 0; m < MICROBATCHES; m++)
            for (int pass = 0; pass < 3; pass++)
                for (uint32_t i = 0; i < count; i++) {
                    const uint32_t s = pass == 1 ? count - 1 - i : i;
                    const bool last = s + 1 == count;
                    const PassSlots slots = {
                        .chunk = s,
                        .number = m,
                        .x = s ? messages[s] : NULL,
                        .y = last ? NULL : messages[s + 1],
                        .dx = s ? gradients[s] : NULL,
                        .dy = last ? NULL : gradients[s + 1],
                        .context = saved,
                        .stash = stash,
                    };
                    (pass == 0 ? forward : pass == 1 ? backward_input : backward_weight)(toy, &slots);
                }
        toy->losses[step] = toy->loss;
        for (uint32_t s = 0; s < count; s++)
            update(toy, s, NULL);
    }
}

TEST(test_schedules)
{
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "dualpipe", "chimera"};
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char command[256], path[64];
        Arena arena = {0};
        Toy toys[RANKS] = {0}, alone = {0};
        World *members[RANKS];
        pthread_t threads[RANKS];
        const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
        snprintf(path, sizeof path, "%s/tests/executor/%s.bin", build, names[n]);
        snprintf(command, sizeof command, "%s/dpc --ranks %d --microbatches %d schedules/%s.dps -o %s >/dev/null",
                 build, RANKS, MICROBATCHES, names[n], path);
        assert_int_equal(system(command), 0);
        assert_int_equal(program_load(path, &(LoadOptions){0}, &arena, &toys[0].loaded, &(Error){""}), STATUS_OK);
        assert_int_equal(transport_open(transports, &(WorldConfig){.size = RANKS}, members, &(Error){""}), STATUS_OK);
        for (int r = 0; r < RANKS; r++) {
            toys[r] = (Toy){.loaded = toys[0].loaded, .world = members[r]};
            assert_int_equal(pthread_create(&threads[r], NULL, toy_thread, &toys[r]), 0);
        }
        for (int r = 0; r < RANKS; r++)
            pthread_join(threads[r], NULL);
        train_in_sequence(&alone, toys[0].loaded.program->stages);
        for (int step = 0; step < STEPS; step++) {
            double loss = 0;
            for (int r = 0; r < RANKS; r++)
                loss += toys[r].losses[step];
            assert_true(fabs(loss - alone.losses[step]) < 1e-12 * loss);
        }
        assert_true(alone.losses[STEPS - 1] < 0.9 * alone.losses[0]);
        for (int r = 0; r < RANKS; r++)
            toy_close(&toys[r]);
        arena_free(&arena);
    }
}

int main(void) { return test_program("toy", NULL, NULL); }
