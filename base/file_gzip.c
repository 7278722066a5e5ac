#include "base/file.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

static ssize_t take(void *gzip, const char *bytes, size_t size)
{
    const int taken = gzwrite(gzip, bytes, (unsigned)size);
    return taken > 0 ? taken : 0;
}

static int end(void *gzip) { return gzclose(gzip) == Z_OK ? 0 : EOF; }

/* A stream that compresses into the file of `to`. NULL: no memory. */
static FILE *gzip_into(FILE *to)
{
    const int descriptor = dup(fileno(to));
    const gzFile gzip = descriptor < 0 ? NULL : gzdopen(descriptor, "wb");
    FILE *const stream = gzip ? fopencookie(gzip, "w", (cookie_io_functions_t){.write = take, .close = end}) : NULL;
    if (gzip && !stream)
        gzclose(gzip);
    else if (descriptor >= 0 && !gzip)
        close(descriptor);
    return stream;
}

Status file_begin_text(const char *path, OutputFile *file, Error *error)
{
    TRY(file_begin(path, file, error));
    const size_t length = strlen(path);
    if (length < 3 || strcmp(path + length - 3, ".gz") != 0)
        return STATUS_OK;
    FILE *const compressed = gzip_into(file->stream);
    if (!compressed) {
        file_abandon(file);
        return error_set(error, STATUS_RUN_FAILED, "%s: no memory to compress it", path);
    }
    file->compressed = file->stream;
    file->stream = compressed;
    return STATUS_OK;
}
