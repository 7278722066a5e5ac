#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Explicit little-endian bytes, written to a buffer that grows and read from one with bounds. */

typedef struct ByteWriter {
    uint8_t *bytes; /* malloc'ed; the owner frees it with bytes_free */
    size_t size, capacity;
    bool failed; /* no memory: everything after is ignored, the owner asks once at the end */
} ByteWriter;

void bytes_put_u8(ByteWriter *writer, uint8_t value);
void bytes_put_u32(ByteWriter *writer, uint32_t value);
/* LEB128: seven bits a byte, the lowest first. */
void bytes_put_varint(ByteWriter *writer, uint64_t value);
void bytes_put_text(ByteWriter *writer, const char *text); /* varint length, then the bytes */
void bytes_free(ByteWriter *writer);

typedef struct ByteReader {
    const uint8_t *next, *end;
    /* read past the end, or a varint of over 64 bits or with needless zero bytes: every read after gives 0 */
    bool failed;
} ByteReader;

uint8_t bytes_get_u8(ByteReader *reader);
uint32_t bytes_get_u32(ByteReader *reader);
uint64_t bytes_get_varint(ByteReader *reader);
/* A varint that must be at most `limit`; more sets `failed`. */
uint64_t bytes_get_varint_up_to(ByteReader *reader, uint64_t limit);

/* CRC-32 (ISO 3309, as zlib's): every change of up to 32 neighbouring bits is seen. */
uint32_t bytes_checksum(const uint8_t *bytes, size_t size);
/* Of bytes that follow others, whose checksum is `before`; 0: there are none. */
uint32_t bytes_checksum_on(uint32_t before, const void *bytes, size_t size);

#endif
