#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers and texts as bytes, little-endian on every machine: a writer with a buffer that grows, and a reader with
   bounds checks. */

typedef struct ByteWriter {
    uint8_t *bytes; /* malloc'ed; the owner frees it with bytes_free */
    size_t size, capacity;
    bool failed; /* out of memory. Later writes do nothing, so it is enough to look at this once, at the end */
} ByteWriter;

void bytes_put_u8(ByteWriter *writer, uint8_t value);
void bytes_put_u32(ByteWriter *writer, uint32_t value);
/* LEB128: seven bits per byte, the lowest first. */
void bytes_put_varint(ByteWriter *writer, uint64_t value);
void bytes_put_text(ByteWriter *writer, const char *text); /* varint length, then the bytes */
void bytes_free(ByteWriter *writer);

typedef struct ByteReader {
    const uint8_t *next, *end;
    /* set by a read past the end, by a varint that has more than 64 bits or is longer than needed, and by a value above
       the limit of bytes_get_varint_up_to. The read that fails and all later ones return 0 */
    bool failed;
} ByteReader;

uint8_t bytes_get_u8(ByteReader *reader);
uint32_t bytes_get_u32(ByteReader *reader);
uint64_t bytes_get_varint(ByteReader *reader);
/* Reads a varint; a value above `limit` sets `failed`. */
uint64_t bytes_get_varint_up_to(ByteReader *reader, uint64_t limit);

/* CRC-32 (ISO 3309, as zlib's): it detects every change within 32 neighbouring bits. */
uint32_t bytes_checksum(const uint8_t *bytes, size_t size);
/* The checksum of `bytes` appended to earlier bytes. `before`: the checksum of the earlier bytes; 0 if there are
   none. */
uint32_t bytes_checksum_on(uint32_t before, const void *bytes, size_t size);
