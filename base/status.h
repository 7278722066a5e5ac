#pragma once

/* The result of a function. The values are the exit statuses of the programs, except STATUS_NO_MEMORY (status_exit). */
typedef enum Status {
    STATUS_OK = 0,
    STATUS_BAD_INPUT = 1,  /* a file's content is wrong */
    STATUS_BAD_USAGE = 2,  /* the command line, or an argument of a call of libdps, is wrong */
    STATUS_RUN_FAILED = 3, /* for example a peer died, a deadline passed, or a device or the system failed */
    STATUS_NO_MEMORY = 4,  /* some functions tell this apart from STATUS_RUN_FAILED; libdps returns it */
} Status;

/* The exit status of a program. */
static inline int status_exit(Status status) { return (int)(status == STATUS_NO_MEMORY ? STATUS_RUN_FAILED : status); }

/* The message of a failure. The function that finds the failure writes it (error_set) into its caller's Error; callers
   may add words before it (error_prefix). */
typedef struct Error {
    char text[1024];
} Error;

/* Writes the message and returns `status`, so that a failure is one line: return error_set(error, STATUS_..., "...",
   ...). A message that does not fit is truncated. */
Status error_set(Error *error, Status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Inserts words before the message: each caller may add what it knows (rank, instruction, file). */
void error_prefix(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints "PROGRAM: message" on standard error, made printable (text_print); nothing if there is no message. */
void error_print(const char *program, const Error *error);

#define TRY(call)                     \
    do {                              \
        Status try_status_ = (call);  \
        if (try_status_ != STATUS_OK) \
            return try_status_;       \
    } while (0)
