/* dps_compare, dps_advise and dps_check, which run several schedules. */

#include "tests/library/client.h"

/* Chimera has two copies of each stage, so with 2 replicas of the pipeline 4 copies sum the gradients of a stage. */
TEST(replicas_sum_gradients)
{
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

TEST(schedules_are_compared)
{
    static const char *const right[] = {"schedules/gpipe.dps", "schedules/zb1p.dps"};
    static const char *const wrong[] = {"schedules/gpipe.dps", "README.md"};
    const dps_options sizes = {.size = sizeof sizes, .ranks = 2, .microbatches = 4};
    dps *d = dps_new(NULL);
    char *json;
    assert_int_equal(dps_compare(d, right, 2, &sizes, &json, NULL), DPS_OK);
    assert_non_null(strstr(json, "\"schedule\": \"gpipe\""));
    dps_release(d, json);
    assert_int_equal(dps_advise(d, right, 2, &sizes, 600, 0, &json, NULL), DPS_OK);
    assert_non_null(strstr(json, "\"rows\": ["));
    assert_non_null(strstr(json, "dpc --ranks 2 --microbatches 4"));
    dps_release(d, json);
    assert_int_equal(dps_check(d, wrong, 2, NULL, &json, NULL), DPS_OK);
    assert_non_null(strstr(json, "\"weakest\": \"rendezvous\""));
    assert_non_null(strstr(json, "\"refused\": \"README.md:3:1: error: "));
    dps_release(d, json);
    assert_int_equal(dps_compare(d, wrong, 2, NULL, &json, NULL), DPS_BAD_INPUT);
    assert_null(json);
    assert_non_null(strstr(dps_error(d), "README.md:3:1: error: "));
    assert_int_not_equal(dps_error(d)[strlen(dps_error(d)) - 1], '\n');
    assert_int_equal(dps_advise(d, wrong, 2, &sizes, 1, 0, &json, NULL), DPS_BAD_INPUT);
    assert_non_null(strstr(dps_error(d), "README.md:3:1: error: "));
    assert_int_equal(dps_advise(d, wrong, 1, NULL, 1, 0, &json, NULL), DPS_BAD_USAGE);
    assert_int_equal(dps_compare(d, wrong, 0, NULL, &json, NULL), DPS_BAD_USAGE);
    dps_free(d);
}

int main(void) { return test_program("studies", NULL, NULL); }
