#include "runtime/base/file.h"

#define ZLIB_CONST
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct Gzip {
    z_stream stream;
    FILE *to;
} Gzip;

/* Compresses what `stream` has as input; Z_FINISH: and ends the data. */
static bool compress_input(Gzip *gzip, int flush)
{
    unsigned char bytes[1 << 14];
    z_stream *const stream = &gzip->stream;
    do {
        stream->next_out = bytes;
        stream->avail_out = sizeof bytes;
        if (deflate(stream, flush) == Z_STREAM_ERROR)
            return false;
        const size_t size = sizeof bytes - stream->avail_out;
        if (fwrite(bytes, 1, size, gzip->to) != size)
            return false;
    } while (!stream->avail_out);
    return true;
}

static ssize_t take(void *cookie, const char *bytes, size_t size)
{
    Gzip *gzip = cookie;
    const uInt taken = size < UINT32_MAX ? (uInt)size : UINT32_MAX;
    gzip->stream.next_in = (const Bytef *)bytes;
    gzip->stream.avail_in = taken;
    return compress_input(gzip, Z_NO_FLUSH) ? (ssize_t)taken : 0;
}

static int end(void *cookie)
{
    Gzip *gzip = cookie;
    gzip->stream.avail_in = 0;
    const bool good = compress_input(gzip, Z_FINISH);
    deflateEnd(&gzip->stream);
    free(gzip);
    return good ? 0 : EOF;
}

static FILE *gzip_to(FILE *to)
{
    enum { GZIP = 16 }; /* added to the bits of the window: zlib then writes the form of gzip */
    Gzip *gzip = calloc(1, sizeof *gzip);
    if (!gzip)
        return NULL;
    gzip->to = to;
    if (deflateInit2(&gzip->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + GZIP, MAX_MEM_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        free(gzip);
        return NULL;
    }
    FILE *stream = fopencookie(gzip, "w", (cookie_io_functions_t){.write = take, .close = end});
    if (!stream) {
        deflateEnd(&gzip->stream);
        free(gzip);
    }
    return stream;
}

Status file_begin_text(const char *path, OutputFile *file, Error *error)
{
    TRY(file_begin(path, file, error));
    const size_t length = strlen(path);
    if (length < 3 || strcmp(path + length - 3, ".gz") != 0)
        return STATUS_OK;
    FILE *const compressed = gzip_to(file->stream);
    if (!compressed) {
        file_abandon(file);
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory to compress it", path);
    }
    file->compressed = file->stream;
    file->stream = compressed;
    return STATUS_OK;
}
