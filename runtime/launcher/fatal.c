#include "runtime/launcher/fatal.h"

#include "runtime/launcher/launched.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 16 }; /* the frame of a signal handler takes 11 KiB on machines with AVX-512 and AMX */

/* the progress of the rank that this thread runs; NULL in other threads */
static _Thread_local const Progress *own;
static _Thread_local const ProgressWords *own_words;
static atomic_bool ending, over;
static char limit[128]; /* the end of each message: the memory limit; "" if there is none */

static void append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

static void append_place(char *text, size_t size)
{
    const uint64_t place = atomic_load(&own->place);
    char words[256];
    append(text, size, "%s", mesh_name(own_words->mesh, atomic_load(&own->member)).text);
    if (place == PROGRESS_IDLE)
        return;
    own_words->place(own_words->program, own, words, sizeof words);
    append(text, size, ", step %llu, %s", (unsigned long long)(place >> 32), words);
}

/* Prints the message of a fatal fault and exits. May run within a signal handler: glibc's snprintf neither allocates
   nor locks for these formats. Exits without destructors, because this thread may hold locks that other threads wait
   for. */
static _Noreturn void end(const char *what)
{
    char text[512] = "dprun: ";
    if (atomic_exchange(&ending, true))
        for (;;)
            pause(); /* waits: another thread is already printing its message and will exit */
    if (own)
        append_place(text, sizeof text);
    append(text, sizeof text, "%s%s%s\n", own ? ": " : "", what, limit);
    if (write(STDERR_FILENO, text, strlen(text)) >= 0)
        launched_await_reader();
    _exit(STATUS_RUN_FAILED);
}

static void take_fault(int number)
{
    switch (number) {
    case SIGABRT: end("a library called abort (SIGABRT)");
    case SIGSEGV: end("a bad access to memory (SIGSEGV)");
    case SIGBUS: end("a bad access to memory (SIGBUS)");
    case SIGILL: end("an instruction that this processor does not have (SIGILL)");
    default: end("an arithmetic fault (SIGFPE)");
    }
}

static void take_exit(void)
{
    if (!atomic_load(&over))
        end("a library ended the process");
}

void fatal_begin(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    struct sigaction before, action = {.sa_handler = take_fault, .sa_flags = SA_ONSTACK};
    struct rlimit memory;
    sigfillset(&action.sa_mask);
    if (getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY)
        snprintf(limit, sizeof limit, "; memory has probably run out: the limit is %llu MiB (ulimit -v)",
                 (unsigned long long)memory.rlim_cur >> 20);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        /* keeps the handler of a sanitizer; a signal that the parent ignores stays ignored */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(numbers[i], &action, NULL);
    atexit(take_exit);
}

void fatal_over(void) { atomic_store(&over, true); }

Status fatal_run(const Progress *progress, const ProgressWords *words, Status (*work)(void *rank, Error *error),
                 void *rank, Error *error)
{
    char stack[STACK_BYTES];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    stack_t before;
    const bool changed = sigaltstack(&alternate, &before) == 0;
    own = progress;
    own_words = words;
    const Status status = work(rank, error);
    own = NULL;
    if (changed)
        sigaltstack(&before, NULL);
    return status;
}
