/* Bound lists of the CUDA device, on the mock runtime. An F&B gives the same numbers as its halves one after the other.
   Every necessary dependence is in the table, for the recipes of schedules and for random ones, at the sizes of real
   models. Lists share a table only if their addresses are equal. The memory of tables is counted and limited. A launch
   leaves multiprocessors to the kernels of libraries. */

#include "runtime/model/stage.h"
#include "tests/cuda/runs.h"
#include "tests/device/run_op.h"
#include "tests/model/harness.h"
#include "tests/model/recipes.h"

#include <glob.h>

/* The computing components of the F&B of schedules/dualpipe.dps. */
static const Recipe published = {.entries = {DUALPIPE_COMPUTE}, .counts = {6}};

enum { PIPELINE = 3 };

/* A stage's forward of one microbatch, and its backward of another. */
typedef struct Work {
    Device *device;
    Stage *stage;
    StageWeights weights;
    Slots slots[2];
    StagePair pair;
} Work;

static const Recipe unsaid;

static Work begin_work(const char *layers)
{
    const char *const small[] = {"hidden=8", "heads=2", "sequence=8", layers, NULL};
    const ModelConfig config = config_of("gpt", small, PIPELINE);
    Work work = {.device = NULL};
    OK(device_open("cuda-fp32", 0, &work.device, error));
    OK(stage_open(&config, work.device, 1, PIPELINE, 1, &work.stage, error));
    work.weights = weights_of(work.device, work.stage);
    const StageSizes *sizes = stage_sizes(work.stage);
    for (int i = 0; i < 2; i++)
        make_slots(work.device, sizes, false, false, work.weights, &work.slots[i]);
    OK(stage_forward(work.stage, &work.slots[1].buffers, error));
    work.pair = (StagePair){.forward = work.stage,
                            .backward = work.stage,
                            .forward_buffers = work.slots[0].buffers,
                            .backward_buffers = work.slots[1].buffers,
                            .weights = true};
    return work;
}

static void end_work(Work *work)
{
    for (int i = 0; i < 2; i++)
        free_slots(work->device, &work->slots[i]);
    free_weights(work->device, work->weights);
    stage_close(work->stage);
    device_close(work->device);
    mock_kernels_end();
}

/* The results of an F&B, in an array of `count` floats that the caller frees: y of the F, then dx of the backward, then
   the gradients of the weights. */
static float *results(const Work *work, size_t *count)
{
    const StageSizes *sizes = stage_sizes(work->stage);
    *count = 2 * sizes->message + sizes->parameters;
    float *all = malloc(*count * sizeof *all);
    OK(work->device->run->store_floats(work->device, COMPUTE_TYPE, sizes->message, work->slots[0].y, all, error));
    OK(work->device->run->store_floats(work->device, COMPUTE_TYPE, sizes->message, work->slots[1].dx,
                                       all + sizes->message, error));
    OK(work->device->run->store_floats(work->device, MASTER_TYPE, sizes->parameters, work->weights.gradients,
                                       all + 2 * sizes->message, error));
    return all;
}

/* IN_TURN: the passes run operation by operation. ALONE: each pass is one launch, because the model is small. TOGETHER:
   an F&B is one launch, or several if one table does not hold its operations. */
typedef enum Mode { IN_TURN, ALONE, TOGETHER, MODES } Mode;

/* In one launch, even if DeviceFusion says that its products are too large for one. */
static void run_together(const StagePair *pair, const Recipe *recipe)
{
    PairList *both;
    BoundPass *bound;
    Device *device = pair->forward->device;
    OK(stage_pair_list(pair, recipe, &both, error));
    if (!both->list.prepared)
        OK(device->run->fusion->prepare(device, &both->list, recipe->share, recipe->whole, error));
    OK(stage_bind_overlap(pair, recipe, &bound, error));
    OK(stage_run(bound, error));
}

static void run_alone(Stage *stage, RecipePass pass, const PassBuffers *buffers)
{
    Status (*const functions[])(Stage *, const PassBuffers *, Error *) = {stage_forward, stage_backward_input,
                                                                          stage_backward_weight};
    BoundPass *bound;
    OK(stage_bind(stage, pass, buffers, &bound, error));
    OK(bound ? stage_run(bound, error) : functions[pass](stage, buffers, error));
}

static void run_pair(const Work *work, const Recipe *recipe, Mode mode)
{
    const StagePair *pair = &work->pair;
    if (mode == TOGETHER) {
        run_together(pair, recipe);
    } else if (mode == ALONE) {
        run_alone(pair->forward, RECIPE_F, &pair->forward_buffers);
        run_alone(pair->backward, RECIPE_B, &pair->backward_buffers);
        if (pair->weights)
            run_alone(pair->backward, RECIPE_W, &pair->backward_buffers);
    } else {
        OK(stage_forward(pair->forward, &pair->forward_buffers, error));
        OK(stage_backward_input(pair->backward, &pair->backward_buffers, error));
        if (pair->weights)
            OK(stage_backward_weight(pair->backward, &pair->backward_buffers, error));
    }
}

static void test_same_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *layers;
        int shared_bytes;
        size_t fused[MODES];
    } cases[] = {
        {"layers=6", 0, {0, 3, 1}},
        {"layers=40", 0, {0, 3, 2}}, /* more operations than one table holds */
        /* 99 KiB: the shared memory of compute capability 8.6, 8.9 and 12.0, the least of all supported GPUs */
        {"layers=6", 99 << 10, {0, 3, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (MockOrder order = MOCK_LATE; order <= MOCK_RANDOM; order++) {
            float *numbers[MODES];
            size_t count = 0;
            for (Mode mode = IN_TURN; mode < MODES; mode++) {
                mock_begin(&(MockSetting){.order = order, .seed = i, .shared_bytes = cases[i].shared_bytes});
                Work work = begin_work(cases[i].layers);
                run_pair(&work, i % 2 ? &unsaid : &published, mode);
                numbers[mode] = results(&work, &count);
                end_work(&work);
                assert_clean();
                assert_int_equal(mock_report().fused, cases[i].fused[mode]);
            }
            for (Mode mode = ALONE; mode < MODES; mode++)
                assert_memory_equal(numbers[mode], numbers[IN_TURN], count * sizeof(float));
            for (Mode mode = IN_TURN; mode < MODES; mode++)
                free(numbers[mode]);
        }
}

/* If an operation loses all its dependences, the mock reports a race. The exceptions are the first operations of F, B
   and W: they have no dependences. */
static void test_dropped_dependences(void **state)
{
    (void)state;
    size_t found = 0, operations = 1;
    for (size_t drop = 0; drop <= operations; drop++) {
        mock_begin(&(MockSetting){.order = MOCK_EARLY, .dry = true, .forget_after = drop});
        Work work = begin_work("layers=6");
        run_together(&work.pair, &published);
        end_work(&work);
        const MockReport report = mock_report();
        operations = report.operations;
        if (drop == 0)
            assert_int_equal(report.races, 0);
        found += report.races > 0;
    }
    assert_int_equal(operations, 2 * 21);
    assert_int_equal(found, operations - 3);
}

/* Two bindings of a list share a table if all addresses that the list uses are equal; otherwise each has its own.
   Binding takes memory only for tables, and this memory is counted. */
static void test_shared_tables(void **state)
{
    (void)state;
    mock_begin(&(MockSetting){.order = MOCK_LATE});
    Work work = begin_work("layers=3");
    const size_t before = mock_report().bytes;
    BoundPass *first, *other;
    OK(stage_bind(work.stage, RECIPE_F, &work.slots[0].buffers, &first, error));
    const size_t each = mock_report().bytes - before;
    assert_true(each > 0);
    assert_int_equal(work.device->bound_bytes, each);
    PassBuffers buffers = work.slots[0].buffers;
    buffers.dx = buffers.gradient = NULL; /* an F does not use these */
    OK(stage_bind(work.stage, RECIPE_F, &buffers, &other, error));
    assert_ptr_equal(other, first);
    const size_t fields[] = {offsetof(PassBuffers, parameters), offsetof(PassBuffers, x), offsetof(PassBuffers, y),
                             offsetof(PassBuffers, context), offsetof(PassBuffers, stash)};
    const size_t count = sizeof fields / sizeof *fields;
    for (size_t i = 0; i < count; i++) {
        buffers = work.slots[0].buffers;
        char *const field = (char *)&buffers + fields[i];
        char *moved;
        memcpy(&moved, field, sizeof moved);
        moved += 256;
        memcpy(field, &moved, sizeof moved);
        OK(stage_bind(work.stage, RECIPE_F, &buffers, &other, error));
        assert_ptr_not_equal(other, first);
    }
    assert_int_equal(work.device->bound_bytes, (1 + count) * each);
    assert_int_equal(mock_report().bytes - before, (1 + count) * each);
    end_work(&work);
}

/* The inputs of an F&B. They are changed one after the other, and stay changed. */
enum { NOTHING, RECIPE, SLOTS, WEIGHTS, VERSION, HALVES, STAGE, SCRATCH, BESIDE, COUNTED, CHANGES };

static Stage *open_another(const Work *work, const char *heads, const char *sequence)
{
    const char *const small[] = {"hidden=8", heads, sequence, "layers=3", NULL};
    const ModelConfig config = config_of("gpt", small, PIPELINE);
    Stage *stage;
    OK(stage_open(&config, work->device, 1, PIPELINE, 1, &stage, error));
    return stage;
}

static void change(Work *work, int what, const void *other_weights)
{
    switch (what) {
    case SLOTS: work->pair.forward_buffers.x = work->slots[1].x; break;
    case WEIGHTS: work->pair.forward_buffers.parameters = other_weights; break;
    case VERSION: work->pair.backward_buffers.parameters = other_weights; break;
    case HALVES: work->pair.weights = false; break;
    case STAGE:
        stage_close(work->stage);
        work->pair.forward = work->pair.backward = work->stage = open_another(work, "heads=1", "sequence=8");
        break;
    case SCRATCH: stage_close(open_another(work, "heads=8", "sequence=64")); break;
    case BESIDE: assert_non_null(work->device->run->async->native_queue(work->device, QUEUE_MESSAGES)); break;
    case COUNTED: work->device->products.on = true; break;
    default: break;
    }
}

/* An F&B or a single pass that runs again with the same inputs is one call of the CUDA runtime. The first run after a
   change of an input takes more calls, unless the change needs no new table (is_known). The numbers equal those of the
   operations run one after the other. */
static void test_tables_stay(void **state)
{
    (void)state;
    enum { TIMES = 4 };
    for (MockOrder order = MOCK_LATE; order <= MOCK_RANDOM; order++) {
        float *numbers[MODES][CHANGES];
        ProductClock counted[MODES];
        size_t count = 0;
        for (Mode mode = IN_TURN; mode < MODES; mode++) {
            mock_begin(&(MockSetting){.order = order, .seed = 3, .multiprocessors = 16});
            Work work = begin_work("layers=3");
            const StageWeights others = weights_of(work.device, work.stage);
            randomize(work.device, others.parameters, stage_sizes(work.stage)->parameters, 5, 0.1);
            for (int what = NOTHING; what < CHANGES; what++) {
                change(&work, what, others.parameters);
                for (int time = 0; time < TIMES; time++) {
                    const size_t calls = mock_report().calls, least = mode == TOGETHER ? 1 : work.pair.weights ? 3 : 2;
                    run_pair(&work, what >= RECIPE ? &published : &unsaid, mode);
                    const bool is_least = mock_report().calls - calls == least;
                    const bool is_known = time > 0 || what == SCRATCH || what == COUNTED ||
                                          (mode == ALONE && (what == RECIPE || what == HALVES));
                    if (mode != IN_TURN && is_least != is_known)
                        fail_msg("change %d, time %d: %zu calls", what, time, mock_report().calls - calls);
                }
                numbers[mode][what] = results(&work, &count);
            }
            counted[mode] = work.device->products;
            free_weights(work.device, others);
            end_work(&work);
            assert_clean();
        }
        for (Mode mode = IN_TURN; mode < MODES; mode++)
            assert_true(counted[mode].calls > 0 && counted[mode].calls == counted[IN_TURN].calls &&
                        counted[mode].operations == counted[IN_TURN].operations);
        for (int what = NOTHING; what < CHANGES; what++) {
            for (Mode mode = ALONE; mode < MODES; mode++)
                if (memcmp(numbers[mode][what], numbers[IN_TURN][what], count * sizeof(float)) != 0)
                    fail_msg("change %d: other numbers", what);
            for (Mode mode = IN_TURN; mode < MODES; mode++)
                free(numbers[mode][what]);
        }
    }
}

/* --- real sizes, on addresses without memory --- */

static void *far(uint64_t *next, uint64_t bytes)
{
    void *place = (void *)(uintptr_t)*next;
    *next += (bytes + 255) / 256 * 256;
    return place;
}

static PassBuffers far_buffers(const Device *device, const Stage *stage, bool first, bool last, void *const weights[2],
                               uint64_t *next)
{
    const StageSizes *sizes = stage_sizes(stage);
    const size_t element = device->run->size[COMPUTE_TYPE];
    return (PassBuffers){
        .parameters = weights[0],
        .parameter_gradients = weights[1],
        .x = first ? NULL : far(next, sizes->message * element),
        .y = last ? NULL : far(next, sizes->message * element),
        .dx = first ? NULL : far(next, sizes->message * element),
        .dy = last ? NULL : far(next, sizes->message * element),
        .context = far(next, sizes->context * element),
        .stash = far(next, sizes->stash * element),
        .gradient = far(next, sizes->gradient * element),
        .workspace = far(next, sizes->workspace * element),
        .inputs = far(next, sizes->inputs),
        .targets = far(next, sizes->targets),
        .loss = far(next, sizeof(double)),
    };
}

/* Checks the tables of F&Bs: the F of every stage of a pipeline, paired with the B and with the I of every stage.
   Returns the number of F&Bs. */
static size_t check_recipe(const char *device_name, const char *model, const char *hidden, const char *rows,
                           const Recipe *recipe)
{
    const char *const sizes[] = {hidden, rows, "heads=32", "layers=6", NULL};
    const ModelConfig config = config_of(model, sizes, PIPELINE);
    Stage *stages[PIPELINE];
    void *weights[PIPELINE][2];
    PassBuffers buffers[PIPELINE][2];
    uint64_t next = UINT64_C(1) << 44;
    size_t expected = 0;
    Device *device;
    mock_begin(&(MockSetting){.order = MOCK_EARLY, .dry = true, .multiprocessors = 132, .major = 9});
    OK(device_open(device_name, 0, &device, error));
    for (uint32_t s = 0; s < PIPELINE; s++) {
        OK(stage_open(&config, device, s, PIPELINE, 1, &stages[s], error));
        for (int kind = 0; kind < 2; kind++)
            weights[s][kind] = far(&next, stage_sizes(stages[s])->parameters * device->run->size[kind]);
        for (int half = 0; half < 2; half++)
            buffers[s][half] = far_buffers(device, stages[s], s == 0, s == PIPELINE - 1, weights[s], &next);
    }
    for (int forward = 0; forward < PIPELINE; forward++)
        for (int backward = 0; backward < PIPELINE; backward++)
            for (int with_weights = 0; with_weights < 2; with_weights++, expected++) {
                const StagePair pair = {.forward = stages[forward],
                                        .backward = stages[backward],
                                        .forward_buffers = buffers[forward][0],
                                        .backward_buffers = buffers[backward][1],
                                        .weights = with_weights};
                run_together(&pair, recipe);
            }
    for (int s = 0; s < PIPELINE; s++)
        stage_close(stages[s]);
    device_close(device);
    const MockReport report = mock_report();
    if (report.races)
        fail_msg("%s, %s: %zu tables are wrong, first: %s", hidden, rows, report.races, report.first_race);
    assert_int_equal(report.fused, expected);
    return report.fused;
}

/* Passes are bound only if their operations are small, for an F&B less so than for single passes. */
static void test_small_passes(void **state)
{
    (void)state;
    static const struct {
        const char *hidden;
        size_t passes, pairs;
    } cases[] = {{"hidden=64", 3, 1}, {"hidden=128", 0, 1}, {"hidden=480", 0, 1}, {"hidden=512", 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *const sizes[] = {cases[c].hidden, "sequence=2048", "heads=32", "layers=3", NULL};
        const ModelConfig config = config_of("gpt", sizes, PIPELINE);
        uint64_t next = UINT64_C(1) << 44;
        Device *device;
        Stage *stage;
        mock_begin(&(MockSetting){.order = MOCK_EARLY, .dry = true});
        OK(device_open("cuda", 0, &device, error));
        OK(stage_open(&config, device, 1, PIPELINE, 1, &stage, error));
        void *const weights[2] = {far(&next, 2 * stage_sizes(stage)->parameters),
                                  far(&next, 4 * stage_sizes(stage)->parameters)};
        const PassBuffers buffers = far_buffers(device, stage, false, false, weights, &next);
        for (RecipePass pass = RECIPE_F; pass < RECIPE_PASSES; pass++)
            run_alone(stage, pass, &buffers);
        assert_int_equal(mock_report().fused, cases[c].passes);
        const StagePair pair = {
            .forward = stage,
            .backward = stage,
            .weights = true,
            .forward_buffers = far_buffers(device, stage, false, false, weights, &next),
            .backward_buffers = buffers,
        };
        BoundPass *bound;
        OK(stage_bind_overlap(&pair, &unsaid, &bound, error));
        assert_int_equal(bound != NULL, cases[c].pairs);
        stage_close(stage);
        device_close(device);
        assert_clean();
    }
}

/* More F&Bs than the memory for tables holds: the last ones run operation by operation. */
static void test_tables_too_many(void **state)
{
    (void)state;
    enum { F_AND_BS = 10, FITTING = 4 };
    /* with 6 layers in the model an F&B needs one table, with 60 two */
    static const char *const layers[] = {"layers=6", "layers=60"};
    for (size_t c = 0; c < sizeof layers / sizeof *layers; c++) {
        const char *const sizes[] = {"hidden=64", "sequence=64", "heads=2", layers[c], NULL};
        const ModelConfig config = config_of("gpt", sizes, PIPELINE);
        uint64_t next = UINT64_C(1) << 44;
        size_t fitted = 0, tables = 0;
        Device *device;
        Stage *stage;
        mock_begin(&(MockSetting){.order = MOCK_EARLY, .dry = true});
        OK(device_open("cuda", 0, &device, error));
        OK(stage_open(&config, device, 1, PIPELINE, 1, &stage, error));
        void *const weights[2] = {far(&next, 2 * stage_sizes(stage)->parameters),
                                  far(&next, 4 * stage_sizes(stage)->parameters)};
        StagePair pair = {.forward = stage, .backward = stage, .weights = true};
        pair.backward_buffers = far_buffers(device, stage, false, false, weights, &next);
        const size_t before = mock_report().bytes;
        for (int i = 0; i < F_AND_BS; i++) {
            pair.forward_buffers = far_buffers(device, stage, false, false, weights, &next);
            BoundPass *bound;
            OK(stage_bind_overlap(&pair, &unsaid, &bound, error));
            /* room for FITTING F&Bs and three quarters of another one: nothing of that one fits if it needs one table,
               only its first table if it needs two */
            if (i == 0)
                device->bound_most = FITTING * device->bound_bytes + device->bound_bytes * 3 / 4;
            const MockReport report = mock_report();
            OK(stage_run(bound, error));
            const size_t fused = mock_report().fused - report.fused;
            tables = i == 0 ? fused : tables;
            assert_true(fused == 0 || (fused == tables && mock_report().calls - report.calls == fused));
            fitted += fused > 0;
        }
        assert_int_equal(mock_report().bytes - before, device->bound_bytes);
        assert_in_range(device->bound_bytes, 1, device->bound_most);
        stage_close(stage);
        device_close(device);
        assert_clean();
        assert_int_equal(fitted, FITTING);
        assert_int_equal(tables, 1 + c);
    }
}

static size_t check_shapes(const Recipe *recipe)
{
    static const char *const shapes[][2] = {
        {"hidden=4096", "sequence=4096"}, {"hidden=512", "sequence=2048"}, {"hidden=1600", "sequence=1000"}};
    size_t tables = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int model = 0; model < 2; model++)
            tables +=
                check_recipe(s == 1 ? "cuda-fp32" : "cuda", model ? "mlp" : "gpt", shapes[s][0], shapes[s][1], recipe);
    return tables;
}

static void test_recipes_of_schedules(void **state)
{
    (void)state;
    glob_t files;
    size_t recipes = 0;
    assert_int_equal(glob("schedules/*.dps", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char name[64];
        Arena arena = {0};
        LoadedProgram loaded;
        snprintf(name, sizeof name, "%s", strrchr(files.gl_pathv[i], '/') + 1);
        *strrchr(name, '.') = '\0';
        OK(program_load(compile(name, ""), &(LoadOptions){0}, &arena, &loaded, error));
        const Recipe *recipe = loaded.program->recipes.common;
        if (recipe && !loaded.program->forward_only) {
            assert_true(check_shapes(recipe) > 0);
            recipes++;
        }
        arena_free(&arena);
    }
    globfree(&files);
    assert_true(recipes >= 2);
}

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(drawn >> 33) % below;
}

/* Draws a recipe of some components in any order. Most are not valid: the caller draws until recipe_check takes one. */
static Recipe any_recipe(void)
{
    Recipe recipe = {.counts = {0}};
    const uint32_t components = 1 + draw((1 << RECIPE_COMPONENTS) - 1);
    for (int c = 0; c < RECIPE_COMPONENTS; c++)
        for (int pass = 0; (components >> c & 1) && pass < (recipe_communicates[c] ? RECIPE_W : RECIPE_PASSES);
             pass++) {
            const int stream = recipe_communicates[c] && draw(2);
            RecipeEntry *entries = recipe.entries[stream];
            const uint32_t place = draw(recipe.counts[stream] + 1u);
            memmove(entries + place + 1, entries + place, (recipe.counts[stream] - place) * sizeof *entries);
            entries[place] = (RecipeEntry){(uint8_t)c, (uint8_t)pass};
            recipe.counts[stream]++;
        }
    return recipe;
}

static void test_random_recipes(void **state)
{
    (void)state;
    RecipeFault fault;
    check_shapes(&unsaid);
    for (int found = 0; found < 12;) {
        const Recipe recipe = any_recipe();
        if (!recipe_check(&recipe, &fault))
            continue;
        check_shapes(&recipe);
        found++;
    }
}

/* --- other users of multiprocessors --- */

static void test_blocks(void **state)
{
    (void)state;
    static const struct {
        int multiprocessors;
        bool library;
        uint32_t share, whole;
        unsigned blocks;
    } cases[] = {
        {132, false, 0, 0, 132}, {132, false, 20, 132, 132}, {132, true, 20, 132, 112}, {66, true, 20, 132, 56},
        {132, true, 0, 0, 124},  {132, true, 131, 132, 1},   {4, true, 99, 100, 1},     {148, true, 1, 2, 74},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mock_begin(&(MockSetting){.order = MOCK_EARLY, .multiprocessors = cases[i].multiprocessors});
        Work work = begin_work("layers=3");
        if (cases[i].library)
            assert_non_null(work.device->run->async->native_queue(work.device, QUEUE_MESSAGES));
        Recipe recipe = published;
        recipe.share = (uint16_t)cases[i].share;
        recipe.whole = (uint16_t)cases[i].whole;
        run_together(&work.pair, &recipe);
        end_work(&work);
        assert_clean();
        assert_int_equal(mock_report().blocks, cases[i].blocks);
    }
}

/* --- single operations --- */

static void *numbers(Device *device, size_t count, float value)
{
    void *memory = elements(device, count);
    OK(device->run->fill(device, COMPUTE_TYPE, count, (double)value, memory, error));
    return memory;
}

static void assert_number(Device *device, const void *memory, float expected)
{
    float value;
    OK(device->run->store_floats(device, COMPUTE_TYPE, 1, memory, &value, error));
    assert_true(value == expected);
}

/* The tensor map of a matrix is encoded only once, also if many other matrices are used in between. */
static void test_maps_stay(void **state)
{
    (void)state;
    enum { MATRICES = 1500 };
    mock_begin(&(MockSetting){.order = MOCK_EARLY, .dry = true, .major = 9});
    Device *device;
    const Kernel *kernel;
    const KernelShape shape = {.kind = KERNEL_LINEAR, .rows = 128, .columns = 128, .outputs = 128};
    OK(device_open("cuda", 0, &device, error));
    OK(device_kernel(device, &shape, &kernel, error));
    uint64_t next = UINT64_C(1) << 44;
    void *const x = far(&next, 2 * 128 * 128), *const y = far(&next, 2 * 128 * 128);
    for (int time = 0; time < 2; time++) {
        const size_t calls = mock_report().calls;
        uint64_t place = next;
        for (int i = 0; i < MATRICES; i++)
            OK(RUN_OP(device, error, linear_forward, with_kernel(kernel), x, far(&place, 2 * 128 * 128), NULL, NULL,
                      y));
        assert_int_equal(mock_report().calls - calls, time ? MATRICES : 2 * MATRICES + 1);
    }
    device_close(device);
    assert_clean();
}

/* Two operations that add to the same gradients, as in parts of a model that share weights: the second one waits for
   the first. If it does not, the mock reports a race. */
static void test_shared_gradients(void **state)
{
    (void)state;
    for (int forget = 0; forget < 2; forget++) {
        mock_begin(&(MockSetting){.order = MOCK_RANDOM, .seed = 2, .forget_after = forget ? 3 : 0});
        Device *device;
        const Kernel *kernel;
        const KernelShape shape = {.kind = KERNEL_LINEAR, .rows = 4, .columns = 4, .outputs = 4};
        OK(device_open("cuda-fp32", 0, &device, error));
        OK(device_kernel(device, &shape, &kernel, error));
        void *x = numbers(device, 16, 2), *dy = numbers(device, 16, 1), *dw = numbers(device, 16, 5),
             *other = numbers(device, 16, 0);
        void *bias = numbers(device, 16, 1);
        const DeviceTable *run = device->run;
        void *bases[] = {x, dy, dw, other, bias};
        const Address at_x = {1, 0}, at_dy = {2, 0}, at_dw = {3, 0}, at_other = {4, 0}, at_bias = {5, 0};
        OpList list = {0};
        APPEND(&list, linear_backward_weight, kernel, at_x, at_dy, at_dw, at_bias);
        /* adds to other gradients, so it waits for nothing */
        APPEND(&list, linear_backward_weight, kernel, at_x, at_dy, at_other, no_address);
        APPEND(&list, linear_backward_weight, kernel, at_x, at_dy, at_dw, at_bias);
        BoundList *bound;
        OK(op_list_finish(&list, error));
        OK(run->fusion->prepare(device, &list, 0, 0, error));
        OK(run->fusion->bind(device, &list, bases, &bound, error));
        assert_int_equal(list.ops[1].after_count, 0);
        assert_int_equal(list.ops[2].after_count, 1);
        OK(run->fusion->run(bound, error));
        bases[4] = NULL; /* without a bias gradient these operations have fewer tiles */
        OK(run->fusion->bind(device, &list, bases, &bound, error));
        OK(run->fusion->run(bound, error));
        bases[4] = bias;
        op_list_free(&list);
        assert_number(device, dw, 5 + 2 * 2 * 4 * 2);
        assert_number(device, bias, 1 + 2 * 4);
        for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
            run->deallocate(device, bases[i]);
        device_close(device);
        mock_kernels_end();
        if (forget)
            assert_true(mock_report().races > 0);
        else
            assert_clean();
    }
}

/* An operation without a GPU kernel is refused by name, when it is run alone and when it is bound. */
static void test_no_kernel(void **state)
{
    (void)state;
    mock_begin(&(MockSetting){.order = MOCK_EARLY});
    Device *device;
    OK(device_open("cuda", 0, &device, error));
    const char *const words = "device cuda has no kernel for the operation add: run this model with --device cpu";
    void *bases[] = {numbers(device, 16, 1), numbers(device, 16, 2)};
    Error refused = {""};
    assert_int_equal(RUN_OP(device, &refused, add, with_count(16), bases[0], bases[1]), STATUS_RUN_FAILED);
    assert_string_equal(refused.text, words);
    OpList list = {0};
    BoundList *bound;
    op_append(&list, &(Op){.kind = OPERATION_add, .count = 16, .add = {{1, 0}, {2, 0}}});
    OK(op_list_finish(&list, error));
    OK(device->run->fusion->prepare(device, &list, 0, 0, error));
    assert_int_equal(device->run->fusion->bind(device, &list, bases, &bound, &refused), STATUS_RUN_FAILED);
    assert_string_equal(refused.text, words);
    op_list_free(&list);
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        device->run->deallocate(device, bases[i]);
    device_close(device);
    assert_int_equal(mock_report().live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_numbers),
        cmocka_unit_test(test_dropped_dependences),
        cmocka_unit_test(test_shared_tables),
        cmocka_unit_test(test_tables_stay),
        cmocka_unit_test(test_small_passes),
        cmocka_unit_test(test_tables_too_many),
        cmocka_unit_test(test_recipes_of_schedules),
        cmocka_unit_test(test_random_recipes),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_maps_stay),
        cmocka_unit_test(test_shared_gradients),
        cmocka_unit_test(test_no_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
