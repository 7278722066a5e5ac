/* The dependences that are derived from operations.def are sufficient and necessary: the operations of an F&B give the
   same bits in any order that keeps all dependences, and other bits in an order that violates one of them. */

#include "runtime/model/stage.h"
#include "tests/model/harness.h"

enum { OPS_MOST = 128, REGIONS = 16, ORDERS = 100 };

static const Recipe layer = {
    .entries = {{{RECIPE_ATTENTION, RECIPE_F},
                 {RECIPE_MLP, RECIPE_B},
                 {RECIPE_PERCEPTRON, RECIPE_B},
                 {RECIPE_MLP, RECIPE_W},
                 {RECIPE_MLP, RECIPE_F},
                 {RECIPE_PERCEPTRON, RECIPE_F},
                 {RECIPE_PERCEPTRON, RECIPE_W},
                 {RECIPE_ATTENTION, RECIPE_B},
                 {RECIPE_ATTENTION, RECIPE_W}}},
    .counts = {9, 0},
};

/* A block of memory that an F&B may change, with copies of its content. */
typedef struct Region {
    /* before: content before the F&B; result: content after its operations in the order of the list */
    void *memory, *before, *result;
    size_t bytes;
} Region;

typedef struct Subject {
    Device *device;
    StagePair pair;
    PairList *list;
    Region regions[REGIONS];
    size_t region_count;
    void *bases[2 * PASS_BASES];
} Subject;

static void *copy_of(const void *memory, size_t bytes)
{
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, memory, bytes);
}

static void add_region(Subject *subject, void *memory, size_t bytes)
{
    if (memory && bytes)
        subject->regions[subject->region_count++] =
            (Region){.memory = memory, .before = copy_of(memory, bytes), .bytes = bytes};
}

/* Adds all memory that the passes of a stage write, except the workspace, which no later pass reads. */
static void add_regions(Subject *subject, const StageSizes *sizes, const PassBuffers *buffers)
{
    const size_t each = sizeof(float);
    add_region(subject, buffers->parameter_gradients, sizes->parameters * each);
    add_region(subject, buffers->y, sizes->message * each);
    add_region(subject, buffers->dx, sizes->message * each);
    add_region(subject, buffers->context, sizes->context * each);
    add_region(subject, buffers->stash, sizes->stash * each);
    add_region(subject, buffers->gradient, sizes->gradient * each);
    add_region(subject, buffers->outputs, sizes->outputs * each);
    add_region(subject, buffers->loss, sizeof(double));
}

/* Restores the content that the memory had before the F&B, and runs the operations in the given order. */
static void run_in(const Subject *subject, const size_t *order)
{
    for (size_t r = 0; r < subject->region_count; r++)
        memcpy(subject->regions[r].memory, subject->regions[r].before, subject->regions[r].bytes);
    for (size_t i = 0; i < subject->list->list.count; i++)
        OK(op_run(subject->device, &subject->list->list, order[i], order[i] + 1, subject->bases, error));
}

static bool gave_the_same(const Subject *subject)
{
    for (size_t r = 0; r < subject->region_count; r++)
        if (memcmp(subject->regions[r].memory, subject->regions[r].result, subject->regions[r].bytes) != 0)
            return false;
    return true;
}

static void run_in_turn(Subject *subject)
{
    size_t order[OPS_MOST];
    for (size_t i = 0; i < OPS_MOST; i++)
        order[i] = i;
    assert_in_range(subject->list->list.count, 10, OPS_MOST);
    run_in(subject, order);
    for (size_t r = 0; r < subject->region_count; r++)
        subject->regions[r].result = copy_of(subject->regions[r].memory, subject->regions[r].bytes);
}

static bool may_run(const Op *op, const bool *done)
{
    for (unsigned a = 0; a < op->after_count; a++)
        if (!done[op->after[a]])
            return false;
    return true;
}

static void check_random_orders(const Subject *subject)
{
    const OpList *list = &subject->list->list;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        size_t order[OPS_MOST];
        bool done[OPS_MOST] = {false};
        for (size_t next = 0; next < list->count;) {
            const size_t i = (size_t)(random_bits(seed, next) % list->count);
            for (size_t k = 0; k < list->count; k++) {
                const size_t candidate = (i + k) % list->count;
                if (!done[candidate] && may_run(&list->ops[candidate], done)) {
                    done[candidate] = true;
                    order[next++] = candidate;
                    break;
                }
            }
        }
        run_in(subject, order);
        assert_true(gave_the_same(subject));
    }
}

static void mark_with_all_before(const OpList *list, size_t index, bool *marked)
{
    marked[index] = true;
    for (unsigned a = 0; a < list->ops[index].after_count; a++)
        mark_with_all_before(list, list->ops[index].after[a], marked);
}

/* Makes the order in which operation `index` runs as early as possible if its dependence number `left_out` is ignored.
   False: that dependence follows from others. */
static bool order_without(const OpList *list, size_t index, unsigned left_out, size_t *order)
{
    const Op *op = &list->ops[index];
    bool first[OPS_MOST] = {false};
    size_t count = 0;
    for (unsigned a = 0; a < op->after_count; a++)
        if (a != left_out)
            mark_with_all_before(list, op->after[a], first);
    if (first[op->after[left_out]])
        return false;
    for (size_t i = 0; i < index; i++)
        if (first[i])
            order[count++] = i;
    order[count++] = index;
    for (size_t i = 0; i < list->count; i++)
        if (!first[i] && i != index)
            order[count++] = i;
    return true;
}

/* Checks that every stored dependence is needed: an order that violates it gives other bits. Only cross_entropy stores
   a dependence that follows from others: they lead through to_floats, which may be left out. */
static void check_each_is_needed(const Subject *subject)
{
    const OpList *list = &subject->list->list;
    for (size_t i = 0; i < list->count; i++)
        for (unsigned a = 0; a < list->ops[i].after_count; a++) {
            size_t order[OPS_MOST];
            if (!order_without(list, i, a, order)) {
                assert_int_equal(list->ops[i].kind, OPERATION_cross_entropy);
                continue;
            }
            run_in(subject, order);
            if (gave_the_same(subject))
                fail_msg("%s may come before %s", op_info[list->ops[i].kind].name,
                         op_info[list->ops[list->ops[i].after[a]].kind].name);
        }
}

/* Fills the memory of the forward half with the results of another microbatch, so that an operation that reads too
   early gets other numbers: runs the F, and then changes its inputs. The new input tokens are valid. */
static void run_another(Device *device, Stage *stage, Slots *slots)
{
    OK(stage_forward(stage, &slots->buffers, error));
    randomize(device, slots->x, stage_sizes(stage)->message, 9, 1);
    for (size_t i = 0; i < stage_sizes(stage)->inputs / sizeof(int32_t); i++)
        memcpy((char *)slots->inputs + i * sizeof(int32_t), &(int32_t){(int32_t)(i % 3)}, sizeof(int32_t));
}

static void check_pair(Device *device, const ModelConfig *config, uint32_t forward)
{
    Subject subject = {.device = device};
    Stage *stages[2];
    StageWeights weights[2];
    Slots slots[2];
    for (uint32_t s = 0; s < 2; s++) {
        OK(stage_open(config, device, s, 2, 1, &stages[s], error));
        weights[s] = weights_of(device, stages[s]);
        make_slots(device, stage_sizes(stages[s]), s == 0, s == 1, weights[s], &slots[s]);
    }
    const uint32_t backward = 1 - forward;
    OK(stage_forward(stages[backward], &slots[backward].buffers, error));
    if (model_reads_text(config))
        run_another(device, stages[forward], &slots[forward]);
    subject.pair = (StagePair){.forward = stages[forward],
                               .backward = stages[backward],
                               .forward_buffers = slots[forward].buffers,
                               .backward_buffers = slots[backward].buffers,
                               .weights = true};
    pass_bases(&subject.pair.forward_buffers, subject.bases);
    pass_bases(&subject.pair.backward_buffers, subject.bases + PASS_BASES);
    for (int s = 0; s < 2; s++)
        add_regions(&subject, stage_sizes(stages[s]), &slots[s].buffers);
    OK(stage_pair_list(&subject.pair, &layer, &subject.list, error));
    /* the CPU device runs a list in its order, and so has not derived the dependences */
    OK(op_list_order(&subject.list->list, error));
    run_in_turn(&subject);
    check_random_orders(&subject);
    check_each_is_needed(&subject);
    for (size_t r = 0; r < subject.region_count; r++) {
        free(subject.regions[r].before);
        free(subject.regions[r].result);
    }
    for (int s = 0; s < 2; s++) {
        free_slots(device, &slots[s]);
        free_weights(device, weights[s]);
        stage_close(stages[s]);
    }
}

static void check_model(const char *model)
{
    static const char *const small[] = {"hidden=8", "sequence=4", "layers=4", NULL};
    Device *device;
    OK(device_open("cpu", 0, &device, error));
    const ModelConfig config = config_of(model, small, 2);
    check_pair(device, &config, 0);
    check_pair(device, &config, 1);
    device_close(device);
}

TEST(dependences_of_a_gpt) { check_model("gpt"); }

TEST(dependences_of_a_moe) { check_model("moe"); }

TEST(dependences_of_an_mlp) { check_model("mlp"); }

/* Operations that add to the same sum keep the order of the list. Two reads of the same memory do not depend on each
   other. */
TEST(additions_keep_their_order)
{
    const Address x = {1, 0}, dy = {2, 0}, dw = {3, 0}, beside = {3, 64}, bias = {4, 0};
    OpList list = {0};
    APPEND(&list, linear_backward_weight, NULL, x, dy, dw, bias);
    APPEND(&list, linear_backward_weight, NULL, x, dy, beside, no_address);
    APPEND(&list, linear_backward_weight, NULL, x, dy, dw, no_address);
    APPEND(&list, linear_backward_weight, NULL, x, dy, dw, bias);
    OK(op_list_finish(&list, error));
    OK(op_list_order(&list, error));
    assert_int_equal(list.ops[0].after_count, 0);
    assert_int_equal(list.ops[1].after_count, 0);
    assert_int_equal(list.ops[2].after_count, 1);
    assert_int_equal(list.ops[2].after[0], 0);
    /* the dependence on operation 0 is not stored, because it follows from that on operation 2 */
    assert_int_equal(list.ops[3].after_count, 1);
    assert_int_equal(list.ops[3].after[0], 2);
    op_list_free(&list);
}

/* Whether two operations must keep their order: both use the same address, and one of them does more than read it. */
static bool must_keep_order(const Op *one, const Op *other)
{
    const OpOperand *a = op_info[one->kind].operands, *b = op_info[other->kind].operands;
    for (int i = 0; i < OPERATION_OPERANDS && a[i].effect; i++)
        for (int j = 0; j < OPERATION_OPERANDS && b[j].effect; j++)
            if (one->operands[i].base && one->operands[i].base == other->operands[j].base &&
                one->operands[i].offset == other->operands[j].offset &&
                (a[i].effect != EFFECT_READ || b[j].effect != EFFECT_READ))
                return true;
    return false;
}

/* Random lists with a few addresses: every two operations that must keep their order depend on each other, directly or
   through others; every stored dependence is between two such operations; and none follows from others. */
TEST(dependences_of_random_lists)
{
    enum { LISTS = 400, OPS = 40, ADDRESSES = 3 };
    int derived = 0;
    for (uint64_t seed = 0; seed < LISTS; seed++) {
        OpList list = {0};
        for (uint64_t i = 0; i < OPS; i++) {
            const uint64_t bits = random_bits(seed, i);
            const Address a = {1, bits % ADDRESSES}, b = {1 + (bits >> 8) % 2, (bits >> 16) % ADDRESSES};
            if (bits >> 32 & 1)
                APPEND(&list, copy, NULL, a, b);
            else
                APPEND(&list, embedding_backward, NULL, a, b, {3, bits % ADDRESSES}, b);
        }
        Error few = {""};
        OK(op_list_finish(&list, error));
        if (op_list_order(&list, &few) != STATUS_OK) { /* an operation has too many direct dependences */
            op_list_free(&list);
            continue;
        }
        derived++;
        bool before[OPS][OPS] = {{false}};
        for (size_t i = 0; i < OPS; i++) {
            const Op *op = &list.ops[i];
            for (unsigned k = 0; k < op->after_count; k++) {
                /* dependences are stored newest first; one that follows from newer ones is not stored */
                assert_false(before[i][op->after[k]]);
                before[i][op->after[k]] = true;
                for (size_t j = 0; j < OPS; j++)
                    before[i][j] |= before[op->after[k]][j];
            }
            for (unsigned k = 0; k < op->after_count; k++)
                assert_true(must_keep_order(op, &list.ops[op->after[k]]));
            for (size_t j = 0; j < i; j++)
                assert_true(before[i][j] || !must_keep_order(op, &list.ops[j]));
        }
        op_list_free(&list);
    }
    assert_in_range(derived, LISTS / 4, LISTS);
}

/* A list of many layers. Each reads the result of the previous layer and, as residual, the result of an earlier one.
   All layers share their weights, and the last operation computes the gradient of the weights. Deriving the dependences
   takes a few steps per operation. */
TEST(a_list_may_be_long)
{
    enum { LONG = 65535, BACK = 8, STEPS = 16 };
    const Address w = {2, 0}, bias = {2, 64};
    OpList list = {0};
    for (uint32_t i = 1; i < LONG; i++)
        APPEND(&list, linear_forward, NULL, {1, i}, w, bias, {1, i < BACK ? 0 : i - BACK}, {1, i + 1});
    APPEND(&list, linear_backward_weight, NULL, {1, 1}, {1, 2}, w, bias);
    OK(op_list_finish(&list, error));
    OK(op_list_order(&list, error));
    assert_int_equal(list.count, LONG);
    for (uint32_t i = 0; i < LONG; i++) {
        assert_int_equal(list.ops[i].after_count, i > 0);
        assert_true(i == 0 || list.ops[i].after[0] == i - 1);
    }
    assert_in_range(list.steps, LONG, STEPS * LONG);
    op_list_free(&list);
}

int main(void) { return test_program("dependences", NULL, NULL); }
