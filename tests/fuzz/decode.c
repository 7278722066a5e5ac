/* Fuzz target of the decoder. Any bytes are decoded as they are and, unless they are too few, between a correct version
   and a correct checksum, so that random changes get past these. A program that decodes is encoded again, disassembled
   and verified. Of a verified program the forward-only program is made and, if it is small, the program for one rank;
   both must verify, too. `make fuzz` runs this; tests/program/malformed.c runs the same without libFuzzer. */

#include "program/operands.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Number of programs accepted so far by the decoder, and by the verifier. */
static unsigned long decoded_count, verified_count;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

static void try_verified(const Program *program, Arena *arena)
{
    Error error = {""};
    Program *forward = NULL, *reference = NULL;
    if (program_forward_only(program, arena, &forward, &error) != STATUS_OK ||
        program_verify(forward, &error) != STATUS_OK)
        fail(error.text);
    if (program->stages <= PROGRAM_CHUNKS_MAX && (uint64_t)program->stages * program->microbatches < 100000)
        if (program_reference(program, 1, 1, arena, &reference, &error) != STATUS_OK ||
            program_verify(reference, &error) != STATUS_OK)
            fail(error.text);
}

static void try_program(const uint8_t *bytes, size_t size)
{
    Arena arena = {0};
    Error error = {""};
    Program *program = NULL;
    if (program_decode(bytes, size, &arena, &program, &error) == STATUS_OK) {
        ByteWriter writer = {0};
        decoded_count++;
        if (!program_encode(program, &writer) || writer.size != size || memcmp(writer.bytes, bytes, size) != 0)
            fail("what was decoded encodes to other bytes");
        bytes_free(&writer);
        char *text = NULL;
        size_t text_size;
        FILE *stream = open_memstream(&text, &text_size);
        program_disassemble(program, stream);
        fclose(stream);
        free(text);
        if (program_verify(program, &error) == STATUS_OK) {
            verified_count++;
            try_verified(program, &arena);
        } else if (!error.text[0]) {
            fail("refused without a reason");
        }
    } else if (!error.text[0]) {
        fail("refused without a reason");
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { FRAME = PROGRAM_MAGIC_SIZE + 4, CHECKSUM = 4 };
    try_program(data, size);
    if (size < FRAME + CHECKSUM)
        return 0;
    ByteWriter sealed = {0};
    for (size_t i = 0; i < PROGRAM_MAGIC_SIZE; i++)
        bytes_put_u8(&sealed, (uint8_t)PROGRAM_MAGIC[i]);
    bytes_put_u32(&sealed, PROGRAM_VERSION);
    for (size_t i = FRAME; i < size - CHECKSUM; i++)
        bytes_put_u8(&sealed, data[i]);
    bytes_put_u32(&sealed, bytes_checksum(sealed.bytes, sealed.size));
    try_program(sealed.bytes, sealed.size);
    bytes_free(&sealed);
    return 0;
}
