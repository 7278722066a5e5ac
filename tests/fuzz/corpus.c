/* Runs a fuzz target without libFuzzer: on every named file, and on changed copies of each, which are the same in every
   run. Link it with one target. Usage: PROGRAM FILE... */

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGES = 150 };

static uint64_t random_state;

static size_t below(size_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % limit;
}

/* Makes one to four small changes: a changed byte, a removed piece, a copied piece, an inserted number or word. */
static size_t change(uint8_t *data, size_t size, size_t capacity)
{
    static const char *const words[] = {"9223372036854775807", "-1", "0",    "nF0B1", "overlap", "{", "}",
                                        "repeat i < 9 {",      ";",  "\xff", "(",     "I0"};
    for (size_t count = 1 + below(4); count && size > 1; count--) {
        const size_t place = below(size);
        size_t length = 1 + below(size - place < 40 ? size - place : 40);
        switch (below(4)) {
        case 0: data[place] = (uint8_t)below(256); break;
        case 1:
            memmove(data + place, data + place + length, size - place - length);
            size -= length;
            break;
        case 2: memmove(data + below(size - length + 1), data + place, length); break;
        default: {
            const char *word = words[below(sizeof words / sizeof *words)];
            length = strlen(word);
            if (size + length > capacity)
                break;
            memmove(data + place + length, data + place, size - place);
            memcpy(data + place, word, length);
            size += length;
        }
        }
    }
    return size;
}

static void survives(void **state)
{
    FILE *file = fopen(*state, "rb");
    assert_non_null(file);
    enum { CAPACITY = 1 << 16 };
    uint8_t *seed = malloc(CAPACITY), *data = malloc(CAPACITY);
    assert_true(seed && data);
    const size_t size = fread(seed, 1, CAPACITY / 2, file);
    fclose(file);
    LLVMFuzzerTestOneInput(seed, size);
    for (int i = 0; i < CHANGES; i++) {
        random_state = (uint64_t)i;
        memcpy(data, seed, size);
        /* a copy of exactly this size, so that a sanitizer finds reads past the end */
        uint8_t *exact = malloc(CAPACITY);
        assert_non_null(exact);
        const size_t changed = change(data, size, CAPACITY);
        memcpy(exact, data, changed);
        exact = realloc(exact, changed ? changed : 1);
        assert_non_null(exact);
        LLVMFuzzerTestOneInput(exact, changed);
        free(exact);
    }
    free(seed);
    free(data);
}

int main(int argc, char **argv)
{
    struct CMUnitTest *tests = calloc((size_t)argc, sizeof *tests);
    if (!tests)
        return 1;
    for (int i = 1; i < argc; i++)
        tests[i - 1] = (struct CMUnitTest){.name = argv[i], .test_func = survives, .initial_state = argv[i]};
    const int failures = _cmocka_run_group_tests("fuzz corpus", tests, (size_t)argc - 1, NULL, NULL);
    free(tests);
    return failures != 0;
}
