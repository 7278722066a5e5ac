/* The data set: the microbatches of training, the held-out windows, the entropy of its bytes, and random numbers for a
   model that reads no text. */

#include "tests/model/harness.h"

#include <stdio.h>

enum { SEQUENCE = 8, SAMPLES = 3, TOKENS = SEQUENCE * SAMPLES };
static const char *const settings[] = {"sequence=8", "microbatch_size=3", "hidden=4", "heads=1", NULL};
static char path[4096];

static int name_file(void **state)
{
    (void)state;
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/data.txt", build ? build : ".");
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    remove(path);
    return 0;
}

/* Writes a text of `count` bytes whose values count up, so that each byte shows its position. */
static void write_bytes(size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < count; i++)
        fputc((int)i, file);
    fclose(file);
}

TEST(test_microbatches)
{
    const ModelConfig config = config_of("gpt", settings, 1);
    Dataset *data, *again;
    write_bytes(200);
    OK(dataset_open(&config, path, &data, error));
    OK(dataset_open(&config, path, &again, error));
    assert_string_equal(dataset_name(data), path);
    bool seen[256] = {false};
    for (uint64_t step = 0; step < 1000; step++) {
        int32_t inputs[TOKENS], targets[TOKENS], other[TOKENS];
        dataset_microbatch(data, step, 2, inputs, targets);
        for (size_t i = 0; i < TOKENS; i++) {
            assert_int_equal(targets[i], inputs[i] + 1);
            if (i % SEQUENCE)
                assert_int_equal(inputs[i], inputs[i - 1] + 1);
            assert_true(targets[i] < 180); /* the last 10 % are held out */
            seen[inputs[i]] = seen[targets[i]] = true;
        }
        dataset_microbatch(again, step, 2, other, NULL);
        assert_memory_equal(inputs, other, sizeof inputs);
        dataset_microbatch(again, step, 2, NULL, other);
        assert_memory_equal(targets, other, sizeof targets);
        dataset_microbatch(again, step, 3, other, NULL);
        assert_memory_not_equal(inputs, other, sizeof inputs);
        dataset_microbatch(again, step + 1, 2, other, NULL);
        assert_memory_not_equal(inputs, other, sizeof inputs);
    }
    for (size_t byte = 0; byte < 180; byte++)
        assert_true(seen[byte]);
    dataset_close(data);
    dataset_close(again);
}

/* Each held-out window is in exactly one microbatch. Microbatches are full while enough windows are left. The last ones
   may hold fewer windows, a number that divides the microbatch size. */
TEST(test_held_out_windows)
{
    for (uint32_t size = 1; size <= 12; size++)
        for (uint64_t windows = 1; windows <= 40; windows++) {
            uint64_t next = 0, number = 0;
            for (Windows own; (own = held_out_windows(windows, size, number)).count; number++) {
                assert_true(own.first == next && size % own.count == 0);
                assert_true(own.count == size || next >= windows / size * size);
                next += own.count;
            }
            assert_int_equal(next, windows);
            assert_int_equal(held_out_windows(windows, size, number + 3).count, 0);
        }
    assert_int_equal(held_out_windows(0, 4, 0).count, 0);
}

TEST(test_held_out)
{
    const ModelConfig config = config_of("gpt", settings, 1);
    static const Windows asked[] = {{0, 1}, {1, 1}, {0, 3}, {2, 1}, {5, 0}};
    Dataset *data;
    write_bytes(250);
    OK(dataset_open(&config, path, &data, error));
    /* 25 bytes are three windows of 8, and one byte after them for the last target */
    assert_int_equal(dataset_windows(data), 3);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int32_t inputs[TOKENS], targets[TOKENS];
        dataset_held_out(data, asked[i], inputs, targets);
        for (size_t sample = 0; sample < SAMPLES; sample++) {
            const uint64_t window = asked[i].count ? asked[i].first + sample % asked[i].count : 0;
            for (int32_t t = 0; t < SEQUENCE; t++) {
                assert_int_equal(inputs[sample * SEQUENCE + (size_t)t], 225 + (int32_t)window * SEQUENCE + t);
                assert_int_equal(targets[sample * SEQUENCE + (size_t)t], inputs[sample * SEQUENCE + (size_t)t] + 1);
            }
        }
    }
    dataset_close(data);
}

TEST(test_shortest_file)
{
    const ModelConfig config = config_of("gpt", settings, 1);
    Dataset *data = NULL;
    Error failure;
    write_bytes(17);
    assert_int_equal(dataset_open(&config, path, &data, &failure), STATUS_BAD_INPUT);
    assert_null(data);
    assert_non_null(strstr(failure.text, " has 17 bytes; "));
    assert_non_null(strstr(failure.text, "need at least 18 bytes"));
    write_bytes(18);
    OK(dataset_open(&config, path, &data, error));
    int32_t inputs[TOKENS], targets[TOKENS];
    for (uint32_t number = 0; number < 10; number++) {
        dataset_microbatch(data, number, 0, inputs, targets);
        assert_int_equal(inputs[0], 0);
        assert_int_equal(targets[SEQUENCE - 1], 8);
        dataset_held_out(data, (Windows){0, 1}, inputs, targets);
        assert_int_equal(inputs[0], 9);
        assert_int_equal(targets[SEQUENCE - 1], 17);
    }
    dataset_close(data);
    assert_int_equal(dataset_open(&config, "/no/such/text", &data, &failure), STATUS_BAD_INPUT);
    assert_non_null(strstr(failure.text, "/no/such/text"));
}

TEST(test_entropy)
{
    const ModelConfig config = config_of("gpt", settings, 1);
    Dataset *data;
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 1000; i++)
        fputc("aabc"[i % 4], file);
    fclose(file);
    OK(dataset_open(&config, path, &data, error));
    assert_true(fabs(dataset_byte_entropy(data) - 1.5 * log(2)) < 1e-12);
    dataset_close(data);
    OK(dataset_open(&config, NULL, &data, error)); /* the default text, which every Debian has */
    assert_non_null(strstr(dataset_name(data), "/usr/share/common-licenses/"));
    assert_true(dataset_byte_entropy(data) > 2.5 && dataset_byte_entropy(data) < 4);
    dataset_close(data);
}

TEST(test_noise)
{
    enum { COUNT = TOKENS * 4 };
    ModelConfig config = config_of("mlp", settings, 1);
    Dataset *data;
    Error failure;
    OK(dataset_open(&config, NULL, &data, error));
    assert_true(dataset_byte_entropy(data) == 0 && dataset_windows(data) == 0);
    float inputs[COUNT], targets[COUNT], other[COUNT];
    double mean = 0, square = 0;
    for (uint64_t step = 0; step < 50; step++) {
        dataset_microbatch(data, step, 1, inputs, targets);
        dataset_microbatch(data, step, 1, other, NULL);
        assert_memory_equal(inputs, other, sizeof inputs);
        assert_memory_not_equal(inputs, targets, sizeof inputs);
        dataset_microbatch(data, step, 0, other, NULL);
        assert_memory_not_equal(inputs, other, sizeof inputs);
        for (size_t i = 0; i < COUNT; i++) {
            mean += (double)inputs[i] / (50 * COUNT);
            square += (double)inputs[i] * (double)inputs[i] / (50 * COUNT);
        }
    }
    assert_true(fabs(mean) < 0.05 && fabs(square - 1) < 0.05);
    dataset_close(data);
    assert_int_equal(dataset_open(&config, path, &data, &failure), STATUS_BAD_USAGE);
}

int main(void) { return test_program("data", name_file, remove_file); }
