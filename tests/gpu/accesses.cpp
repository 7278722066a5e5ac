/* The functions that code compiled with -fsanitize=thread calls for each memory access. They replace TSan's runtime in
   builds without a sanitizer. */

#include "tests/gpu/simt.h"

#include <string.h>

#define ACCESS(bytes)                                                                          \
    extern "C" void __tsan_read##bytes(void *address) { simt_read(address, bytes); }           \
    extern "C" void __tsan_write##bytes(void *address) { simt_write(address, bytes); }         \
    extern "C" void __tsan_unaligned_read##bytes(void *address) { simt_read(address, bytes); } \
    extern "C" void __tsan_unaligned_write##bytes(void *address) { simt_write(address, bytes); }

extern "C" {
void __tsan_init();
void __tsan_func_entry(void *);
void __tsan_func_exit();
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);
void *__tsan_memset(void *to, int byte, unsigned long bytes);
void *__tsan_memcpy(void *to, const void *from, unsigned long bytes);
void *__tsan_memmove(void *to, const void *from, unsigned long bytes);
}
#define DECLARE(bytes)                                    \
    extern "C" void __tsan_read##bytes(void *);           \
    extern "C" void __tsan_write##bytes(void *);          \
    extern "C" void __tsan_unaligned_read##bytes(void *); \
    extern "C" void __tsan_unaligned_write##bytes(void *);
DECLARE(1) /* clang-format off */
DECLARE(2) DECLARE(4) DECLARE(8) DECLARE(16)
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
    /* clang-format on */

    void __tsan_init()
{
}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_read_range(void *address, unsigned long bytes) { simt_read(address, bytes); }
void __tsan_write_range(void *address, unsigned long bytes) { simt_write(address, bytes); }

/* code compiled by clang 15 or newer calls this one */
void *__tsan_memset(void *to, int byte, unsigned long bytes)
{
    simt_write(to, bytes);
    return memset(to, byte, bytes);
}

void *__tsan_memcpy(void *to, const void *from, unsigned long bytes)
{
    simt_read(from, bytes);
    simt_write(to, bytes);
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, unsigned long bytes)
{
    simt_read(from, bytes);
    simt_write(to, bytes);
    return memmove(to, from, bytes);
}
