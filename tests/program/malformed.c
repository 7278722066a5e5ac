/* Runs the fuzz target of the decoder without a fuzzer: on generated programs, and on copies with a few changed
   bytes. */

#include "tests/fuzz/decode.c"
#include "tests/program/generator.h"
#include "tests/test.h"

enum { SEEDS = 40, CHANGES = 300 };

static void change(uint8_t *bytes, size_t *size, uint64_t *seed)
{
    const size_t place = 12 + random_next(seed) % (*size - 16);
    switch (random_below(seed, 5)) {
    case 0: bytes[place] = (uint8_t)random_next(seed); break;
    case 1: bytes[place] = (uint8_t)(bytes[place] + 1); break;
    case 2: bytes[place] ^= (uint8_t)(1 << random_below(seed, 8)); break;
    case 3: /* removes one byte */ memmove(&bytes[place], &bytes[place + 1], --*size - place); break;
    default: /* repeats some bytes */ memmove(&bytes[place + 1], &bytes[place], (*size)++ - place); break;
    }
}

TEST(changed_programs_crash_nothing)
{
    uint64_t seed = 99;
    for (int i = 0; i < SEEDS; i++) {
        Arena arena = {0};
        ByteWriter writer = {0};
        assert_true(program_encode(generate(&arena, random_shape(&seed)), &writer));
        LLVMFuzzerTestOneInput(writer.bytes, writer.size);
        uint8_t *bytes = malloc(writer.size + 8);
        for (int k = 0; k < CHANGES; k++) {
            size_t size = writer.size;
            memcpy(bytes, writer.bytes, size);
            for (uint32_t times = 1 + random_below(&seed, 4); times-- > 0;)
                change(bytes, &size, &seed);
            LLVMFuzzerTestOneInput(bytes, size);
        }
        free(bytes);
        bytes_free(&writer);
        arena_free(&arena);
    }
    /* the counts include each unchanged program twice, so these are subtracted. Some changed programs decode, because
       the fuzz target corrects their checksums */
    print_message("of %d changed programs %lu are decoded, %lu verified\n", SEEDS * CHANGES, decoded_count - 2 * SEEDS,
                  verified_count - 2 * SEEDS);
    assert_true(decoded_count > 2 * SEEDS + SEEDS * CHANGES / 10 && verified_count > 2 * SEEDS);
}

int main(void) { return test_program("malformed", NULL, NULL); }
