/* The operations of a GPU against the oracle: operations DEVICE BOUND [small [NAME [CLUSTER]]]. NAME: those of one test, or none
   at all; CLUSTER: products on Hopper in clusters of so many blocks, whatever the device would take. */

#include <stdio.h>

#include "tests/cuda/operations.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: operations DEVICE BOUND [small [NAME [CLUSTER]]]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs has said before where */
    char name[64] = "";
    if (argc > 4) {
        snprintf(name, sizeof name, "all_of_%s", argv[4]);
        cmocka_set_test_filter(name);
    }
    return run_operations(argv[1], strtod(argv[2], NULL), argc == 3, argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 0);
}
