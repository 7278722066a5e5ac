/* Sessions, and what every call does at its beginning and end. */

#include "library/internal.h"

#include "base/version.h"

#include <stdlib.h>
#include <string.h>

static void *system_allocate(void *user, size_t size)
{
    (void)user;
    return malloc(size);
}

static void system_release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* What an arena needs in Arena.functions: `memory`, or NULL (malloc and free) if the host gave no functions. */
static const MemoryFunctions *host_functions(const MemoryFunctions *memory)
{
    /* the host gave no functions: the arena then uses malloc and free */
    return memory->allocate == system_allocate ? NULL : memory;
}

void *host_new(dps *d, size_t size)
{
    void *block = d->memory.allocate(d->memory.user, size);
    if (!block)
        longjmp(d->exhausted, 1);
    return memset(block, 0, size);
}

void host_release(const MemoryFunctions *memory, void *block)
{
    if (block)
        memory->release(memory->user, block);
}

Arena host_arena(dps *d, const MemoryFunctions *memory)
{
    return (Arena){.exhausted = &d->exhausted, .functions = host_functions(memory)};
}

const char *dps_version(void) { return PROJECT_VERSION; }

dps *dps_new(const dps_host *given)
{
    dps_host host = {0};
    if (given && (!STRUCT_IN(&host, given) || !host.allocate != !host.release))
        return NULL;
    const MemoryFunctions memory = host.allocate ? (MemoryFunctions){host.allocate, host.release, host.user}
                                                 : (MemoryFunctions){system_allocate, system_release, NULL};
    dps *const d = memory.allocate(memory.user, sizeof *d);
    if (!d)
        return NULL;
    *d = (dps){.host = host,
               .memory = memory,
               .words = "",
               .front_end = host.for_python ? FRONT_PYTHON : FRONT_C,
               .c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (d->c_locale)
        return d;
    memory.release(memory.user, d);
    return NULL;
}

static void forget_words(dps *d)
{
    arena_free(&d->report);
    d->report = host_arena(d, &d->memory);
    d->error = (Error){""};
    d->words = "";
    d->diagnostics = NULL;
    d->diagnostic_count = 0;
}

/* Frees the objects that the call has begun to make and has not returned. */
static void drop_unfinished(dps *d)
{
    if (d->stream)
        fclose(d->stream);
    free(d->streamed);
    bytes_free(&d->encoded);
    d->stream = NULL;
    d->streamed = NULL;
    dps_prediction_free(d->prediction);
    dps_rank_free(d->rank);
    dps_threads_free(d->threads);
    dps_program_free(d->program);
    d->prediction = NULL;
    d->rank = NULL;
    d->threads = NULL;
    d->program = NULL;
    arena_free(&d->working);
}

void dps_free(dps *d)
{
    if (!d)
        return;
    const MemoryFunctions memory = d->memory;
    forget_words(d);
    freelocale(d->c_locale);
    host_release(&memory, d);
}

void dps_release(dps *d, void *memory)
{
    if (d)
        host_release(&d->memory, memory);
}

const char *dps_error(const dps *d)
{
    return d ? d->words : "the session is NULL: dps_new had no memory, or refused its dps_host";
}

/* The name of the first pointer that is NULL; NULL: there is none. Clears the results. */
static const char *missing(const Argument *needed)
{
    const char *name = NULL;
    for (; needed->name; needed++) {
        if (needed->result)
            memset(needed->result, 0, needed->size);
        name = name || needed->given ? name : needed->name;
    }
    return name;
}

dps_status call(dps *d, const char *function, Body *body, void *arguments, const Argument *needed)
{
    const char *const name = missing(needed);
    if (!d || atomic_exchange(&d->in_call, true))
        return DPS_BAD_USAGE;
    const locale_t before = uselocale(d->c_locale);
    dps_status status = DPS_NO_MEMORY;
    forget_words(d);
    d->working = host_arena(d, &d->memory);
    if (name)
        status = (dps_status)error_set(&d->error, STATUS_BAD_USAGE, "%s: `%s` is NULL", function, name);
    else if (setjmp(d->exhausted) == 0)
        status = (dps_status)body(d, arguments);
    else
        status = DPS_NO_MEMORY;
    if (status == DPS_NO_MEMORY) {
        forget_words(d);
        d->words = "out of memory";
    } else if (status != DPS_OK && !*d->words) {
        d->words = d->error.text;
    }
    drop_unfinished(d);
    uselocale(before);
    atomic_store(&d->in_call, false);
    return status;
}

_Static_assert((int)DPS_BAD_INPUT == STATUS_BAD_INPUT && (int)DPS_BAD_USAGE == STATUS_BAD_USAGE &&
                   (int)DPS_FAILED == STATUS_RUN_FAILED && (int)DPS_NO_MEMORY == STATUS_NO_MEMORY,
               "a Status is a dps_status");
