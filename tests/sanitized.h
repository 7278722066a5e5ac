#pragma once

#include <stdint.h>

/* SANITIZED: 1 in a build with a sanitizer, which is many times slower; otherwise 0. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* How many of `all` random cases a sweep tests: a tenth in a build with a sanitizer, which finds the same kinds of
   faults in them. What such a sweep counts is compared with as large a part. */
static inline uint32_t cases(uint32_t all) { return SANITIZED ? all / 10 : all; }
