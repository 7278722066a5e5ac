"""dps.torch. `make check-python-torch` runs one schedule of each kind, `make test-torch` all of them (TORCH_TESTS=all)."""

import itertools
import os
import pathlib
import sys
import unittest

import dps

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from launch import launch  # noqa: E402

EVERYTHING = os.environ.get("TORCH_TESTS") == "all"
MODELS = ("mlp", "transformer", "several", "tied", "frozen", "dropout")


class Ranks(unittest.TestCase):
    def run_ranks(self, script, ranks, *arguments, seconds=120):
        """Runs a script that must succeed on all ranks."""
        results = launch(str(HERE / script), ranks, arguments, seconds)
        for rank, (status, output) in enumerate(results):
            self.assertEqual(status, 0, f"rank {rank} of {script} {' '.join(arguments)}:\n{output}")
        return [output for _, output in results]


def _compiles(name, ranks, microbatches):
    try:
        return not dps.compile(dps.schedule(name), ranks=ranks, microbatches=microbatches).is_asynchronous
    except dps.ScheduleError:
        return False


def _every_case():
    """Every synchronous schedule with 2 and 4 ranks and two numbers of microbatches; the models take turns."""
    models = itertools.cycle(MODELS)
    for name in dps.schedules():
        for ranks in (2, 4):
            counts = [count for count in range(2 * ranks, 4 * ranks + 1) if _compiles(name, ranks, count)][:2]
            yield from (f"{name}:{ranks}:{count}:{model}" for count in counts for model in
                        (next(models), next(models), next(models)) if (name, model) != ("1f1b-rr", "tied"))


class Equal(Ranks):
    """Losses and gradients are those of the model without a pipeline."""

    def test_each_kind(self):
        self.run_ranks("equal.py", 2, "1f1b:2:5:transformer", "zb-h1:2:4:dropout", "gpipe:2:3:several",
                       "interleaved-zb:2:4:frozen", "zb-v:2:4:transformer", "dualpipev:2:6:mlp", "dualpipe:2:4:mlp",
                       "chimera:2:4:several", "bitpipe:2:4:mlp", "1f1b:2:4:tied", "zb-v:2:4:tied")

    @unittest.skipUnless(EVERYTHING, "make test-torch trains under every schedule")
    def test_every_schedule(self):
        self.run_ranks("equal.py", 4, *_every_case(), seconds=1500)


if __name__ == "__main__":
    unittest.main()
