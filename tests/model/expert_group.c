/* Experts that are divided among the members of a group give the same bits as all experts on one stage. Each member is
   a thread with microbatches of its own; the stage with all experts runs the first microbatch of each, one after the
   other. */

#include "runtime/model/experts.h"
#include "runtime/model/stage.h"
#include "runtime/transport/transport.h"
#include "tests/model/harness.h"
#include "tests/model/recipes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { MEMBERS_MOST = 4, IN_FLIGHT = 2 };

/* A stage in the middle of a model, with the buffers of two microbatches. */
typedef struct Holder {
    Device *device;
    Stage *stage;
    StageWeights weights;
    Slots slots, second;
} Holder;

/* What a test runs: the model, the router's bias, and the passes. */
typedef struct Subject {
    const char *device, *name;
    const char *const *settings;
    double bias_of_first; /* the bias of expert 0: with a large one every token chooses it, with a negative one none */
    double expert_rows;
    int members;
    uint32_t replicas; /* physical experts beyond one for each expert; if there are any, only F runs */
    /* pair: runs an F&B; merged: its halves are merged by a recipe, otherwise they run one after the other */
    bool pair, merged;
    const Recipe *forwards; /* not NULL: runs an F&F, not an F&B; `merged` merges its halves by this recipe */
} Subject;

typedef struct Member {
    const Subject *subject;
    ExpertGroup group;
    World *world;
    Communicator *communicator;
    Holder holder;
    Status status;
    Error error;
} Member;

static Status post(void *context, AllToAll *all_to_all, Error *error)
{
    Communicator *communicator = context;
    return communicator->run->all_to_all_post(communicator, all_to_all, error);
}

static Status wait_for(void *context, AllToAll *all_to_all, Error *error)
{
    Communicator *communicator = context;
    return communicator->run->all_to_all_wait(communicator, all_to_all, error);
}

static atomic_int progress_calls;

static Status count_call(void *context, Error *error)
{
    (void)context, (void)error;
    atomic_fetch_add(&progress_calls, 1);
    return STATUS_OK;
}

/* Sets the bias of expert 0 in the router of every layer. */
static void bias_first(const Holder *holder, double bias)
{
    const size_t size = holder->device->run->size[MASTER_TYPE];
    const float value = (float)bias;
    for (size_t i = 0; i < holder->stage->part_count; i++) {
        const Component *component = &holder->stage->parts[i].component;
        const size_t at = holder->stage->parts[i].parameters + component_offset(component, ROUTER_BIAS);
        if (component->kind == &component_router)
            OK(holder->device->run->load_floats(holder->device, MASTER_TYPE, 1, &value,
                                                (char *)holder->weights.parameters + at * size, error));
    }
}

static void open_holder(const Subject *subject, const ExpertGroup *group, Holder *holder)
{
    ModelConfig config = config_of("moe", subject->settings, 3);
    config.expert_group = group;
    config.expert_rows = subject->expert_rows;
    OK(device_open(subject->device, 0, &holder->device, error));
    OK(stage_open(&config, holder->device, 1, 3, 1, &holder->stage, error));
    holder->weights = weights_of(holder->device, holder->stage);
    bias_first(holder, subject->bias_of_first);
    make_slots(holder->device, stage_sizes(holder->stage), false, false, holder->weights, &holder->slots);
    make_slots(holder->device, stage_sizes(holder->stage), false, false, holder->weights, &holder->second);
}

static void close_holder(Holder *holder)
{
    free_slots(holder->device, &holder->slots);
    free_slots(holder->device, &holder->second);
    free_weights(holder->device, holder->weights);
    stage_close(holder->stage);
    device_close(holder->device);
}

/* Draws the input and the output gradient of a member's first microbatch, and the input of its second one. */
static void draw(const Holder *holder, int member)
{
    const size_t message = stage_sizes(holder->stage)->message;
    randomize(holder->device, holder->slots.x, message, 100 + (uint64_t)member, 1);
    randomize(holder->device, holder->slots.dy, message, 200 + (uint64_t)member, 1);
    randomize(holder->device, holder->second.x, message, 300 + (uint64_t)member, 1);
}

/* Runs the F of the first microbatch, then an F&B: the F of the second microbatch with the backward of the first one,
   merged by a recipe or one after the other. */
static Status run_pair(Holder *holder, bool merged, Error *error)
{
    static const Recipe recipe = {
        .entries = {DUALPIPE_COMPUTE,
                    {{RECIPE_COMBINE, RECIPE_B},
                     {RECIPE_DISPATCH, RECIPE_F},
                     {RECIPE_DISPATCH, RECIPE_B},
                     {RECIPE_COMBINE, RECIPE_F}}},
        .counts = {6, 4},
    };
    const StagePair pair = {.forward = holder->stage,
                            .backward = holder->stage,
                            .forward_buffers = holder->second.buffers,
                            .backward_buffers = holder->slots.buffers,
                            .weights = true};
    TRY(stage_forward(holder->stage, &holder->slots.buffers, error));
    if (merged)
        return stage_overlap(&pair, &recipe, error);
    TRY(stage_forward(holder->stage, &holder->second.buffers, error));
    TRY(stage_backward_input(holder->stage, &holder->slots.buffers, error));
    return stage_backward_weight(holder->stage, &holder->slots.buffers, error);
}

static const Recipe one_layer_at_once = {
    .entries = {{{RECIPE_ATTENTION, RECIPE_FIRST},
                 {RECIPE_ATTENTION, RECIPE_SECOND},
                 {RECIPE_MLP, RECIPE_FIRST},
                 {RECIPE_MLP, RECIPE_SECOND}},
                {{RECIPE_DISPATCH, RECIPE_FIRST},
                 {RECIPE_DISPATCH, RECIPE_SECOND},
                 {RECIPE_COMBINE, RECIPE_FIRST},
                 {RECIPE_COMBINE, RECIPE_SECOND}}},
    .counts = {4, 4},
};
/* The order of schedules/prefill.dps: each combine is posted before the shared experts run, although it adds their
   result. */
static const Recipe prefill = {
    .entries = {{{RECIPE_ATTENTION, RECIPE_SECOND},
                 {RECIPE_SHARED, RECIPE_FIRST},
                 {RECIPE_ATTENTION, RECIPE_FIRST},
                 {RECIPE_MLP, RECIPE_SECOND},
                 {RECIPE_MLP, RECIPE_FIRST},
                 {RECIPE_SHARED, RECIPE_SECOND}},
                {{RECIPE_COMBINE, RECIPE_FIRST},
                 {RECIPE_DISPATCH, RECIPE_SECOND},
                 {RECIPE_DISPATCH, RECIPE_FIRST},
                 {RECIPE_COMBINE, RECIPE_SECOND}}},
    .counts = {6, 4},
};

/* Runs an F&F: the F of both microbatches, merged by the recipe or one after the other. */
static Status run_forwards(Holder *holder, const Recipe *recipe, bool merged, Error *error)
{
    const StagePair pair = {.forward = holder->stage,
                            .backward = holder->stage,
                            .forward_buffers = holder->slots.buffers,
                            .backward_buffers = holder->second.buffers,
                            .both_forward = true};
    if (merged)
        return stage_overlap(&pair, recipe, error);
    TRY(stage_forward(holder->stage, &holder->slots.buffers, error));
    return stage_forward(holder->stage, &holder->second.buffers, error);
}

static Status run_passes(Holder *holder, Error *error)
{
    TRY(stage_forward(holder->stage, &holder->slots.buffers, error));
    TRY(stage_backward_input(holder->stage, &holder->slots.buffers, error));
    return stage_backward_weight(holder->stage, &holder->slots.buffers, error);
}

static void *run_member(void *argument)
{
    Member *member = argument;
    const Subject *subject = member->subject;
    Holder *holder = &member->holder;
    member->status = subject->replicas   ? stage_forward(holder->stage, &holder->slots.buffers, &member->error)
                     : subject->forwards ? run_forwards(holder, subject->forwards, subject->merged, &member->error)
                     : subject->pair     ? run_pair(holder, subject->merged, &member->error)
                                         : run_passes(holder, &member->error);
    if (member->status != STATUS_OK)
        world_abort(member->world, member->error.text);
    return NULL;
}

static void open_members(const Subject *subject, Member *members)
{
    World *worlds[MEMBERS_MOST];
    int numbers[MEMBERS_MOST];
    const WorldConfig config = {.size = subject->members, .deadline = 60};
    OK(transport_open(transport_named("local", false), &config, worlds, error));
    for (int m = 0; m < subject->members; m++)
        numbers[m] = m;
    for (int m = 0; m < subject->members; m++) {
        const CommunicatorConfig connecting = {
            .members = numbers, .count = subject->members, .all_to_alls_in_flight = IN_FLIGHT};
        members[m] = (Member){.subject = subject, .world = worlds[m]};
        OK(worlds[m]->connect(worlds[m], &connecting, &members[m].communicator, error));
        members[m].group = (ExpertGroup){.members = subject->members,
                                         .self = m,
                                         .replicas = subject->replicas,
                                         .context = members[m].communicator,
                                         .post = post,
                                         .wait = wait_for,
                                         .progress = count_call};
        open_holder(subject, &members[m].group, &members[m].holder);
        draw(&members[m].holder, m);
    }
}

static void run_members(const Subject *subject, Member *members)
{
    pthread_t threads[MEMBERS_MOST];
    for (int m = 0; m < subject->members; m++)
        assert_int_equal(pthread_create(&threads[m], NULL, run_member, &members[m]), 0);
    for (int m = 0; m < subject->members; m++)
        pthread_join(threads[m], NULL);
}

static void close_members(const Subject *subject, Member *members)
{
    for (int m = 0; m < subject->members; m++) {
        members[m].communicator->run->close(members[m].communicator);
        members[m].world->run->close(members[m].world);
        close_holder(&members[m].holder);
    }
}

/* Compares gradients of member `self` with those of `all`, the stage with all experts. experts = true: compares the
   gradients of experts; `all` must have run every member's microbatch. experts = false: compares all other gradients;
   `all` must have run only this member's microbatch. */
static void compare_gradients(const Subject *subject, const Holder *member, int self, const Holder *all, bool experts)
{
    const size_t size = all->device->run->size[MASTER_TYPE];
    for (size_t i = 0; i < all->stage->part_count; i++) {
        const Part *own = &member->stage->parts[i], *whole = &all->stage->parts[i];
        for (size_t p = 0; p < whole->component.parameter_count; p++) {
            const size_t elements = own->component.parameters[p].elements;
            const bool divided = whole->component.of_experts[p] > 0;
            const size_t first = divided ? (size_t)self * elements : 0;
            const char *one =
                (char *)member->weights.gradients + (own->parameters + component_offset(&own->component, p)) * size;
            const char *other = (char *)all->weights.gradients +
                                (whole->parameters + component_offset(&whole->component, p) + first) * size;
            if (divided == experts && memcmp(one, other, elements * size) != 0)
                fail_msg("%s on %s, %d members: %s differs on member %d", subject->name, subject->device,
                         subject->members, whole->component.parameters[p].name, self);
        }
    }
}

static void clear_gradients(const Holder *holder, bool of_experts)
{
    const DeviceTable *run = holder->device->run;
    for (size_t i = 0; i < holder->stage->part_count; i++) {
        const Part *part = &holder->stage->parts[i];
        for (size_t p = 0; p < part->component.parameter_count; p++)
            if ((part->component.of_experts[p] > 0) == of_experts)
                OK(run->fill(holder->device, MASTER_TYPE, part->component.parameters[p].elements, 0,
                             (char *)holder->weights.gradients +
                                 (part->parameters + component_offset(&part->component, p)) * run->size[MASTER_TYPE],
                             error));
    }
}

static void check(const char *device, const Subject *given, int count)
{
    Subject subject = *given;
    Member members[MEMBERS_MOST];
    Holder all;
    subject.device = device;
    subject.members = count;
    open_members(&subject, members);
    open_holder(&subject, NULL, &all);
    run_members(&subject, members);
    const size_t bytes = stage_sizes(all.stage)->message * all.device->run->size[COMPUTE_TYPE];
    for (int m = 0; m < count; m++) {
        if (members[m].status != STATUS_OK)
            fail_msg("%s: %s", subject.name, members[m].error.text);
        draw(&all, m);
        clear_gradients(&all, false);
        OK(run_passes(&all, error));
        assert_memory_equal(members[m].holder.slots.y, all.slots.y, bytes);
        assert_memory_equal(members[m].holder.slots.dx, all.slots.dx, bytes);
        compare_gradients(&subject, &members[m].holder, m, &all, false);
    }
    for (int m = 0; m < count; m++)
        compare_gradients(&subject, &members[m].holder, m, &all, true);
    close_members(&subject, members);
    close_holder(&all);
}

#define SETTINGS(...) \
    (const char *const[]) { "hidden=12", "heads=2", "expert_hidden=5", "layers=6", __VA_ARGS__, NULL }

TEST(one_stage_and_a_group_give_the_same_bits)
{
    const Subject subjects[] = {
        {.name = "a usual choice", .settings = SETTINGS("sequence=24", "microbatch_size=2")},
        {.name = "all tokens to one expert", .settings = SETTINGS("experts_per_token=1"), .bias_of_first = 100},
        {.name = "an expert without tokens", .settings = SETTINGS("sequence=16"), .bias_of_first = -100},
        {.name = "as many experts as members", .settings = SETTINGS("experts=4", "sequence=16")},
        {.name = "one token", .settings = SETTINGS("sequence=1", "microbatch_size=1")},
        {.name = "every expert for every token", .settings = SETTINGS("experts=4", "experts_per_token=4")},
        {.name = "groups of experts", .settings = SETTINGS("expert_groups=4", "groups_per_token=2", "sequence=16")},
        {.name = "planned rows", .settings = SETTINGS("experts=4", "experts_per_token=4"), .expert_rows = 1},
    };
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (int count = 1; count <= MEMBERS_MOST; count *= 2) {
            check("cpu", &subjects[s], count);
            if (s % 2 == 0 || count == 2)
                check("oracle", &subjects[s], count);
        }
}

/* Puts experts into the slots of the members, in each of their layers: slot i of all members together, in their order,
   gets expert placement[i], with its weights from the stage with all experts. */
static void place(const Subject *subject, Member *members, const Holder *all, const uint32_t *placement)
{
    void *block = malloc(stage_expert_bytes(all->stage));
    assert_non_null(block);
    for (int m = 0; m < subject->members; m++) {
        const Holder *holder = &members[m].holder;
        ExpertCopies *copies;
        size_t layer = 0;
        for (; (copies = stage_copies(holder->stage, layer)); layer++) {
            const uint32_t held = copies->physical / (uint32_t)subject->members;
            for (uint32_t slot = 0; slot < held; slot++) {
                const uint32_t expert = placement[(uint32_t)m * held + slot];
                OK(stage_copy_expert(all->stage, layer, expert, all->weights.parameters, block, true, error));
                OK(stage_copy_expert(holder->stage, layer, slot, holder->weights.parameters, block, false, error));
            }
            group_place_copies(copies, placement);
        }
        assert_int_equal(layer, 2);
    }
    free(block);
}

/* The F of a group whose experts have copies gives the same bits as the stage with all experts, first with the initial
   placement and then with another one. The oracle computes each row by itself, so its results do not depend on which
   rows share a product. */
TEST(copies_compute_the_same)
{
    static const uint32_t placement[] = {7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 5, 0};
    for (int count = 2; count <= MEMBERS_MOST; count *= 2) {
        const Subject subject = {.device = "oracle",
                                 .settings = SETTINGS("sequence=24", "microbatch_size=2"),
                                 .members = count,
                                 .replicas = 4};
        Member members[MEMBERS_MOST];
        Holder all;
        open_members(&subject, members);
        open_holder(&subject, NULL, &all);
        for (int moved = 0; moved < 2; moved++) {
            if (moved)
                place(&subject, members, &all, placement);
            run_members(&subject, members);
            for (int m = 0; m < count; m++) {
                assert_int_equal(members[m].status, STATUS_OK);
                draw(&all, m);
                OK(stage_forward(all.stage, &all.slots.buffers, error));
                assert_memory_equal(members[m].holder.slots.y, all.slots.y,
                                    stage_sizes(all.stage)->message * sizeof(double));
            }
        }
        close_members(&subject, members);
        close_holder(&all);
    }
}

/* An F&B whose all-to-alls are in flight while the other half computes gives the same bits as its halves one after the
   other. */
TEST(overlapped_is_in_turn_to_the_bit)
{
    for (int count = 2; count <= MEMBERS_MOST; count *= 2) {
        Member members[2][MEMBERS_MOST];
        Subject subjects[2];
        for (int merged = 0; merged < 2; merged++) {
            subjects[merged] = (Subject){.device = "cpu",
                                         .settings = SETTINGS("sequence=24", "dense_layers=3"),
                                         .members = count,
                                         .pair = true,
                                         .merged = merged};
            open_members(&subjects[merged], members[merged]);
            run_members(&subjects[merged], members[merged]);
        }
        for (int m = 0; m < count; m++) {
            const Holder *one = &members[0][m].holder, *other = &members[1][m].holder;
            const StageSizes *sizes = stage_sizes(one->stage);
            assert_int_equal(members[0][m].status, STATUS_OK);
            assert_int_equal(members[1][m].status, STATUS_OK);
            assert_memory_equal(one->slots.dx, other->slots.dx, sizes->message * sizeof(float));
            assert_memory_equal(one->second.y, other->second.y, sizes->message * sizeof(float));
            assert_memory_equal(one->weights.gradients, other->weights.gradients, sizes->parameters * sizeof(float));
        }
        for (int merged = 0; merged < 2; merged++)
            close_members(&subjects[merged], members[merged]);
    }
}

/* Operations that compute come between the post and the wait of every all-to-all of rows in the merged list. */
TEST(waits_come_late)
{
    Subject subject = {.device = "cpu", .settings = SETTINGS("sequence=8"), .members = 2, .pair = true, .merged = true};
    Member members[MEMBERS_MOST];
    open_members(&subject, members);
    atomic_store(&progress_calls, 0);
    run_members(&subject, members);
    const OpList *list = &members[0].holder.stage->pairs->list;
    const uint32_t checksum = stage_checksum(members[0].holder.stage);
    /* both members call progress after every operation of the F&B and of the F before it */
    const size_t alone = members[0].holder.stage->lists[RECIPE_F].count;
    assert_int_equal(atomic_load(&progress_calls), 2 * (list->count + alone));
    int posts = 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t computing = 0;
        if (list->ops[i].kind != OPERATION_rows_post)
            continue;
        for (size_t k = i + 1; list->ops[k].exchange != list->ops[i].exchange; k++)
            computing += !list->ops[k].exchange;
        assert_in_range(computing, 4, list->count);
        posts++;
    }
    assert_int_equal(stage_checksum(members[1].holder.stage), checksum);
    OpList *changed = &members[1].holder.stage->pairs->list;
    changed->ops[changed->count / 2].operands[0].offset += sizeof(float);
    assert_int_not_equal(stage_checksum(members[1].holder.stage), checksum);
    assert_int_equal(posts, 8); /* two layers, each with a dispatch and a combine in both halves */
    close_members(&subject, members);
}

/* The most all-to-alls of rows that a list has in flight at once. */
static int most_in_flight(const OpList *list)
{
    int now = 0, most = 0;
    for (size_t i = 0; i < list->count; i++) {
        now += (list->ops[i].kind == OPERATION_rows_post) - (list->ops[i].kind == OPERATION_rows_wait);
        most = now > most ? now : most;
    }
    return most;
}

/* In an F&F the all-to-alls of both halves are in flight at once. The results equal those of both halves run one after
   the other, to the bit. */
static void check_both_forwards(const Recipe *recipe)
{
    Member members[2][MEMBERS_MOST];
    Subject subjects[2];
    for (int merged = 0; merged < 2; merged++) {
        subjects[merged] = (Subject){.device = "cpu",
                                     .settings = SETTINGS("sequence=24", "dense_layers=3"),
                                     .members = 2,
                                     .forwards = recipe,
                                     .merged = merged};
        open_members(&subjects[merged], members[merged]);
        run_members(&subjects[merged], members[merged]);
    }
    for (int m = 0; m < 2; m++) {
        const Holder *one = &members[0][m].holder, *other = &members[1][m].holder;
        const size_t bytes = stage_sizes(one->stage)->message * sizeof(float);
        assert_int_equal(members[0][m].status, STATUS_OK);
        assert_int_equal(members[1][m].status, STATUS_OK);
        assert_memory_equal(one->slots.y, other->slots.y, bytes);
        assert_memory_equal(one->second.y, other->second.y, bytes);
        assert_int_equal(most_in_flight(&other->stage->pairs->list), 2);
    }
    for (int merged = 0; merged < 2; merged++)
        close_members(&subjects[merged], members[merged]);
}

TEST(both_forwards_communicate_at_once)
{
    check_both_forwards(&one_layer_at_once);
    check_both_forwards(&prefill);
}

/* The rows are copied while the counts of rows are in flight. */
TEST(work_comes_between_the_counts_and_the_rows)
{
    const Subject subject = {.device = "cpu", .settings = SETTINGS("sequence=8"), .members = 2};
    Member members[MEMBERS_MOST];
    open_members(&subject, members);
    const OpList *list = &members[0].holder.stage->lists[RECIPE_F];
    int posts = 0;
    for (size_t i = 0; i + 3 < list->count; i++)
        if (list->ops[i].kind == OPERATION_counts_post) {
            assert_int_equal(list->ops[i + 1].kind, OPERATION_permute);
            assert_int_equal(list->ops[i + 2].kind, OPERATION_counts_wait);
            assert_int_equal(list->ops[i + 3].kind, OPERATION_rows_post);
            posts++;
        }
    assert_int_equal(posts, 2); /* one for each layer */
    close_members(&subject, members);
}

/* One expert gets all rows of both members, but there is room for only half of these. */
TEST(too_many_rows_are_refused)
{
    const Subject subject = {.device = "cpu",
                             .name = "too many rows",
                             .settings = SETTINGS("experts_per_token=1", "sequence=8", "microbatch_size=1"),
                             .bias_of_first = 100,
                             .expert_rows = 1,
                             .members = 2};
    Member members[MEMBERS_MOST];
    open_members(&subject, members);
    run_members(&subject, members);
    assert_int_equal(members[0].status, STATUS_RUN_FAILED);
    assert_string_equal(
        members[0].error.text,
        "dispatch of layer 2: the experts of this rank get 16 rows, but --expert-rows has planned room for 8: "
        "these need --expert-rows 2, and others may need more; without it there is room for the worst case");
    assert_int_equal(members[1].status, STATUS_RUN_FAILED);
    assert_non_null(strstr(members[1].error.text, "rank 0 ended the run"));
    close_members(&subject, members);
}

int main(void) { return test_program("expert_group", NULL, NULL); }
