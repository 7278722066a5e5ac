/* dps_compare and dps_advise, which run several schedules. */

#include "tests/library/host.h"

/* Runs compare and advise. False: memory was exhausted. */
static bool study(dps *d)
{
    static const char *const paths[] = {"schedules/gpipe.dps", "schedules/zb1p.dps", "schedules/zb-h1.dps"};
    static const char *const costs[] = {"F=1.5"};
    const dps_options options = {
        .size = sizeof options, .ranks = 2, .microbatches = 4, .costs = costs, .cost_count = 1};
    char *compared = NULL, *advised = NULL;
    dps_status status = dps_compare(d, paths, 3, &options, &compared, NULL);
    if (status == DPS_OK)
        status = dps_advise(d, paths, 3, &options, 600, 0, &advised, NULL);
    if (status == DPS_OK) {
        assert_non_null(strstr(compared, "\"schedule\": \"gpipe\""));
        assert_non_null(strstr(advised, "\"rows\": ["));
        assert_non_null(strstr(advised, "dpc --ranks 2 --microbatches 4"));
    }
    dps_release(d, compared);
    dps_release(d, advised);
    return status == DPS_OK;
}

/* Chimera has two copies of each stage, so with 2 replicas of the pipeline 4 copies sum the gradients of a stage. */
static void replicas_sum_gradients(void **state)
{
    (void)state;
    static const char *const paths[] = {"schedules/chimera.dps"}, *const costs[] = {"F=1,gradients=8,bandwidth=1"};
    dps_options options = {
        .size = sizeof options, .ranks = 2, .microbatches = 4, .costs = costs, .cost_count = 1, .replicas = 2};
    dps *d = dps_new(NULL);
    char *json;
    assert_int_equal(dps_compare(d, paths, 1, &options, &json, NULL), DPS_OK);
    /* each of 2 ranks sends 2 * 3/4 * 8 bytes for each of 2 stages, which have 4 copies */
    assert_non_null(strstr(json, "\"sums_bytes\": 48"));
    dps_release(d, json);
    assert_int_equal(dps_advise(d, paths, 1, &options, 600, 0, &json, NULL), DPS_OK);
    assert_non_null(strstr(json, "\"sums_bytes\": 48"));
    dps_release(d, json);
    options.cost_count = 0;
    assert_int_equal(dps_compare(d, paths, 1, &options, &json, NULL), DPS_BAD_USAGE);
    assert_non_null(strstr(dps_error(d), "gradients=N"));
    assert_null(json);
    dps_free(d);
}

static void schedules_are_compared(void **state)
{
    (void)state;
    static const char *const wrong[] = {"schedules/gpipe.dps", "HACKING.md"};
    const dps_options sizes = {.size = sizeof sizes, .ranks = 2, .microbatches = 4};
    dps *d = dps_new(NULL);
    char *json;
    assert_true(study(d));
    assert_int_equal(dps_compare(d, wrong, 2, NULL, &json, NULL), DPS_BAD_INPUT);
    assert_null(json);
    assert_non_null(strstr(dps_error(d), "HACKING.md:5:1: error: "));
    assert_int_not_equal(dps_error(d)[strlen(dps_error(d)) - 1], '\n');
    assert_int_equal(dps_advise(d, wrong, 2, &sizes, 1, 0, &json, NULL), DPS_BAD_INPUT);
    assert_non_null(strstr(dps_error(d), "HACKING.md:5:1: error: "));
    assert_int_equal(dps_advise(d, wrong, 1, NULL, 1, 0, &json, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_compare(d, wrong, 0, NULL, &json, NULL), DPS_BAD_USAGE);
    dps_free(d);
}

static void studies_lose_no_memory(void **state)
{
    (void)state;
    bool enough = false;
    for (int pieces = 1; !enough && pieces < 100000; pieces++) {
        Host host = {.left = pieces};
        const dps_host functions = {.size = sizeof functions, .user = &host, .allocate = give, .release = take};
        dps *d = dps_new(&functions);
        enough = study(d);
        dps_free(d);
        assert_int_equal(host.live, 0);
    }
    assert_true(enough);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_are_compared),
        cmocka_unit_test(replicas_sum_gradients),
        cmocka_unit_test(studies_lose_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
