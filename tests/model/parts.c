/* The table of parts (program/parts.h) agrees with the components of the models. */

#include "tests/model/harness.h"

#include "runtime/model/stage.h"
#include "runtime/model/spec.h"

static Device *oracle;

/* [part]: a component that implements it; NULL: none found. A part that computes in a layer may have several
   components; any other part has only one, shared by all models that have the part. */
static const ComponentKind *implemented[MODEL_PARTS];

static void expect_component(const ModelSpec *model, const ComponentKind *kind, PartRole role)
{
    assert_true(kind->part < MODEL_PARTS);
    const char *const name = part_names[kind->part];
    if (part_roles[kind->part] != role)
        fail_msg("%s: the table of parts gives %s another role", model->name, name);
    if (implemented[kind->part] && implemented[kind->part] != kind && role != PART_COMPUTES)
        fail_msg("%s: two components are called %s", model->name, name);
    if (!kind->open || !kind->forward)
        fail_msg("%s: %s lacks a pass", model->name, name);
    implemented[kind->part] = kind;
}

static void find_components(void)
{
    memset(implemented, 0, sizeof implemented);
    for (size_t m = 0; models[m]; m++) {
        expect_component(models[m], models[m]->first, PART_BEGINS);
        assert_non_null(models[m]->layer[0]);
        for (int other = 0; other < 2; other++) {
            const ComponentKind *const *layer = other ? models[m]->other_layer : models[m]->layer;
            for (size_t i = 0; i < LAYER_COMPONENTS && layer[i]; i++)
                expect_component(models[m], layer[i],
                                 recipe_communicates[layer[i]->part] ? PART_COMMUNICATES : PART_COMPUTES);
        }
        expect_component(models[m], models[m]->last, PART_ENDS);
    }
}

TEST(test_all_are_implemented)
{
    find_components();
    for (int part = 0; part < MODEL_PARTS; part++)
        if (!implemented[part] && part_roles[part] != PART_COSTS && part_roles[part] != PART_INSIDE)
            fail_msg("no model has %s of the table of parts", part_names[part]);
}

TEST(test_names)
{
    for (int part = 0; part < MODEL_PARTS; part++) {
        assert_int_equal(part_roles[part] <= PART_COMMUNICATES, part < (int)RECIPE_COMPONENTS);
        assert_int_equal(part_roles[part] <= PART_INSIDE, part < (int)RECIPE_NAMES);
        const size_t length = strlen(part_names[part]);
        assert_int_equal(part_named(part_names[part], length), part);
        assert_int_equal(part_named(part_names[part], length - 1), MODEL_PARTS);
        for (int other = 0; other < part; other++)
            assert_string_not_equal(part_names[part], part_names[other]);
    }
}

/* A layer's components run in the order of the table of parts: recipe_needs relies on it. */
TEST(test_order_of_layers)
{
    for (size_t m = 0; models[m]; m++)
        for (size_t i = 1; i < LAYER_COMPONENTS && models[m]->layer[i]; i++)
            assert_true(models[m]->layer[i - 1]->part <= models[m]->layer[i]->part);
}

/* Checks the last column of the table of parts (parts.h): exactly the parts with weights have W and U. */
TEST(test_passes)
{
#define NONE 0
#define F 0
#define B 0
#define FB 0
#define FWU 1
#define FBWU 1
#define PART(number, name, role, passes) passes,
    static const int has_weights[MODEL_PARTS] = {MODEL_PART_LIST};
#undef PART
#undef NONE
#undef F
#undef B
#undef FB
#undef FWU
#undef FBWU
    static const char *const none[] = {NULL};
    find_components();
    for (size_t m = 0; models[m]; m++) {
        const ModelConfig config = config_of(models[m]->name, none, 1);
        Stage *stage;
        OK(stage_open(&config, oracle, 0, 1, 1, &stage, error));
        for (size_t i = 0; i < stage->part_count; i++) {
            const Component *component = &stage->parts[i].component;
            if (has_weights[component->kind->part] != (component->parameter_count > 0) ||
                has_weights[component->kind->part] != (component->kind->backward_weight != NULL))
                fail_msg("the table of parts is wrong about the weights of %s", part_names[component->kind->part]);
        }
        stage_close(stage);
    }
}

static int open_oracle(void **state)
{
    (void)state;
    Error error;
    return (int)device_open("oracle", 0, &oracle, &error);
}

static int close_oracle(void **state)
{
    (void)state;
    device_close(oracle);
    return 0;
}

int main(void) { return test_program("parts", open_oracle, close_oracle); }
