/* limit N COMMAND...: runs a command that must end within N times TEST_LIMIT seconds, and exits with its status. */

#include "tests/limit/limit.h"

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    bool late;
    const time_t seconds = atol(argv[1]) * test_limit();
    const int status = run_limited(argv + 2, seconds, &late);
    if (late)
        fprintf(stderr, "%s: ended, because it ran for %ld s (TEST_LIMIT)\n", argv[2], (long)seconds);
    return late ? 124 : exit_status(status);
}
