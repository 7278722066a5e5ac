/* The base library: arenas, bytes, error texts. The tests of files are in file.c. */

#include "base/arena.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/status.h"
#include "base/text.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(arena_gives_zeroed_aligned_memory)
{
    Arena arena = {0};
    for (size_t size = 0; size < 40000; size = size * 2 + 1) {
        unsigned char *piece = arena_allocate(&arena, size);
        assert_int_equal((uintptr_t)piece % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(piece[i], 0);
        memset(piece, 0xff, size);
    }
    char *grown = arena_grow(&arena, arena_text(&arena, "abc", 3), 4, 8);
    assert_string_equal(grown, "abc");
    assert_int_equal(grown[7], 0);
    assert_string_equal(arena_format(&arena, "%d-%s", 7, "x"), "7-x");
    arena_free(&arena);
}

TEST(arena_extends_arrays_that_keep_their_elements)
{
    enum { COMPUTE_TYPE = 1000 };
    Arena arena = {0};
    uint32_t *numbers = NULL, moves = 0;
    for (uint32_t i = 0; i < COMPUTE_TYPE; i++) {
        const uint32_t *before = numbers;
        numbers = arena_extend(&arena, numbers, i, sizeof *numbers);
        moves += numbers != before;
        numbers[i] = i;
        /* if the array grew in place beyond its end, an element would overwrite this memory */
        memset(arena_allocate(&arena, 16), 0xff, 16);
    }
    for (uint32_t i = 0; i < COMPUTE_TYPE; i++)
        assert_int_equal(numbers[i], i);
    assert_int_equal(moves, 7); /* 16, 32, ... 1024 */
    arena_free(&arena);
}

typedef struct CountedBlocks {
    int live, left; /* live: how many blocks exist; left: how many more may be allocated before allocation fails */
} CountedBlocks;

static void *counted_allocate(void *user, size_t size)
{
    CountedBlocks *counted = user;
    if (counted->left == 0)
        return NULL;
    counted->left--;
    counted->live++;
    void *block = malloc(size);
    memset(block, 0xa5, size);
    return block;
}

static void counted_release(void *user, void *block)
{
    ((CountedBlocks *)user)->live--;
    free(block);
}

TEST(arena_takes_memory_from_others)
{
    jmp_buf exhausted;
    CountedBlocks counted = {.left = 4};
    const MemoryFunctions functions = {counted_allocate, counted_release, &counted};
    Arena arena = {.exhausted = &exhausted, .functions = &functions};
    if (setjmp(exhausted) == 0) {
        const char *piece = arena_allocate(&arena, 100);
        for (int i = 0; i < 100; i++)
            assert_int_equal(piece[i], 0);
        Arena *const scratch = arena_scratch(&arena), *const inner = arena_scratch(scratch);
        arena_allocate(inner, 1);
        assert_int_equal(counted.live, 3);
        arena_free(scratch);
        assert_int_equal(counted.live, 1);
        for (;;)
            arena_allocate(arena_scratch(&arena), 1 << 20);
    }
    assert_int_equal(counted.live, 2); /* the jump has not leaked memory */
    arena_free(&arena);
    assert_int_equal(counted.live, 0);
}

TEST(arena_jumps_when_exhausted)
{
    jmp_buf exhausted;
    Arena arena = {.exhausted = &exhausted};
    if (setjmp(exhausted) == 0) {
        arena_array(&arena, SIZE_MAX / 2, 16);
        fail();
    }
    if (setjmp(exhausted) == 0) {
        arena_allocate(&arena, SIZE_MAX - 10);
        fail();
    }
    arena_free(&arena);
    Arena plain = {0};
    assert_null(arena_allocate(&plain, SIZE_MAX - 10));
}

TEST(bytes_come_back)
{
    static const uint64_t values[] = {0, 1, 127, 128, 300, 16383, 16384, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX};
    ByteWriter writer = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        bytes_put_varint(&writer, values[i]);
        bytes_put_u32(&writer, (uint32_t)values[i]);
        bytes_put_u8(&writer, (uint8_t)values[i]);
    }
    bytes_put_text(&writer, "text");
    assert_false(writer.failed);
    ByteReader reader = {writer.bytes, writer.bytes + writer.size, false};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_true(bytes_get_varint(&reader) == values[i]);
        assert_true(bytes_get_u32(&reader) == (uint32_t)values[i]);
        assert_true(bytes_get_u8(&reader) == (uint8_t)values[i]);
    }
    assert_int_equal(bytes_get_varint_up_to(&reader, 4), 4);
    assert_int_equal(bytes_get_u32(&reader), 't' | 'e' << 8 | 'x' << 16 | 't' << 24);
    assert_false(reader.failed);
    assert_int_equal(bytes_get_u8(&reader), 0);
    assert_true(reader.failed);
    bytes_free(&writer);
}

TEST(one_value_has_one_varint)
{
    static const uint8_t bad[][11] = {
        {0x80, 0x00}, {0xff, 0x80, 0x00}, {0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}};
    static const size_t sizes[] = {2, 3, 1, 10};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ByteReader reader = {bad[i], bad[i] + sizes[i], false};
        bytes_get_varint(&reader);
        assert_true(reader.failed);
    }
    const uint8_t five[] = {5};
    ByteReader reader = {five, five + 1, false};
    bytes_get_varint_up_to(&reader, 4);
    assert_true(reader.failed);
}

TEST(checksum_is_the_known_one)
{
    /* the check value of CRC-32/ISO-HDLC */
    assert_int_equal(bytes_checksum((const uint8_t *)"123456789", 9), 0xcbf43926);
    assert_int_equal(bytes_checksum_on(bytes_checksum_on(0, "1234", 4), "56789", 5), 0xcbf43926);
}

TEST(error_texts_are_cut_not_overrun)
{
    Error error;
    char long_text[3000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(error_set(&error, STATUS_BAD_INPUT, "%s", long_text), STATUS_BAD_INPUT);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    error_prefix(&error, "rank %d: ", 3);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_int_equal(strncmp(error.text, "rank 3: xxx", 11), 0);
    error_prefix(&error, "%s", long_text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    error_set(&error, STATUS_BAD_INPUT, "end");
    error_prefix(&error, "front ");
    assert_string_equal(error.text, "front end");
}

/* Checks what a function writes to a stream. */
static void assert_written(void (*put)(const char *, size_t, FILE *), const char *text, const char *expected)
{
    char *written = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&written, &size);
    put(text, strlen(text), stream);
    fclose(stream);
    assert_string_equal(written, expected);
    free(written);
}

/* Bytes that are not UTF-8: a lone continuation byte, a truncated character, an overlong one, a surrogate, one above
   the largest code point, Latin-1. */
static const char *const no_characters[] = {"\x80",         "\xe2\x82",         "\xc0\xaf",
                                            "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xfcr"};
static const char *const marks[] = {"?", "??", "??", "???", "????", "?r"};

TEST(terminals_are_shown_characters_only)
{
    char text[] = "a\033[31m\tb\177\nc\xc2\x9b"
                  "1m \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80";
    assert_written(text_print, text, "a?[31m b?\nc??1m \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    text_make_printable(text);
    assert_string_equal(text, "a?[31m b??c??1m \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    Error error;
    error_set(&error, STATUS_OK, "%s: deadlock\n  rank 0", "a\nb\033");
    error_prefix(&error, "%s: ",
                 "\xc2\x9b"
                 "c");
    assert_string_equal(error.text, "??c: a?b?: deadlock\n  rank 0");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        assert_written(text_print, no_characters[i], marks[i]);
}

TEST(json_is_utf_8)
{
    assert_written(json_put_text, "a\"b\\c\n<\033\177\xc2\x9b \xc3\xbc",
                   "\"a\\\"b\\\\c\\u000a\\u003c\\u001b\\u007f\\u009b \xc3\xbc\"");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char expected[64] = "\"";
        for (const char *mark = marks[i]; *mark; mark++)
            strcat(expected, *mark == '?' ? "\\ufffd" : "r");
        assert_written(json_put_text, no_characters[i], strcat(expected, "\""));
    }
}

TEST(one_is_singular)
{
    assert_string_equal(counted(1, "rank").text, "1 rank");
    assert_string_equal(counted(2, "rank").text, "2 ranks");
    assert_string_equal(counted(0, "forward pass").text, "0 forward passes");
    assert_string_equal(counted(1, "pass").text, "1 pass");
    assert_string_equal(counted(3, "microbatch").text, "3 microbatches");
    assert_string_equal(counted(1, "copy").text, "1 copy");
    assert_string_equal(counted(UINT64_MAX, "copy").text, "18446744073709551615 copies");
}

int main(void) { return test_program("base", NULL, NULL); }
