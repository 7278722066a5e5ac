#include "program/operands.h"
#include "tests/program/generator.h"
#include "tests/test.h"

enum { FRAME = 12 }; /* bytes of magic and version */

static void assert_same_program(const Program *a, const Program *b)
{
    assert_string_equal(a->schedule, b->schedule);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->forward_only, b->forward_only);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->microbatches, b->microbatches);
    assert_int_equal(a->pipe_count, b->pipe_count);
    assert_int_equal(a->asynchronous, b->asynchronous);
    for (uint32_t p = 0; p < a->pipe_count; p++) {
        const Pipe *x = &a->pipes[p], *y = &b->pipes[p];
        assert_int_equal(x->microbatches, y->microbatches);
        assert_int_equal(x->first, y->first);
        assert_int_equal(x->versions == NULL, y->versions == NULL);
        if (x->versions)
            assert_memory_equal(x->versions, y->versions, x->microbatches * sizeof *x->versions);
    }
    assert_int_equal(a->recipes.common == NULL, b->recipes.common == NULL);
    if (a->recipes.common)
        assert_memory_equal(a->recipes.common, b->recipes.common, sizeof *a->recipes.common);
    assert_int_equal(a->recipes.count, b->recipes.count);
    for (uint32_t i = 0; i < a->recipes.count; i++)
        assert_memory_equal(&a->recipes.own[i], &b->recipes.own[i], sizeof *a->recipes.own);
    assert_int_equal(a->group_count, b->group_count);
    for (uint32_t g = 0; g < a->group_count; g++) {
        assert_int_equal(a->groups[g].stage, b->groups[g].stage);
        assert_int_equal(a->groups[g].member_count, b->groups[g].member_count);
        for (uint32_t m = 0; m < a->groups[g].member_count; m++) {
            assert_int_equal(a->groups[g].members[m].rank, b->groups[g].members[m].rank);
            assert_int_equal(a->groups[g].members[m].chunk, b->groups[g].members[m].chunk);
        }
    }
    assert_int_equal(a->rank_count, b->rank_count);
    for (uint32_t r = 0; r < a->rank_count; r++) {
        const RankProgram *x = &a->ranks[r], *y = &b->ranks[r];
        assert_int_equal(x->chunk_count, y->chunk_count);
        assert_int_equal(x->instruction_count, y->instruction_count);
        assert_int_equal(x->peak_activations, y->peak_activations);
        assert_memory_equal(x->slots, y->slots, sizeof x->slots);
        for (uint32_t c = 0; c < x->chunk_count; c++)
            assert_memory_equal(&x->chunks[c], &y->chunks[c], sizeof x->chunks[c]);
        for (uint32_t i = 0; i < x->instruction_count; i++)
            assert_true(same_instruction(&x->instructions[i], &y->instructions[i]));
    }
}

static ByteWriter encoded(const Program *program)
{
    ByteWriter writer = {0};
    assert_true(program_encode(program, &writer));
    return writer;
}

/* Corrects the checksum after a change, so that the decoder reads the content. */
static void seal(uint8_t *bytes, size_t size)
{
    const uint32_t checksum = bytes_checksum(bytes, size - 4);
    for (int i = 0; i < 4; i++)
        bytes[size - 4 + (size_t)i] = (uint8_t)(checksum >> 8 * i);
}

static void assert_refused(const uint8_t *bytes, size_t size, const char *why)
{
    Arena arena = {0};
    Error error = {""};
    Program *program = NULL;
    /* a copy of exactly this size, so that a sanitizer finds reads past the end */
    uint8_t *exact = malloc(size ? size : 1);
    if (size)
        memcpy(exact, bytes, size);
    assert_int_equal(program_decode(exact, size, &arena, &program, &error), STATUS_BAD_INPUT);
    assert_null(program);
    if (!strstr(error.text, why))
        fail_msg("'%s' does not say '%s'", error.text, why);
    free(exact);
    arena_free(&arena);
}

static Program *small_program(Arena *arena)
{
    return generate(arena, (Shape){.ranks = 2,
                                   .stages = 2,
                                   .pipes = 2,
                                   .microbatches = 2,
                                   .preference = PREFER_BACKWARD,
                                   .split = 50,
                                   .overlap = 50,
                                   .seed = 7});
}

/* A program whose I and W name weight gradients that are put off: in turn those of all components and those of the
   recipe. It need not pass the verifier. */
static Program *program_with_after(Arena *arena)
{
    Program *program = copy_program(arena, small_program(arena));
    Recipe *recipe = arena_allocate(arena, sizeof *recipe);
    *recipe = (Recipe){.entries = {[RECIPE_AFTER] = {{RECIPE_MLP, RECIPE_W}, {RECIPE_ATTENTION, RECIPE_W}}},
                       .counts = {[RECIPE_AFTER] = 2}};
    program->recipes = (Recipes){.common = recipe};
    uint32_t count = 0;
    for (uint32_t r = 0; r < program->rank_count; r++)
        for (uint32_t i = 0; i < program->ranks[r].instruction_count; i++) {
            Instruction *instruction = &program->ranks[r].instructions[i];
            if (instruction->opcode != OP_BACKWARD_INPUT && instruction->opcode != OP_BACKWARD_WEIGHT)
                continue;
            instruction->put_off = count % 2 ? recipe_put_off(recipe) : (1u << RECIPE_COMPONENTS) - 1;
            count++;
        }
    assert_true(count > 2);
    return program;
}

TEST(decode_gives_back_what_was_put_off)
{
    Arena arena = {0};
    Error error = {""};
    const Program *program = program_with_after(&arena);
    Program *decoded = NULL;
    ByteWriter writer = encoded(program);
    if (program_decode(writer.bytes, writer.size, &arena, &decoded, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_same_program(program, decoded);
    bytes_free(&writer);
    arena_free(&arena);
}

TEST(decode_gives_back_what_was_encoded)
{
    uint64_t seed = 1;
    for (int i = 0; i < 300; i++) {
        Arena arena = {0};
        const Program *program = generate(&arena, random_shape(&seed));
        ByteWriter first = encoded(program), second = {0};
        Program *decoded = NULL;
        Error error = {""};
        if (program_decode(first.bytes, first.size, &arena, &decoded, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        assert_same_program(program, decoded);
        assert_true(program_encode(decoded, &second));
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.bytes, second.bytes, first.size);
        bytes_free(&first);
        bytes_free(&second);
        arena_free(&arena);
    }
}

/* Encodes and decodes extreme values of fields, which small schedules do not have. */
TEST(decode_gives_back_extremes)
{
    Arena arena = {0};
    Program *program = copy_program(&arena, small_program(&arena));
    Instruction *instructions = program->ranks[0].instructions;
    program->schedule = arena_format(&arena, "%s", "");
    program->source = arena_format(&arena, "%s", "größe\n.dps");
    for (uint32_t i = 0; i + 1 < program->ranks[0].instruction_count; i++) {
        instructions[i] =
            (Instruction){.opcode = OP_SEND_FORWARD,
                          .chunk = PROGRAM_CHUNKS_MAX - 1,
                          .peer = PROGRAM_RANKS_MAX - 1,
                          .microbatch = PROGRAM_MICROBATCHES_MAX - 1,
                          .slot = {SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE, SLOT_NONE},
                          .line = i % 2 ? UINT32_MAX : 0};
        instructions[i].x = i % 3 ? PROGRAM_SLOTS_MAX - 1 : SLOT_NONE;
    }
    for (int class = 0; class < SLOT_CLASSES; class ++)
        program->ranks[1].slots[class] = PROGRAM_SLOTS_MAX;
    program->ranks[1].peak_activations = UINT32_MAX;
    ByteWriter writer = encoded(program);
    Program *decoded = NULL;
    Error error = {""};
    if (program_decode(writer.bytes, writer.size, &arena, &decoded, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_same_program(program, decoded);
    bytes_free(&writer);
    arena_free(&arena);
}

TEST(an_instruction_takes_ten_bytes)
{
    const Shape shapes[] = {
        {.ranks = 8, .stages = 8, .pipes = 1, .microbatches = 300, .preference = PREFER_BACKWARD, .seed = 3},
        {.ranks = 8,
         .stages = 8,
         .pipes = 2,
         .microbatches = 100,
         .preference = PREFER_BACKWARD,
         .split = 50,
         .overlap = 50,
         .seed = 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Arena arena = {0};
        const Program *program = generate(&arena, shapes[i]);
        size_t instructions = 0;
        for (uint32_t r = 0; r < program->rank_count; r++)
            instructions += program->ranks[r].instruction_count;
        ByteWriter writer = encoded(program);
        assert_true(writer.size <= 10 * instructions);
        bytes_free(&writer);
        arena_free(&arena);
    }
}

TEST(every_truncation_is_refused)
{
    Arena arena = {0};
    ByteWriter writer = encoded(small_program(&arena));
    for (size_t size = 0; size < writer.size; size++)
        assert_refused(writer.bytes, size, size < 8 ? "not a dpc program" : size < 16 ? "cut off" : "checksum");
    bytes_free(&writer);
    arena_free(&arena);
}

TEST(every_flipped_bit_is_refused)
{
    Arena arena = {0};
    ByteWriter writer = encoded(small_program(&arena));
    for (size_t bit = 0; bit < 8 * writer.size; bit++) {
        writer.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_refused(writer.bytes, writer.size,
                       bit < 64   ? "not a dpc program"
                       : bit < 96 ? "made by another version of dpc: format"
                                  : "checksum");
        writer.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    bytes_free(&writer);
    arena_free(&arena);
}

/* A program that is truncated at any position after its version and has a correct checksum is refused. */
TEST(truncations_beneath_the_checksum_are_refused)
{
    Arena arena = {0};
    const Program *const programs[] = {small_program(&arena), program_with_after(&arena)};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        ByteWriter writer = encoded(programs[i]);
        uint8_t *bytes = malloc(writer.size);
        for (size_t size = FRAME + 4; size < writer.size; size++) {
            memcpy(bytes, writer.bytes, size);
            seal(bytes, size);
            assert_refused(bytes, size, "damaged");
        }
        free(bytes);
        bytes_free(&writer);
    }
    arena_free(&arena);
}

/* Format 6 had no third list in a recipe, and no PUT_OFF. */
TEST(the_format_before_is_refused)
{
    Arena arena = {0};
    ByteWriter writer = encoded(program_with_after(&arena));
    writer.bytes[FRAME - 4] = 6;
    seal(writer.bytes, writer.size);
    assert_refused(writer.bytes, writer.size, "made by another version of dpc: format 6");
    bytes_free(&writer);
    arena_free(&arena);
}

typedef struct Forgery {
    const char *why;
    size_t size;
    uint8_t body[64];
} Forgery;

/* The body of a program with a recipe of `entries` equal entries in its first list. REST: where the part after the
   recipe begins. */
#define REST(entries) (15 + (entries) + 2)
#define RECIPE_OF(entries)                                                                                         \
    {                                                                                                              \
        [3] = 1, [4] = 1, [5] = 1, [6] = 1, [9] = 1, [14] = (entries), [REST(entries) + 1] = 1,                    \
        [REST(entries) + 2] = 1, [REST(entries) + 11] = 1, [REST(entries) + 12] = OP_END, [REST(entries) + 13] = 2 \
    }

TEST(forgeries_are_refused)
{
    /* The bytes of a program: name "", source "", full, 1 stage, 1 microbatch, 1 pipe of 1 from 0 without versions, no
       recipe, no group, 1 rank of 1 chunk (pipe 0 stage 0) with no slots, peak 0, 1 instruction, which is END on line
       1. Those without a reason decode, though they are not complete steps. The others are refused for the given
       reason; after it, some have further mistakes, for example are cut off. */
    enum {
        ATTENTION_W = RECIPE_ATTENTION * RECIPE_PASSES + RECIPE_W,
        MLP_W = RECIPE_MLP * RECIPE_PASSES + RECIPE_W,
        NO_ENTRY = RECIPE_NAMES * RECIPE_PASSES,
        ALL = (1 << RECIPE_COMPONENTS) - 1,
        I = OP_BACKWARD_INPUT,
        W = OP_BACKWARD_WEIGHT
    };
    static const Forgery forgeries[] = {
        {NULL, 24, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"something follows its end", 25, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0,      0, 1, 1,
                                           0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2, 0}},
        {"a name", 6, {5, 'a', 'b', 'c', 'd', 0}},
        {"a name", 24, {1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"a name", 11, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}},
        {"damaged", 24, {0, 0, 3, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"damaged", 25, {0, 0, 0, 0x81, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"damaged", 25, {0, 0, 0, 0x80, 0x80, 4, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"pipes", 23, {0, 0, 0, 1, 1, 65, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"the versions of a pipe", 23, {0, 0, 2, 1, 100, 1, 100, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"groups", 27, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 60, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2, 0}},
        {"ranks", 25, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0xff, 0x1f, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"a rank's chunks", 24, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 100, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"a rank's chunks", 28, {0, 0, 0, 1, 1, 1, 1, 0,    0,    0,    0,    1,  1,      0,
                                 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 15, OP_END, 2}},
        {"an instruction", 24, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OPCODE_COUNT, 2}},
        {"an instruction", 24, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 1}},
        {"an instruction", 27, {0, 0, 0, 1, 1, 1, 1, 0, 0,       0,    0,    1, 1, 0,
                                0, 0, 0, 0, 0, 0, 0, 1, OP_WAIT, 0xff, 0xff, 3, 2}},
        /* one after the other: as many entries in a recipe as there can be; one more; more recipes than bytes; no such
           entry; a chunk of one half only; a recipe after the one for all other pairs of chunks; a chunk above the
           limit */
        {NULL, REST(RECIPE_ENTRIES) + 14, RECIPE_OF(RECIPE_ENTRIES)},
        {"its recipes", REST(RECIPE_ENTRIES + 1) + 14, RECIPE_OF(RECIPE_ENTRIES + 1)},
        {"its recipes", 17, {0, 0, 0, 1, 1, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}},
        {"its recipes", 29, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 24, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
        {"its recipes", 28, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
        {"its recipes", 32, {0, 0, 0, 1, 1, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0,
                             1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}},
        {"its recipes", 31, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0x80, 2, 1, 0,      0, 0,
                             0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0,    0, 1, OP_END, 2}},
        /* a recipe's list `after`: attention(W) and mlp(W); too many entries; no such entry; cut off after its first
           entry; not there, as in format 6; with W, though the program is forward only */
        {NULL, 33, {0,           0,     0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0,      0, 2,
                    ATTENTION_W, MLP_W, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"its recipes", 33, {0,           0,     0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0,      0, RECIPE_ENTRIES + 1,
                             ATTENTION_W, MLP_W, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"its recipes", 32, {0, 0,        0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0,      0,
                             1, NO_ENTRY, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        {"its recipes", 18, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, ATTENTION_W}},
        {"its recipes", 16, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
        {"its recipes", 32, {0, 0,           1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0,      0,
                             1, ATTENTION_W, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, OP_END, 2}},
        /* five programs with an I, then five with a W. The operand PUT_OFF names all components; names one that does
           not exist; has more than 16 bits; is cut off; is the last byte, so that the line is missing */
        {NULL, 34, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0,   0,
                    0, 0, 0, 0, 1, I, 0, 0, 0, 0, 0, 0, 0, 0, 0, ALL, 2}},
        {"an instruction", 34, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0,       0,
                                0, 0, 0, 0, 1, I, 0, 0, 0, 0, 0, 0, 0, 0, 0, ALL + 1, 2}},
        {"an instruction", 36, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0,    0,    0, 0,
                                0, 0, 0, 1, I, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 3, 2}},
        {"an instruction", 32, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0,
                                0, 0, 0, 0, 0, 1, I, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"an instruction", 33, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0,  0,
                                0, 0, 0, 0, 1, I, 0, 0, 0, 0, 0, 0, 0, 0, 0, ALL}},
        {NULL, 31, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, W, 0, 0, 0, 0, 0, 0, ALL, 2}},
        {"an instruction", 31, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0,       0, 0,
                                0, 0, 0, 0, 0, 1, W, 0, 0, 0, 0, 0, 0, ALL + 1, 2}},
        {"an instruction", 33, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1,    0,    0, 0, 0,
                                0, 0, 0, 0, 1, W, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 3, 2}},
        {"an instruction", 29, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, W, 0, 0, 0, 0, 0, 0}},
        {"an instruction", 30, {0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0,
                                0, 0, 0, 0, 0, 0, 1, W, 0, 0, 0, 0, 0, 0, ALL}},
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        ByteWriter writer = {0};
        for (const char *c = "DPSPROG\n"; *c; c++)
            bytes_put_u8(&writer, (uint8_t)*c);
        bytes_put_u32(&writer, PROGRAM_VERSION);
        for (size_t b = 0; b < forgeries[i].size; b++)
            bytes_put_u8(&writer, forgeries[i].body[b]);
        bytes_put_u32(&writer, 0);
        seal(writer.bytes, writer.size);
        Arena arena = {0};
        Error error = {""};
        Program *program;
        if (forgeries[i].why)
            assert_refused(writer.bytes, writer.size, forgeries[i].why);
        else if (program_decode(writer.bytes, writer.size, &arena, &program, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        arena_free(&arena);
        bytes_free(&writer);
    }
}

int main(void) { return test_program("codec", NULL, NULL); }
