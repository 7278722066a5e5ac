/* The order in which the components of both halves of an F&B run, read from the lists that a device gets. */

#include "runtime/model/stage.h"
#include "tests/model/harness.h"
#include "tests/model/recipes.h"

/* The last list that the device has prepared, the last that it has bound, and the last that it has run. */
static const OpList *prepared, *bound, *ran;
static uint32_t heard_share, heard_whole;

static Status prepare(Device *device, OpList *list, uint32_t share, uint32_t whole, Error *error)
{
    (void)device, (void)error;
    prepared = list;
    heard_share = share;
    heard_whole = whole;
    list->prepared = (PreparedList *)list;
    assert_in_range(list->bases, PASS_BASES + 1, 2 * PASS_BASES);
    return STATUS_OK;
}

static Status bind(Device *device, const OpList *list, void *const *bases, BoundList **made, Error *error)
{
    static BoundList only;
    (void)error;
    assert_non_null(bases);
    bound = list;
    only.device = device;
    *made = &only;
    return STATUS_OK;
}

static Status run(BoundList *list, Error *error)
{
    (void)list, (void)error;
    ran = bound;
    return STATUS_OK;
}

/* The F&B of schedules/dualpipe.dps. */
static const Recipe published = {
    .entries = {DUALPIPE_COMPUTE,
                {{RECIPE_COMBINE, RECIPE_B},
                 {RECIPE_DISPATCH, RECIPE_F},
                 {RECIPE_DISPATCH, RECIPE_B},
                 {RECIPE_COMBINE, RECIPE_F}}},
    .counts = {6, 4},
    .share = 20,
    .whole = 132,
};
/* A recipe with one component only, whose B comes before its F. */
static const Recipe partial = {
    .entries = {{{RECIPE_MLP, RECIPE_B}, {RECIPE_MLP, RECIPE_F}, {RECIPE_MLP, RECIPE_W}}},
    .counts = {3, 0},
};
/* A recipe with components that the model does not have. */
static const Recipe foreign = {
    .entries = {{{RECIPE_PERCEPTRON, RECIPE_F}, {RECIPE_PERCEPTRON, RECIPE_B}, {RECIPE_PERCEPTRON, RECIPE_W}}},
    .counts = {3, 0},
};

TEST(the_parts_come_in_the_recipe_s_order)
{
    /* three layers: stage 0 has the embedding and two of them; stage 1 has one and the head */
    static const char *const small[] = {"hidden=8", "heads=2", "sequence=4", "layers=3", NULL};
    static const struct {
        const Recipe *recipe;
        int forward;
        bool weights;
        const char *order;
    } cases[] = {
        /* forward 1: stage 1 runs the F (one layer and the head), stage 0 the backward (two layers and the
           embedding) */
        {&published, 1, true, "F BW F BW  BW BW  F BW"},
        {&published, 0, true, "FF BW BW F BW  F F"}, /* forward 0: the head's backward precedes that of the layer */
        {&published, 1, false, "F B F B  B B  F B"},
        {&partial, 1, true, "B FF W  BW B W  F BW BW"},
        {&foreign, 1, true, "FFF BW BW BW BW BW"},
    };
    const DeviceFusion fusion = {.small_pair = INFINITY, .prepare = prepare, .bind = bind, .run = run};
    Device *device;
    OK(device_open("cpu", 0, &device, error));
    const DeviceTable *const own = device->run;
    DeviceTable table = *own;
    table.fusion = &fusion;
    const ModelConfig config = config_of("gpt", small, 2);
    Stage *stages[2];
    StageWeights weights[2];
    Slots slots[2];
    for (uint32_t s = 0; s < 2; s++) {
        OK(stage_open(&config, device, s, 2, 1, &stages[s], error));
        weights[s] = weights_of(device, stages[s]);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int forward = cases[i].forward, backward = !forward;
        for (int s = 0; s < 2; s++)
            make_slots(device, stage_sizes(stages[s]), s == 0, s == 1, weights[s], &slots[s]);
        OK(stage_forward(stages[backward], &slots[backward].buffers, error));
        const StagePair pair = {.forward = stages[forward],
                                .backward = stages[backward],
                                .forward_buffers = slots[forward].buffers,
                                .backward_buffers = slots[backward].buffers,
                                .weights = cases[i].weights};
        PairList *list;
        device->run = &table;
        BoundPass *pass;
        OK(stage_bind_overlap(&pair, cases[i].recipe, &pass, error));
        OK(stage_run(pass, error));
        OK(stage_pair_list(&pair, cases[i].recipe, &list, error)); /* gives the list that stage_bind_overlap made */
        assert_ptr_equal(prepared, &list->list);
        assert_ptr_equal(ran, &list->list);
        assert_int_equal(heard_share, cases[i].recipe->share);
        assert_int_equal(heard_whole, cases[i].recipe->whole);
        size_t part = 0, end = 0;
        for (const char *c = cases[i].order; *c; c++)
            if (*c != ' ') {
                assert_true(part < list->part_count && list->parts[part].end >= end);
                assert_int_equal(part_pass_letters[list->parts[part].pass], *c);
                end = list->parts[part++].end;
            }
        assert_int_equal(part, list->part_count);
        assert_int_equal(end, list->list.count);
        device->run = own;
        free_slots(device, &slots[0]);
        free_slots(device, &slots[1]);
    }
    for (int s = 0; s < 2; s++) {
        free_weights(device, weights[s]);
        stage_close(stages[s]);
    }
    device_close(device);
}

int main(void) { return test_program("overlap", NULL, NULL); }
