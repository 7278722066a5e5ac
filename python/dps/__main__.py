"""python3 -m dps hang ORDER.csv DUMP...: where the ranks of a hung run were, as dps.hang() says it."""

import pathlib
import sys

import dps


def main(arguments):
    if len(arguments) < 3 or arguments[0] != "hang":
        return __doc__
    try:
        print(dps.hang(pathlib.Path(arguments[1]).read_text(), arguments[2:]), end="")
    except (dps.Error, OSError) as error:
        return f"dps: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
