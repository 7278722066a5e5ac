"""Tests dps.torch. `make check-python-torch` runs one schedule of each kind, `make test-torch` (TORCH_TESTS=all) runs
all."""

import importlib.util
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock
import warnings
import zipfile

import torch

import dps
from dps.torch import _layers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import forks  # noqa: E402
import graphs  # noqa: E402
import halves  # noqa: E402
import fake  # noqa: E402
import links  # noqa: E402
import ties  # noqa: E402
from launch import launch  # noqa: E402
from models import WIDTH, Experts  # noqa: E402

EVERYTHING = os.environ.get("TORCH_TESTS") == "all"
MODELS = ("mlp", "transformer", "several", "tied", "frozen", "dropout")


class Ranks(unittest.TestCase):
    def run_ranks(self, script, ranks, *arguments, seconds=600):
        """Runs a script that must succeed on all ranks. Returns the output of each rank."""
        results = launch(str(HERE / script), ranks, arguments, seconds)
        for rank, (status, output) in enumerate(results):
            self.assertEqual(status, 0, f"rank {rank} of {script} {' '.join(arguments)}:\n{output}")
        return [output for _, output in results]


def _compiles(name, ranks, microbatches):
    try:
        program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=microbatches)
        return not program.is_asynchronous and not program.is_forward_only
    except dps.ScheduleError:
        return False


def _every_case():
    """Every synchronous schedule that trains, with every model on 2 or on 4 ranks. It has the first number of
    microbatches from 2 per rank on that it accepts with three models, the second with one; 1f1b-rr without tied
    weights."""
    models = itertools.cycle(MODELS)
    others = itertools.cycle(MODELS[1:])
    for name in dps.schedules():
        for ranks in (2, 4):
            counts = [count for count in range(2 * ranks, 4 * ranks + 1) if _compiles(name, ranks, count)][:2]
            for count, some in zip(counts, (list(itertools.islice(models, 3)), [next(others)])):
                yield from (f"{name}:{ranks}:{count}:{model}" for model in some
                            if (name, model) != ("1f1b-rr", "tied"))


class Equal(Ranks):
    """Losses and gradients are those of the model without a pipeline."""

    def test_each_kind(self):
        self.run_ranks("equal.py", 2, "1f1b:2:5:transformer", "zb-h1:2:4:dropout", "gpipe:2:3:several",
                       "zb-h1:2:4:frozen", "interleaved-zb:2:4:frozen", "zb-v:2:4:transformer", "dualpipev:2:6:mlp",
                       "dualpipe:2:4:mlp", "chimera:2:4:several", "bitpipe:2:4:mlp", "1f1b:2:4:tied", "zb-v:2:4:tied")

    def test_weight_gradients_after_an_overlapped_pair(self):
        """The recipe has `after:`: the program runs an F&I, the sends, and then a W."""
        path = HERE.parents[1] / "library/after.dps"
        instructions = list(dps.compile(path, ranks=2, microbatches=4).instructions(1))
        at = next(i for i, pair in enumerate(instructions) if pair.second and pair.second.opcode == "BACKWARD_INPUT")
        self.assertEqual([i.opcode for i in instructions[at + 1:at + 3]], ["SEND_BACKWARD", "BACKWARD_WEIGHT"])
        self.run_ranks("equal.py", 2, *(f"{path}:2:4:{model}" for model in ("transformer", "dropout", "several")))

    @unittest.skipUnless(EVERYTHING, "make test-torch trains under every schedule")
    def test_every_schedule(self):
        self.run_ranks("equal.py", 4, *_every_case(), seconds=7200)

    def test_in_the_order_of_nccl(self):
        """Each directed pair of ranks has a communicator without tags, whose posts block until the other end posts."""
        self.run_ranks("equal.py", 2, "--fake=blocks", "1f1b:2:5:transformer", "zb-v:2:4:several", "dualpipe:2:4:mlp",
                       "chimera:2:4:tied", "bitpipe:2:4:frozen")

    def test_lateness(self):
        """FAKE_RUNS=1000 trains under each schedule so often."""
        cases = [f"{name}:2:4" for name in dps.schedules() if _compiles(name, 2, 4)]
        self.run_ranks("lateness.py", 2, os.environ.get("FAKE_RUNS", "5"), *cases, seconds=7200)

    @unittest.skipUnless(EVERYTHING, "make test-torch trains under every schedule")
    def test_every_schedule_in_the_order_of_nccl(self):
        """Every fifth case, so that the models, of which there are six, take turns."""
        self.run_ranks("equal.py", 4, "--fake=blocks", *itertools.islice(_every_case(), 0, None, 5), seconds=7200)


by_the_graph = unittest.skipUnless(halves.GraphSplitter in halves.SPLITTERS,
                                   "this PyTorch cannot start a backward at a node of the graph")


class Recipes(Ranks):
    """Stages of layers(), whose F&Bs run in the order of a recipe."""

    def test_equal(self):
        kinds = itertools.cycle(("experts-", "experts-seeded"))
        names = ("gpipe", "1f1b", "interleaved-zb", "zb-v", "dualpipe", "dualpipev")
        counts, after = (2, 4) if EVERYTHING else (2,), HERE.parents[1] / "library/after.dps"
        cases = [f"{name}:{ranks}:{2 * ranks}:{next(kinds)}" for name in names for ranks in counts]
        self.run_ranks("equal.py", counts[-1], *cases, "dualpipe:2:6:experts-", f"{after}:2:4:experts-dense")

    def test_as_in_turn(self):
        """The same bits with and without the recipe, also with autocast, and dropout that draws from the generator of
        the process. dpc reads the trace and the costs of components."""
        with tempfile.TemporaryDirectory() as folder:
            self.run_ranks("recipes.py", 2, folder)
            dpc = os.path.join(os.environ.get("BUILD", "build"), "dpc")
            said = subprocess.run([dpc, "diff", "--ranks", "2", "--microbatches", "6", dps.schedule("dualpipev"),
                                   f"{folder}/recipes.json"], capture_output=True, text=True, check=True).stdout
            self.assertRegex(said, r"attention\(B\) .*\n.*attention\(W\) ")
            self.assertRegex(said, r"dispatch\(F\) +21 .* %\n")
            costs = pathlib.Path(f"{folder}/recipes.costs")
            auto = re.sub(r"(overlap F&B) \{.*?\n\}", r"\1 auto;", dps.schedule("dualpipev").read_text(), flags=re.S)
            self.assertIn("attention(F)", dps.compile(auto, ranks=2, microbatches=6, costs=costs).render("overlap"))

    def test_no_needless_warning(self):
        """dispatch and combine are methods of a module with weights but use none, so nothing of theirs is put off."""
        layer, x, times = Experts(""), torch.randn(2, 5, WIDTH, requires_grad=True), _layers.Times(int)
        stage = _layers.LayeredStage(_layers.Layers([layer.components("")]), "stage 0", False, True, times)
        held, (y,) = stage.forward((x,), {}, None, True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dx, = stage.backward_input(held, (torch.ones_like(y),))
        self.assertIsNone(layer.linear.weight.grad)
        stage.backward_weight(held)
        got = [dx] + [p.grad for p in layer.parameters()]
        want = torch.autograd.grad(layer.dense(*layer.attention(x)).sum(), [x, *layer.parameters()])
        self.assertTrue(all(map(torch.equal, got, want)))

    def test_misfits(self):
        program = dps.compile(dps.schedule("dualpipev"), ranks=2, microbatches=6)
        index = next(n for n, i in enumerate(program.instructions(0)) if i.second)

        def refused(*parts):
            stage = _layers.Layers(parts)
            with self.assertRaises(dps.UsageError) as raised:
                _layers.Recipe(program.components(0, index, [len(parts)] * 2), stage, stage, ("stage 0", "stage 3"), 25)
            return str(raised.exception)
        good = dict.fromkeys(("attention", "dispatch", "mlp", "combine"), abs)
        self.assertEqual(refused(good, dict(good, router=abs)), "stage 0: the recipe of line 25 does not name router "
                         "of layer 1; it names attention, combine, dispatch, mlp")
        self.assertEqual(refused(dict(attention=abs, dispatch=None, combine=None)), "stage 0: the recipe of line 25 "
                         'names mlp, which layer 0 lacks: give it "mlp": None if it has no such component')
        self.assertIn("dispatch of layer 0 comes later in the recipe of line 25", refused(dict(reversed(good.items()))))
        with self.assertRaisesRegex(dps.UsageError, "dispatch of part 1 .* is a int; it must be a module"):
            dps.torch.layers([abs, {"dispatch": 3}])
        two = _layers.Layers([dict(attention=lambda x: (x, 2), mlp=lambda x: x)])
        stage = _layers.LayeredStage(two, "stage 0", False, False, _layers.Times(int))
        with self.assertRaisesRegex(dps.UsageError, r"stage 0: mlp of layer 0 takes \(x\), but attention of layer 0 "
                                    r"returns 2 values \(a tensor of shape \[3\], a int\)"):
            stage.forward((torch.ones(3),), {}, None, False)


class Halves(unittest.TestCase):
    def test_nothing_is_computed_twice(self):
        halves.computes_nothing_twice()

    def test_memory_is_freed(self):
        halves.frees()

    def test_each_kind_of_call(self):
        graphs.each_kind()

    def test_changed_graphs(self):
        graphs.changed_graphs()

    @by_the_graph
    def test_any_module(self):
        halves.any_module_by_the_graph()

    @by_the_graph
    def test_each_shape_of_graph(self):
        forks.each_shape()

    @by_the_graph
    def test_own_functions(self):
        forks.own_functions()

    @by_the_graph
    def test_checkpoints(self):
        forks.checkpoints()

    @by_the_graph
    def test_compiled(self):
        forks.compiled()


class Links(unittest.TestCase):
    def test_every_kind_of_tensor(self):
        links.every_kind()
        links.every_dtype()

    def test_ring(self):
        links.rings()

    def test_more_than_the_rings_hold(self):
        links.more_than_fits()

    def test_waits_elsewhere(self):
        links.waits_elsewhere()

    def test_failures(self):
        links.failures()

    @unittest.skipUnless(hasattr(os, "fork"), "this system cannot copy a process")
    def test_copies_of_the_process(self):
        links.copies_of_the_process()

    def test_spins(self):
        links.spins()

    def test_without_memfd_create(self):
        links.without_memfd_create()

    def test_strangers(self):
        links.strangers()


class Nccl(unittest.TestCase):
    def test_host_stays_near(self):
        fake.host_stays_near()

    def test_waits_for_those_that_are_behind(self):
        fake.ends_steps()

    def test_leaves_once(self):
        fake.leaves_once()

    def test_leaves_in_time(self):
        fake.leaves_in_time()

    def test_closes_in_time(self):
        fake.closes_in_time()


class Replicas(Ranks):
    def test_two_replicas(self):
        self.run_ranks("replicas.py", 4)

    def test_copies_begin_equal(self):
        for rank, output in enumerate(self.run_ranks("copies.py", 4)):
            weight = "`linear.weight` of shape [{0}, {0}] and torch.float32 on process {1}"
            wide, narrow = weight.format(5, 0), weight.format(4, 3)
            first, second = (wide, narrow) if rank == 0 else (narrow, wide)
            if rank in (0, 3):
                self.assertIn(f"stage 3 has {first}, and {second}: copies of a stage need the same", output)
            if rank < 2:
                self.assertIn(f"stage {rank} is also on process {rank + 2}, which made no Pipeline within 1 s", output)


class Ties(unittest.TestCase):
    def test_each_case(self):
        ties.each_case()


class Wrapped(Ranks):
    """Stages in wrappers of PyTorch that sum over replicas."""

    SCHEDULES = ("zb-h1", "dualpipe", "1f1b", "interleaved-1f1b", "zb-v", "dualpipev")[:6 if EVERYTHING else 2]

    def test_distributed_data_parallel(self):
        self.run_ranks("wrapped.py", 4, "ddp", *self.SCHEDULES)

    @unittest.skipUnless(pathlib.Path(importlib.util.find_spec("torch").origin).parent.joinpath(
        "distributed/fsdp/_fully_shard").exists(), "this PyTorch has no fully_shard")
    def test_fully_shard(self):
        self.run_ranks("wrapped.py", 4, "fully_shard", *self.SCHEDULES)
        if EVERYTHING:
            self.run_ranks("wrapped.py", 4, "older", *self.SCHEDULES[:2])


class Ways(Ranks):
    def test_further_ways(self):
        self.run_ranks("ways.py", 4)

    @unittest.skipUnless(EVERYTHING, "make test-torch runs twice")
    def test_two_runs_give_the_same_bits(self):
        first, second = (self.run_ranks("bits.py", 4) for _ in range(2))
        self.assertEqual(first, second)
        for output in first:
            self.assertRegex(output, r"dualpipe \w{64}\nzb-v \w{64}\nbitpipe \w{64}\n")


class Traces(Ranks):
    def test_dpc_reads_them(self):
        dpc = os.path.join(os.environ.get("BUILD", "build"), "dpc")
        with tempfile.TemporaryDirectory() as folder:
            self.run_ranks("traced.py", 2, folder)
            for name in ("zb-h1", "dualpipe", "decode"):
                sizes, source = ["--ranks", "2", "--microbatches", "4"], str(dps.schedule(name))
                trace, costs = (pathlib.Path(folder, f"{name}.{end}") for end in ("json", "costs"))
                found = subprocess.run([dpc, "calibrate", trace], capture_output=True, text=True, check=True).stdout
                self.assertRegex(found, r"F\[1\] +=")
                self.assertRegex(costs.read_text(), r"F\[0\] = .*\nF\[1\] = ")
                if name != "decode":
                    self.assertRegex(found, r"I\[0\] +=")
                table = subprocess.run([dpc, "diff", *sizes, "--cost", f"@{costs}", source, trace], capture_output=True,
                                       text=True, check=True).stdout
                self.assertIn("measured: step", table)
                profiled = dps.compile(source, ranks=2, microbatches=4, costs=costs).predict()
                self.assertGreater(profiled.seconds * profiled.makespan, 0)


class Memory(Ranks):
    def test_bytes(self):
        """Bytes are those computed by hand, and dpc predicts the peak from the costs that profile() writes."""
        dpc = os.path.join(os.environ.get("BUILD", "build"), "dpc")
        with tempfile.TemporaryDirectory() as folder:
            self.run_ranks("memory.py", 2, folder)
            costs = pathlib.Path(folder, "zb-h1-pairs.costs")
            self.assertRegex(costs.read_text(), r"memory_I\[1\] = 768 .*\nmemory_W\[0\] = 256 .*\n.*\[1\] = 1024 ")
            stats = subprocess.run([dpc, "--ranks", "2", "--microbatches", "6", "--cost", f"@{costs}", "--emit=stats",
                                    dps.schedule("zb-h1")], capture_output=True, text=True, check=True).stdout
            self.assertEqual(re.findall(r'"peak_memory": (\d+)', stats), ["512", "2048"])  # as memory() says


class Pages(Ranks):
    def trains(self, program):
        """Runs a program of a page on two ranks. Both must print losses. Returns what they print."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text(program + "print(losses)\n")
            first, second = self.run_ranks(script, 2)
            self.assertIn("tensor([", first)
            self.assertIn("tensor([", second)
            return first, second

    def test_readme(self):
        """Both ranks of DualPipe run the last stage, so both print losses: one every 20 steps."""
        text = (HERE.parents[2] / "README.md").read_text()
        for output in self.trains(textwrap.dedent(re.search(r"^ +import dps, dps.torch.*?\n\n", text, re.S | re.M)[0])):
            self.assertEqual(re.findall(r"^(\d+) \d+\.\d+$", output, re.M), ["0", "20", "40", "60", "80"])

    def test_page(self):
        text = (HERE.parents[2] / "docs/pytorch.md").read_text()
        self.trains(re.search(r"```python\n(import dps, dps.torch.*?)```", text, re.S)[1])

    def test_commands(self):
        """Torchrun takes --nproc_per_node in all versions, and --nproc-per-node not before PyTorch 2."""
        for page in ("README.md", "docs/pytorch.md", "python/examples/gpt.py", "python/examples/experts.py"):
            text = (HERE.parents[2] / page).read_text()
            self.assertRegex(text, r"mpirun -n [24] \S*python3? \w+.py")
            if page != "README.md":
                self.assertRegex(text, r"torchrun --nproc_per_node [24] \w+.py")
            self.assertNotIn("--nproc-per-node", text)

    @unittest.skipUnless(EVERYTHING, "make test-torch runs the example with experts")
    def test_experts(self):
        """The losses with the recipe and in turn are equal to the bit."""
        with tempfile.TemporaryDirectory() as folder:
            first = self.run_ranks("../../../python/examples/experts.py", 4, "--steps", "2", "--folder", folder)[0]
            losses = dict(re.findall(r"(\S+): step 2, loss (.*)", first))
            self.assertEqual(losses["overlapped"], losses["in-turn"])
            self.assertIn("in-turn: 0 % of the communication in F&Bs is hidden", first)

    def test_example(self):
        """The example trains the same model with three schedules, to the same loss. It makes the folder of --folder."""
        with tempfile.TemporaryDirectory() as above:
            folder = os.path.join(above, "new", "folder")
            first, _ = self.run_ranks("../../../python/examples/gpt.py", 2, "--steps", "5", "--folder", folder)
            losses = re.findall(r"(.*): step 5, loss (.*)", first)
            self.assertEqual([name for name, _ in losses], ["dualpipe", "zb-v", "own"])
            self.assertEqual(len({loss for _, loss in losses}), 1, losses)
            pictures = {path.name for path in pathlib.Path(folder).glob("*.svg")}
            self.assertEqual(pictures, {"dualpipe.svg", "zb-v.svg", "own.svg"})


@unittest.skipUnless(sys.platform == "linux", "LD_PRELOAD is for Linux")
class Endings(Ranks):
    def test_threads_still_hold_sums(self):
        """A program may end while threads of gloo still hold what they have summed."""
        late = os.path.join(os.environ.get("BUILD", "build"), "tests/python/torch/late.so")
        with unittest.mock.patch.dict(os.environ, LD_PRELOAD=os.path.abspath(late)):
            self.run_ranks("ending.py", 2)


class DropIns(Ranks):
    def test_program_for_dualpipe(self):
        self.run_ranks("dropin.py", 2)


class Failures(Ranks):
    """A step that fails ends on all ranks, at the deadline at the latest, and all ranks that still run say why."""

    def test_all_ranks_say_why(self):
        self.say_why(r"rank 1 has ended: its connection closed while rank [02]")

    def test_on_a_fake_gpu(self):
        self.say_why(r"rank 1 gave no sign of life for 6 s \(Pipeline\(deadline=6\)\): stopped, ended, ", "--fake")

    def say_why(self, words_of_death, *arguments):
        results = launch(str(HERE / "failing.py"), 3, arguments)
        self.assertEqual([status for status, _ in results], [0, -9, 0], results)
        for rank, (_, output) in enumerate(results):
            self.assertNotRegex(output, "too late|no failure|Traceback")
            there = rank == 1
            shape = r"stage 1, microbatch 2 to rank 2: tensor 0 with shape \[1, 4\] instead of \[2, 4\]\."
            where = r"PipelineError: rank 1 failed in {} \(line \d+ of 1f1b.dps\): "
            self.assertRegex(output, "shape: " + ("" if there else where.format("1SEND_F2")) + "UsageError: " + shape)
            self.assertRegex(output, "raises: " + ("" if there else where.format("1F2")) + "ArithmeticError: this")
            self.assertRegex(output, "raises: PipelineError: this pipeline has failed and cannot be used any more: "
                                     "rank 1 failed in 1F2")
            sums = where.format("wait_reduce of stage 1")
            self.assertRegex(output, "tied: " + ("" if there else sums) + "ArithmeticError: rank 1")
            self.assertRegex(output, r"stays: PipelineError: rank [02] was at 1?.* for 6 s \(Pipeline\(patience=6\)\); "
                                     r"rank 1 was at 1F2 \(line \d+ of 1f1b.dps\)")
            if not there:
                self.assertRegex(output, "dies: PipelineError: " + words_of_death)

    def test_outputs_change(self):
        for rank, output in enumerate(self.run_ranks("changing.py", 3)):
            where = "" if rank == 1 else r"PipelineError: rank 1 failed in 1SEND_F0 \(line \d+ of 1f1b.dps\): "
            for how, form in (("dtype", "tensor 0 with dtype float64 instead of float32"),
                              ("none", "0 tensors instead of 1"), ("more", "2 tensors instead of 1"),
                              ("frozen", "tensor 0 with requires_grad False instead of True"),
                              ("both", r"tensor 0 with shape \[2, 5\] instead of \[2, 4\], dtype float64 instead of")):
                self.assertRegex(output, rf"{how}: {where}UsageError: stage 1, microbatch 0 to rank 2: {form}")
            self.assertRegex(output, r"one: PipelineError: rank [012] has called forget_shapes\(\) (once|0 times) "
                                     r"before step 2, and rank [012] (once|0 times): all ranks must")
            self.assertRegex(output, "argument: " + ("UsageError" if rank == 0 else
                                                     r"PipelineError: rank 0 failed in step\(\): UsageError") +
                                     r": input 0 has shape \[3, 4\]")

    def test_before_the_first_step(self):
        results = launch(str(HERE / "unready.py"), 3)
        self.assertEqual([status for status, _ in results], [-9, 0, 0], results)
        for rank, (_, output) in enumerate(results):
            self.assertNotRegex(output, "no failure|Traceback")
            told = "" if rank == 1 else "PipelineError: rank 1 made no Pipeline: "
            self.assertRegex(output, f"stages: {told}UsageError: rank 1 of 1f1b holds 1 stage .*, but you gave 2")
            self.assertRegex(output, f"ranks: {told}UsageError: 1f1b is compiled with ranks=2, but the group "
                                     "has size 3")
            other = 0 if rank == 1 else 1
            self.assertRegex(output, f"program: UsageError: rank {rank} and rank {other} have different programs")
            if rank != 1:
                self.assertRegex(output, r"ended: PipelineError: rank 1 made no Pipeline within 4 s \(.*patience=4\)")
        self.assertRegex(results[2][1], "store: PipelineError: the process that holds the store .* has ended")


    def test_silent(self):
        """A rank that is busy for longer than the deadline ends no step. If a process is stopped, the others end within
        the deadline, say which, and so does the process when it goes on."""
        with tempfile.TemporaryDirectory() as folder:
            ways = [f"{rank} {how}" for rank in range(3) for how in ("in a step", "between steps")]
            ways = ways if EVERYTHING else ways[::2]
            for rank, output in enumerate(self.run_ranks("silent.py", 3, folder, *ways)):
                self.assertNotRegex(output, "too late|no failure")
                self.assertIn("busy: 2 steps", output)
                for how in ways:
                    words = f"rank {how[0]} gave no sign of life for 4 s"
                    if how[0] == "0":  # the store is stopped as well, so the others cannot write the reason
                        words = "process that holds the store .*rank 0.* is stopped|rank [12] has ended"
                        words += "|another rank has ended" if rank == 0 else ""  # it waited for all of them
                    self.assertRegex(output, f"{how}: .*({words})", (rank, output))


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
class Runs(unittest.TestCase):
    def two_at_once(self, *command):
        """Starts the script twice at the same time. The processes of each must meet each other."""
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "MASTER_PORT")}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
        ran = subprocess.run(["timeout", "300", *command, sys.executable, HERE / "two_runs.py"], text=True,
                             env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        for number in (7, 9):
            self.assertIn(f"run {number} received {{{number}.0}}", ran.stdout)

    def test_one_machine(self):
        run = 'mpirun --oversubscribe -n 2 "$@"'
        for _ in range(int(os.environ.get("TORCH_STARTS", 4 if EVERYTHING else 2))):
            self.two_at_once("sh", "-e", "-c", f"{run} 7 & {run} 9; wait $!", "sh")

    @unittest.skipUnless(EVERYTHING and os.geteuid() == 0 and shutil.which("ip"), "make test-torch, as root")
    def test_two_machines(self):
        self.two_at_once("unshare", "--mount", "--net", HERE / "two_machines.sh")

    def test_other_run(self):
        """A process that finds the store of another run is refused."""
        run = "import os, dps.torch, torch.distributed as dist\nfrom dps.torch import _group\n" \
              "store, state = dist.HashStore(), dist.distributed_c10d\n" \
              "dist.init_process_group('gloo', store=store, rank=0, world_size=1)\n" \
              "for os.environ['PMIX_NAMESPACE'] in 'aab':\n" \
              "    _group.default_store(10, 10)\n    print('joined')\n"
        environment = dict(os.environ, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
        ran = subprocess.run([sys.executable, "-c", run], env=environment, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "joined\njoined\n", ran.stderr)
        self.assertIn("UsageError: this process belongs to run b, but the store of torch.distributed to run a",
                      ran.stderr)


class Calls(Ranks):
    def test_calls(self):
        self.run_ranks("calls.py", 2)

    def test_dps_alone_does_not_import_torch(self):
        subprocess.run([sys.executable, "-c", "import dps, sys; sys.exit('torch' in sys.modules)"], check=True)


class Installation(unittest.TestCase):
    @unittest.skipUnless(EVERYTHING, "make test-torch installs the package from its sources")
    def test_from_sources(self):
        """The installation builds libdps where there is none. Without pip, the test calls the backend, as pip does."""
        outside = {"DPS_LIBRARY", "BUILD", "SANITIZE", "PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
        environment = {name: value for name, value in os.environ.items() if name not in outside}
        with tempfile.TemporaryDirectory() as folder:
            sources, there = pathlib.Path(folder, "sources"), pathlib.Path(folder, "there")
            shutil.copytree(HERE.parents[2], sources, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
            if importlib.util.find_spec("pip"):
                self.run_quietly([sys.executable, "-m", "pip", "install", "--no-index", "--target", there, "./python"],
                                 sources, environment)
            else:
                self.run_quietly([sys.executable, "python/backend.py", folder], sources, environment)
                wheel, = pathlib.Path(folder).glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(there)
            self.assertTrue((sources / "build/libdps.so").exists())
            shutil.rmtree(sources)
            program = ("import dps.torch; print(dps.__file__, dps._library.library._name, "
                       "dps.compile(dps.schedule('dualpipe'), ranks=2, microbatches=4).ranks)")
            found = self.run_quietly([sys.executable, "-c", program], folder, {**environment, "PYTHONPATH": str(there)})
            self.assertEqual(found.split(), [str(there / "dps/__init__.py"), str(there / "dps/libdps.so"), "2"])

    def run_quietly(self, command, folder, environment):
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout


if __name__ == "__main__":
    unittest.main()
