/* The operations of a GPU against the oracle: operations DEVICE BOUND [small]. */

#include <stdio.h>

#include "tests/cuda/operations.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: operations DEVICE BOUND [small]\n");
        return 2;
    }
    return run_operations(argv[1], strtod(argv[2], NULL), argc == 3);
}
