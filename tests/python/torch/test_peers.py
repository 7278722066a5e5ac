"""Compares dps.torch with DeepSeek's DualPipe and with torch.distributed.pipelining (`make check-torch`).

DUALPIPE=folder   a clone of github.com/deepseek-ai/DualPipe that has the commit 3da1bbe"""

import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import dps
import dps.torch
from launch import launch
from test_torch import Ranks

COMMIT = "3da1bbe"
# What changes in DeepSeek's examples: the import, the device and the backend.
CHANGES = (("from dualpipe import", "from dps.torch import"), ("from dualpipe.utils import", "from dps.torch import"),
           ("backend='nccl'", "backend='gloo'"), ("torch.cuda.set_device(rank)", "torch.set_num_threads(1)"),
           ('torch.set_default_device(f"cuda:{rank}")', 'torch.set_default_device("cpu")'),
           ("torch.cuda.device_count()", "4"))
# With gloo, all_gather_into_tensor only takes a tensor whose first dimension is that of all parts together. So these
# calls are replaced by all_gather, which takes a list of tensors.
GATHERS = tuple((f"dist.all_gather_into_tensor({name}, ", f"dist.all_gather(list({name}), ")
                for name in ("p0all", "p1all"))


with_a_clone = unittest.skipUnless(os.environ.get("DUALPIPE"),
                                   "DUALPIPE names no clone of github.com/deepseek-ai/DualPipe")


def file_of_deepseek(path):
    return subprocess.run(["git", "-C", os.environ["DUALPIPE"], "show", f"{COMMIT}:{path}"], stdout=subprocess.PIPE,
                          text=True, check=True).stdout


@with_a_clone
class Signatures(unittest.TestCase):
    """The drop-ins have the names, the parameters and the defaults of DeepSeek's."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(sys, "path", [folder, *sys.path]):
            pathlib.Path(folder, "dualpipe").mkdir()
            for name in ("__init__", "comm", "dualpipe", "dualpipev", "utils"):
                path = f"dualpipe/{name}.py"
                pathlib.Path(folder, path).write_text(file_of_deepseek(path))
            cls.theirs, cls.utils = importlib.import_module("dualpipe"), importlib.import_module("dualpipe.utils")

    def same(self, theirs, ours):
        self.assertEqual(parameters(ours), parameters(theirs), theirs.__qualname__)

    def test_classes(self):
        for name in ("DualPipe", "DualPipeV"):
            theirs, ours = getattr(self.theirs, name), getattr(dps.torch, name)
            self.same(theirs, ours)
            self.same(theirs.step, ours.step)

    def test_functions(self):
        for module, name in ((self.theirs, "set_p2p_tensor_shapes"), (self.theirs, "set_p2p_tensor_dtype"),
                             (self.utils, "run_backward")):
            self.same(getattr(module, name), getattr(dps.torch, name))

    def test_store(self):
        theirs, ours = self.theirs.WeightGradStore, dps.torch.WeightGradStore
        members = {name: member for name, member in vars(theirs).items() if not name.startswith("__")}
        self.assertEqual(set(members), {"enabled", "cache", "funcs_queue", "put", "flush", "pop", "clear"})
        for name, member in members.items():
            if isinstance(member, classmethod):
                self.same(getattr(theirs, name), getattr(ours, name))
            else:
                self.assertIs(type(getattr(ours, name)), type(member), name)


def parameters(function):
    """(name, kind, default) of each parameter. A default that is an empty list or tuple is (): its type is no part of
    the signature."""
    return [(p.name, p.kind, () if p.default == [] else p.default)
            for p in inspect.signature(function).parameters.values()]


@with_a_clone
class DeepSeek(unittest.TestCase):
    """The examples of DeepSeek's classes pass their own assertions with the classes of dps.torch."""

    def passes(self, name, changes):
        text = file_of_deepseek(f"examples/{name}")
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, name)
            script.write_text(text)
            (status, output), = launch(str(script), 1, seconds=3000)  # the example starts its ranks itself
        self.assertEqual(status, 0, output)
        self.assertIn("pp_size=4", output)

    def test_dualpipe(self):
        self.passes("example_dualpipe.py", CHANGES + GATHERS)

    def test_dualpipev(self):
        self.passes("example_dualpipev.py", CHANGES)


class Torch(Ranks):
    @unittest.skipUnless(importlib.util.find_spec("torch.distributed.pipelining"),
                         "this PyTorch has no torch.distributed.pipelining")
    def test_equal_gradients(self):
        """Torch's schedules give the same gradients as those of dps."""
        first, _ = self.run_ranks("torch_schedules.py", 2)
        self.assertGreaterEqual(first.count(": equal"), 4, first)


    @unittest.skipUnless(importlib.util.find_spec("torch.distributed.pipelining.schedules"),
                         "this PyTorch has no torch.distributed.pipelining")
    def test_exported(self):
        """Torch's runtime trains rightly with orders of dpc: plain, looped and in a V."""
        names = ("1f1b", "zb-h1", "gpipe", "interleaved-1f1b", "interleaved-zb", "looped-bfs", "zb-v", "v-half",
                 "v-min", "dualpipev", "ebb-v")
        first, _ = self.run_ranks("exported.py", 2, *(f"{name}:4" for name in names))
        self.assertEqual(first.count(": equal"), len(names), first)


class Deferred(unittest.TestCase):
    def test_written_up(self):
        """The script of docs/deferred-receives.md shows wrong gradients, and only with receives that are deferred."""
        page = (pathlib.Path(__file__).parents[3] / "docs/deferred-receives.md").read_text()
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "deferred.py")
            script.write_text(re.search("```python\n(.*?)```", page, re.S).group(1))
            results = launch(str(script), 2)
        for status, output in results:
            if "unexpected keyword argument 'defer_pp_recv'" in output:
                self.skipTest("this PyTorch does not defer receives")
            self.assertEqual(status, 0, output)
            right, wrong = map(float, re.findall("off by (.*)", output))
            self.assertLess(right, 1e-12)
            self.assertGreater(wrong, .1, "PyTorch has mended it: say so in docs/deferred-receives.md")


class Checked(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("torch.distributed.pipelining"),
                         "this PyTorch has no torch.distributed.pipelining")
    def test_deferred_receives(self):
        """PyTorch's ZBV order trains wrongly with receives that are deferred, and rightly without."""
        import torch
        from torch import distributed
        from torch.distributed.pipelining import PipelineStage, schedules
        from torch.testing._internal.distributed.fake_pg import FakeStore

        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        self.addCleanup(distributed.destroy_process_group)

        def made(kind, **options):
            stages = [PipelineStage(torch.nn.Linear(2, 2), s, 4, torch.device("cpu")) for s in (0, 3)]
            return kind(stages, 4, loss_fn=torch.nn.functional.mse_loss, **options)

        zbv, dual = schedules.ScheduleZBVZeroBubble, schedules.ScheduleDualPipeV
        self.assertEqual(dps.torch.check(made(zbv))["weakest"], "rendezvous")
        self.assertRaisesRegex(dps.UsageError, "there is no 'port'", dps.torch.check, made(zbv), "port")
        try:
            deferred = made(zbv, defer_pp_recv=True)
        except TypeError:
            self.skipTest("this PyTorch does not defer receives")
        self.assertRaisesRegex(dps.ScheduleError, "ScheduleZBVZeroBubble: swaps with edge: message 3 from rank 0 to "
                               r"rank 1 is sent as 0SEND_F2 \(activations\)", dps.torch.check, deferred)
        self.assertEqual(dps.torch.check(made(dual, defer_pp_recv=True))["weakest"], "edge")
        self.assertRaisesRegex(dps.ScheduleError, "deadlocks with pair", dps.torch.check,
                               made(dual, defer_pp_recv=True), "pair")
        stage = PipelineStage(torch.nn.Linear(2, 2), 0, 2, torch.device("cpu"))
        self.assertRaisesRegex(dps.UsageError, "has no order with messages", dps.torch.check,
                               schedules.ScheduleGPipe(stage, 2))


del Ranks  # it has no tests of its own, so unittest does not have to run it


if __name__ == "__main__":
    unittest.main()
