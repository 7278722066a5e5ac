#include "web/zlib.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The CRC of zlib, gzip and PNG (RFC 1952, section 8), a bit at a time. */
unsigned long crc32_z(unsigned long before, const unsigned char *bytes, size_t size)
{
    uint32_t crc = ~(uint32_t)before;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return (uint32_t)~crc;
}

/* A gzFile is the stream itself. A compressed file is refused when it is opened. */
gzFile gzopen(const char *path, const char *mode)
{
    FILE *const stream = fopen(path, mode);
    const int first = stream ? getc(stream) : EOF;
    if (stream)
        ungetc(first, stream);
    if (first != 0x1f)
        return (gzFile)(void *)stream;
    fclose(stream);
    errno = ENOTSUP;
    return NULL;
}

/* Nothing is compressed. */
gzFile gzdopen(int descriptor, const char *mode)
{
    FILE *const stream = *mode == 'r' ? fdopen(descriptor, mode) : NULL;
    return (gzFile)(void *)stream;
}

int gzbuffer(gzFile file, unsigned size) { return file && size ? 0 : -1; }

int gzread(gzFile file, void *bytes, unsigned size) { return (int)fread(bytes, 1, size, (FILE *)(void *)file); }

int gzwrite(gzFile file, const void *bytes, unsigned size) { return (int)fwrite(bytes, 1, size, (FILE *)(void *)file); }

const char *gzerror(gzFile file, int *code)
{
    *code = ferror((FILE *)(void *)file) ? Z_ERRNO : Z_OK;
    return "";
}

int gzclose(gzFile file) { return fclose((FILE *)(void *)file) == 0 ? Z_OK : Z_ERRNO; }

static int (*comparing)(const void *, const void *, void *);
static void *with;

static int compare_items(const void *left, const void *right) { return comparing(left, right, with); }

/* dpc has one thread here. */
void qsort_r(void *items, size_t count, size_t size, int (*compare)(const void *, const void *, void *), void *context)
{
    comparing = compare, with = context;
    qsort(items, count, size, compare_items);
}

/* The number of processors is not known, so dpc starts no threads. */
int sched_getaffinity(pid_t process, size_t size, cpu_set_t *cores)
{
    (void)process, (void)size, (void)cores;
    return -1;
}

int __sched_cpucount(size_t size, const cpu_set_t *cores)
{
    (void)size, (void)cores;
    return 1;
}
