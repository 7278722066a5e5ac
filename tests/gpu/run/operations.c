/* Compares the operations of a GPU with the oracle. Usage: operations DEVICE BOUND [small [NAME [fused]]]. small: only
   small shapes. NAME: only the test of that name, and each call is printed before it is made. fused: each operation
   runs as a fused launch. */

#include <stdio.h>

#include "tests/cuda/operations.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: operations DEVICE BOUND [small [NAME [fused]]]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* output appears line by line, so that it shows which call hangs */
    char name[64] = "";
    if (argc > 4) {
        snprintf(name, sizeof name, "all_of_%s", argv[4]);
        cmocka_set_test_filter(name);
    }
    return run_operations((OperationsRun){.device = argv[1],
                                          .bound = strtod(argv[2], NULL),
                                          .large = argc == 3,
                                          .fused = argc > 5 && strcmp(argv[5], "fused") == 0,
                                          .says = argc > 4});
}
