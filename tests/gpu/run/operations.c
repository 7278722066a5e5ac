/* The operations of a GPU against the oracle: operations DEVICE BOUND [small [NAME [fused]]]. NAME: those of one
   test, or none at all, each call said before it is made; fused: each call by a launch of a table. */

#include <stdio.h>

#include "tests/cuda/operations.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: operations DEVICE BOUND [small [NAME [fused]]]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs has said before where */
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
