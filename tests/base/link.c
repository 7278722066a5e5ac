/* The network that --link describes: how it is read, and when its transfers arrive. */

#include "base/link.h"
#include "tests/test.h"

#include <limits.h>

TEST(settings_are_read)
{
    Error error;
    LinkModel link;
    assert_int_equal(link_read("latency=20us,bandwidth=2G,ranks=1-3", &link, &error), STATUS_OK);
    assert_true(link.given);
    assert_true(link.latency == 20 * 1e-6);
    assert_true(link.bandwidth == 2147483648.0);
    assert_true(link_connects(&link, 1, 3) && link_connects(&link, 3, 1));
    assert_false(link_connects(&link, 0, 1) || link_connects(&link, 3, 4) || link_connects(&link, 2, 2));
    assert_int_equal(link_read("latency=1.5ms", &link, &error), STATUS_OK);
    assert_true(link.latency == 1.5 * 1e-3);
    assert_true(link.bandwidth == 0);
    assert_true(link_connects(&link, 0, INT_MAX));
    assert_int_equal(link_read("bandwidth=500", &link, &error), STATUS_OK);
    assert_true(link.bandwidth == 500);
}

TEST(mistakes_are_named)
{
    static const char *const wrong[][2] = {
        {"latency=20", "latency = 20: it must be a time from 0 to 60 s with its unit, such as 20us or 1.5ms"},
        {"latency=-1us", "latency = -1us: it must be a time from 0 to 60 s with its unit, such as 20us or 1.5ms"},
        {"latency=nans", "latency = nans: it must be a time from 0 to 60 s with its unit, such as 20us or 1.5ms"},
        {"latency=2m", "latency = 2m: it must be a time from 0 to 60 s with its unit, such as 20us or 1.5ms"},
        {"bandwidth=0", "bandwidth = 0: it must be from 1 to 2^60 bytes a second, such as 500M or 2G"},
        {"bandwidth=2GB", "bandwidth = 2GB: it must be from 1 to 2^60 bytes a second, such as 500M or 2G"},
        {"bandwidth=inf", "bandwidth = inf: it must be from 1 to 2^60 bytes a second, such as 500M or 2G"},
        {"latency=1us,ranks=2", "ranks = 2: it must be the numbers of two processes, the smaller first, such as 0-3"},
        {"latency=1us,ranks=3-1",
         "ranks = 3-1: it must be the numbers of two processes, the smaller first, such as 0-3"},
        {"latency=1us,ranks=0-1x",
         "ranks = 0-1x: it must be the numbers of two processes, the smaller first, such as 0-3"},
        {"latncy=1us", "no setting 'latncy'; did you mean latency?"},
        {"latency", "'latency' is not 'key = value'"},
        {"", "'' is not 'key = value'"},
        {"latency=1us,", "'' is not 'key = value'"},
        {"bandwidth=1,latency=0.000000000000000000000000000000000000000000000000000000000020s",
         "'latency=0.0000000000000000000000...' is longer than any setting"},
        {"ranks=0-1", "give a latency above 0, a bandwidth, or both"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Error error;
        LinkModel link;
        assert_int_equal(link_read(wrong[i][0], &link, &error), STATUS_BAD_USAGE);
        assert_string_equal(error.text, wrong[i][1]);
    }
}

/* A message of 1000 bytes keeps the link busy for 1 ms. */
TEST(a_link_carries_one_transfer_at_a_time)
{
    const LinkModel link = {.given = true, .latency = 1e-4, .bandwidth = 1e6};
    int64_t free = 0;
    assert_int_equal(link_arrival(&link, &free, 5000000, 1000), 6100000);
    assert_int_equal(free, 6000000);
    assert_int_equal(link_arrival(&link, &free, 5500000, 2000), 8100000); /* waits for the first */
    assert_int_equal(link_arrival(&link, &free, 9000000, 1000), 10100000);
    const LinkModel late = {.given = true, .latency = 1e-4};
    assert_int_equal(link_arrival(&late, &free, 20000000, 1 << 30), 20100000);
    assert_int_equal(free, 20000000);
    assert_int_equal(link_occupy(&free, 19000000, 7), 20000007);
    assert_int_equal(link_occupy(&free, 30000000, 7), 30000007);
    assert_int_equal(free, 30000007);
}

int main(void) { return test_program("link", NULL, NULL); }
