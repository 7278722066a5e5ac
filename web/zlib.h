/* What dpc uses of zlib, where there is none: checksums, and files that are not compressed. Included before every file
   of dpc for WebAssembly, since the C library there has no qsort_r either. */
#pragma once

#include <stddef.h>

enum { Z_OK = 0, Z_ERRNO = -1, Z_DATA_ERROR = -3, Z_BUF_ERROR = -5 };
typedef struct gzFile_s *gzFile;

unsigned long crc32_z(unsigned long before, const unsigned char *bytes, size_t size);
gzFile gzopen(const char *path, const char *mode);
gzFile gzdopen(int descriptor, const char *mode);
int gzbuffer(gzFile file, unsigned size);
int gzread(gzFile file, void *bytes, unsigned size);
int gzwrite(gzFile file, const void *bytes, unsigned size);
const char *gzerror(gzFile file, int *code);
int gzclose(gzFile file);

void qsort_r(void *items, size_t count, size_t size, int (*compare)(const void *, const void *, void *), void *context);
