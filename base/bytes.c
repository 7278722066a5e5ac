#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static uint8_t *room(ByteWriter *writer, size_t count)
{
    if (writer->capacity - writer->size < count && !writer->failed) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 4096;
        while (capacity - writer->size < count)
            capacity *= 2;
        uint8_t *bytes = realloc(writer->bytes, capacity);
        if (bytes) {
            writer->bytes = bytes;
            writer->capacity = capacity;
        } else {
            writer->failed = true;
        }
    }
    if (writer->failed)
        return NULL;
    uint8_t *place = writer->bytes + writer->size;
    writer->size += count;
    return place;
}

static void put_little_endian(ByteWriter *writer, uint64_t value, size_t count)
{
    uint8_t *place = room(writer, count);
    for (size_t i = 0; place && i < count; i++)
        place[i] = (uint8_t)(value >> 8 * i);
}

void bytes_put_u8(ByteWriter *writer, uint8_t value) { put_little_endian(writer, value, 1); }
void bytes_put_u32(ByteWriter *writer, uint32_t value) { put_little_endian(writer, value, 4); }

void bytes_put_varint(ByteWriter *writer, uint64_t value)
{
    uint8_t encoded[10];
    size_t count = 0;
    do {
        encoded[count++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    uint8_t *place = room(writer, count);
    if (place)
        memcpy(place, encoded, count);
}

void bytes_put_text(ByteWriter *writer, const char *text)
{
    const size_t length = strlen(text);
    bytes_put_varint(writer, length);
    uint8_t *place = room(writer, length);
    if (place)
        memcpy(place, text, length);
}

void bytes_free(ByteWriter *writer)
{
    free(writer->bytes);
    *writer = (ByteWriter){0};
}

static uint64_t get_little_endian(ByteReader *reader, size_t count)
{
    if (reader->failed || (size_t)(reader->end - reader->next) < count) {
        reader->failed = true;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)reader->next[i] << 8 * i;
    reader->next += count;
    return value;
}

uint8_t bytes_get_u8(ByteReader *reader) { return (uint8_t)get_little_endian(reader, 1); }
uint32_t bytes_get_u32(ByteReader *reader) { return (uint32_t)get_little_endian(reader, 4); }

uint64_t bytes_get_varint(ByteReader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && !reader->failed; shift += 7) {
        if (reader->next == reader->end)
            break;
        const uint8_t byte = *reader->next++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            /* A last byte of 0 is superfluous. It is refused, because each value has only one valid encoding. */
            if (byte == 0 && shift > 0)
                break;
            return value;
        }
    }
    reader->failed = true;
    return 0;
}

uint64_t bytes_get_varint_up_to(ByteReader *reader, uint64_t limit)
{
    const uint64_t value = bytes_get_varint(reader);
    if (value > limit) {
        reader->failed = true;
        return 0;
    }
    return value;
}

uint32_t bytes_checksum(const uint8_t *bytes, size_t size) { return bytes_checksum_on(0, bytes, size); }

uint32_t bytes_checksum_on(uint32_t before, const void *bytes, size_t size)
{
    return size ? (uint32_t)crc32_z(before, bytes, size) : before; /* if `bytes` is NULL, crc32_z forgets `before` */
}
