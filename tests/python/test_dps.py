"""The Python package dps. `make check-python` runs this with the library of the build."""

import ast
import contextlib
import ctypes
import dataclasses
import enum
import io
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import types
import typing
import unittest
import unittest.mock
import xml.etree.ElementTree
import zipfile

import dps
from dps import _library

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADER = (TOP / "library/dps.h").read_text()
WRONG = "schedule wrong;\nranks P = 2;\nmicrobatches M = 2;\npipe p: stage s on rank q;\n"


def dualpipe(**options):
    return dps.compile(dps.schedule("dualpipe"), **{"ranks": 4, "microbatches": 8, **options})


class Header(unittest.TestCase):
    """The declarations for ctypes equal those of dps.h."""

    def test_functions(self):
        declared = set(re.findall(r"^[a-z].*?\b(dps_\w+)\(", HEADER, re.M))
        self.assertEqual(set(_library.FUNCTIONS), declared)

    def test_structs(self):
        structs = [kind for kind in vars(_library).values()
                   if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and hasattr(kind, "_fields_")]
        lines, expected = [], []
        for struct in structs:
            name = "dps_" + re.sub(r"(?<=.)([A-Z])", r"_\1", struct.__name__).lower()
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            expected.append((name, ctypes.sizeof(struct)))
            for member, *_ in struct._fields_:
                lines.append(f'printf("%zu\\n", offsetof({name}, {member.rstrip("_")}));')
                expected.append((f"{name}.{member}", getattr(struct, member).offset))
        declared = set(re.findall(r"^\} (dps_\w+);", HEADER, re.M))
        declared -= {"dps_status", "dps_severity", "dps_slot_class", "dps_opcode", "dps_format"}
        self.assertEqual({name for name, _ in expected if "." not in name}, declared)
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "layout"
            program.with_suffix(".c").write_text('#include "dps.h"\n#include <stdio.h>\n'
                                                 'int main(void) {%s}' % "".join(lines))
            subprocess.run(["gcc", "-I", TOP / "library", program.with_suffix(".c"), "-o", program], check=True)
            found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual([(name, int(offset)) for (name, _), offset in zip(expected, found)], expected)

    def test_enums(self):
        for values, prefix in ((_library.OPCODES, ""), (_library.SLOT_CLASSES, "SLOT_")):
            for number, name in enumerate(values):
                self.assertTrue(re.search(rf"\bDPS_{prefix}{name.upper()} = {number},", HEADER), name)
        kinds = re.findall(r'^EMIT\((\w+), "(\w+)"', (TOP / "compiler/output/kinds.def").read_text(), re.M)
        self.assertEqual([name for _, name in kinds], list(_library.FORMATS))
        for number, (kind, _) in enumerate(kinds):
            self.assertTrue(re.search(rf"\bDPS_{kind} = {number},", HEADER), kind)


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


class Runtimes(unittest.TestCase):
    """Python modules for other runtimes, with doubles of their classes."""

    def run_module(self, kind, doubles, name="zb-v"):
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=4)
        members = {}
        with unittest.mock.patch.dict(sys.modules, {double.__name__: double for double in doubles}):
            exec(program.render(kind), members)
        return program, members["schedule"]

    def jaxpp(self, name):
        class Task(typing.NamedTuple):
            stage_id: int
            mubatch_idx: int
            fwd_or_bwd: str

        Task.make = Task
        base = dataclasses.make_dataclass("BaseSchedule", [("num_stages", int)], frozen=True,
                                          namespace={"__post_init__": lambda self: None})
        kinds = types.SimpleNamespace(FWD="F", BWD="B", BWD_I="I", BWD_W="W")
        fused = type("FusedTask", (tuple,), {})
        return self.run_module("jaxpp", (
            module("jaxpp"), module("jaxpp.schedules", BaseSchedule=base, FusedTask=fused, Task=Task),
            module("jaxpp.types", MpmdIdx=int, TaskType=kinds)), name)

    def test_refused(self):
        self.assertRaisesRegex(dps.ScheduleError, "JaxPP has one copy of each stage", dualpipe().render, "jaxpp")
        self.assertIn("no such order as dualpipe", dualpipe().render("megatron"))

    def test_jaxpp(self):
        for name, split in (("1f1b", False), ("zb-v", True), ("dualpipev", True)):
            program, schedule = self.jaxpp(name)
            self.assertEqual(schedule.is_partial_bwd, split)
            self.assertRaisesRegex(ValueError, "of 4 microbatches, not of 8", schedule.tasks, 8)
            kinds = "FIW" if split else "FB"
            for rank, row in enumerate(schedule.tasks(4)):
                flat = [part for task in row for part in (task if type(task).__name__ == "FusedTask" else (task,))]
                stages = [chunk.stage for chunk in program.rank(rank).chunks]
                self.assertEqual(sorted(flat), sorted((s, m, k) for s in stages for m in range(4) for k in kinds))
                self.assertEqual({schedule.get_mpmd_idx(part.stage_id) for part in flat}, {rank})
                self.assertTrue(all({"I", "W"} <= {part.fwd_or_bwd for part in task} for task in row
                                    if type(task).__name__ == "FusedTask"))

    def test_shardy(self):
        class Kind(enum.Enum):
            KEEP_TRANSFERRED, DROP_TRANSFERRED = range(2)

        def make(name, fields):
            fields = [(field, object, None) for field in fields.split()]
            return dataclasses.make_dataclass(name, fields, frozen=True)

        origin = make("FragmentOrigin", "computation_name transpose_count")
        info = make("FragmentInfo", "origins stage_id call_counter split_type mesh_name")
        doubles = [module("shardy.integrations.python.jax.mpmd"[:end]) for end in (6, 19, 26, 30, 35)]
        doubles.append(module("shardy.integrations.python.jax.mpmd.types", FragmentInfo=info, SplitFragmentType=Kind,
                              FragmentMergeRule=make("FragmentMergeRule", "sources target"),
                              FragmentScheduleRule=make("FragmentScheduleRule", "ordered_fragments"),
                              PipelineSchedule=make("PipelineSchedule",
                                                    "schedule_merge_rule_builders required_mpmd_options")))
        for name in ("1f1b", "zb-v", "dualpipev"):
            program, schedule = self.run_module("shardy", doubles, name)
            split = "mpmd_split_bwd_fragments" in schedule.required_mpmd_options
            backward = (Kind.KEEP_TRANSFERRED, Kind.DROP_TRANSFERRED) if split else (None,)
            kinds = [(0, None), *((1, kind) for kind in backward)]
            for rank in range(2):
                all = {info((origin(f"s{chunk.stage}", count),), chunk.stage, m, kind, f"m{rank}")
                       for chunk in program.rank(rank).chunks for m in range(4) for count, kind in kinds}
                context = types.SimpleNamespace(num_meshes=2)
                (rule,), merges = schedule.schedule_merge_rule_builders[0](list(all), context)
                self.assertEqual((set(rule.ordered_fragments), len(rule.ordered_fragments)), (all, len(all)))
                first = rule.ordered_fragments[0]
                self.assertEqual((first.stage_id, first.call_counter), (rank, 0))
                pairs = sum(i.opcode == "OVERLAP" for i in program.instructions(rank))
                self.assertEqual(len(merges), pairs)


class Hang(unittest.TestCase):
    """Dumps of torch's flight recorder beside the order of the run."""

    ORDER = ("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
             "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")

    def said(self, *rows, first=1, dump=json.dumps):
        """rows: for each rank (operation, state) in the order in which they were posted, 1 s apart."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, str(rank)) for rank in range(len(rows))]
            for rank, (path, row) in enumerate(zip(paths, rows)):
                entries = [{"profiling_name": f"nccl:{what} {rank}{'->' if what == 'send' else '<-'}{1 - rank}",
                            "is_p2p": True, "state": state, "p2p_seq_id": first + i,
                            "time_created_ns": (1_700_000_000 + i) * 10**9} for i, (what, state) in enumerate(row)]
                entries.insert(0, {"profiling_name": "nccl:all_reduce", "is_p2p": False, "state": "completed"})
                made = dump({"version": "2.10", "entries": entries})
                path.write_bytes(made if isinstance(made, bytes) else made.encode())
            return dps.hang(self.ORDER, paths)

    def test_where(self):
        send, receive, waiting = ("send", "completed"), ("recv", "completed"), ("recv", "started")
        expected = ("rank 0: posted 3 of 4 messages; 0B0 waits for 0RECV_B0 from rank 1, "
                    "since 2023-11-14 22:13:22 UTC, 0.0 s before the newest entry of the dumps; "
                    "rank 1 never posted 1SEND_B0\n"
                    "rank 1: posted 1 of 4 messages, never 1SEND_B0 (to rank 0); no pass before it waits for a "
                    "message: it computes, or is stuck outside of messages\n")
        for dump in (json.dumps, pickle.dumps):
            self.assertEqual(self.said([send, send, waiting], [receive], dump=dump), expected)
        step = [send, send, receive, receive], [receive, send, receive, send]
        second = self.said(step[0] + [send, send, waiting], step[1] + [receive])
        self.assertEqual(second.replace("22:13:26", "22:13:22"), expected)
        self.assertEqual(self.said(*step), "rank 0: posted 4 of 4 messages, all of its step\n"
                                           "rank 1: posted 4 of 4 messages, all of its step\n")
        self.assertIn("rank 1: posted 0 of 4 messages, never 1RECV_F0", self.said([send], []))

    def test_refused(self):
        send, receive = ("send", "completed"), ("recv", "completed")
        self.assertRaisesRegex(dps.ScheduleError, "rank 0: the dump has too few operations: 2 places",
                               self.said, [send], [receive], first=7)
        self.assertRaisesRegex(dps.ScheduleError, "no dump", self.said, [], [], dump=lambda dump: b"{")
        self.assertRaisesRegex(dps.ScheduleError, "only lists", self.said, [], [],
                               dump=lambda dump: pickle.dumps(pathlib.PurePath("x")))
        self.assertRaisesRegex(dps.UsageError, "2 ranks, but there are 1", dps.hang, self.ORDER, ["x"])


class Words(unittest.TestCase):
    """Messages name arguments of this package, and no option of dpc."""

    COSTLY = """schedule costly;
ranks P = 2; microbatches M = 4; require cost(F) == cost(I), "equal times";
pipe a: P stages, stage s on s, M microbatches;
nF : M; nB : M;"""
    MERGED = """schedule merged;
ranks P = 1; microbatches M = 2;
pipe a: P stages, stage s on s, M microbatches;
overlap F&B auto;
nF : 1; nFB : M-1 overlap; nB : 1;"""

    def said(self, function, *arguments, **options):
        with self.assertRaises((dps.UsageError, dps.ScheduleError)) as caught:
            function(*arguments, **options)
        return str(caught.exception)

    def test_errors(self):
        one, chunks = dps.schedule("1f1b"), dps.schedule("interleaved-1f1b")
        two = {"ranks": 2, "microbatches": 4}
        cases = [
            (dualpipe, [], {"ranks": 3}, "the nearest numbers that work: ranks=2 or 4"),
            (dualpipe, [], {"microbatches": 5}, "numbers that work: microbatches=4"),
            (dualpipe, [], {"params": {"ranks": 3}}, "params ranks: for the number of ranks write ranks=N"),
            (dualpipe, [], {"params": {"microbatches": 3}}, "microbatches: for the number of microbatches write micro"),
            (dualpipe, [], {"params": {"chunkz": 3}}, "params chunkz: schedule dualpipe has no"),
            (dps.compile, [chunks], {**two, "params": {"chunks": 0}}, "number that works: params chunks=1"),
            (dualpipe, [], {"costs": "G=1"}, "costs: "),
            (dualpipe, [], {"costs": "qkv.F=1"}, "costs: qkv.F is a part of the time"),
            (dualpipe, [], {"costs": str(one)}, "costs: "),
            (dualpipe, [], {"slot_bytes": "all=1"}, "slot_bytes: 'all=1' is not NAME=BYTES"),
            (dualpipe, [], {"slot_bytes": {"message": "big"}}, "slot_bytes: 'message=big' needs a whole number"),
            (dualpipe, [], {"memory_limit": "much"}, "memory_limit: 'much' is neither"),
            (dualpipe, [], {"memory_limit": "1G"}, "memory_limit in bytes needs sizes: slot_bytes message=N"),
            (dps.compile, [self.COSTLY], {"costs": "F=0"}, "as in costs F=1,I=1.2"),
            (dps.compile, [self.MERGED], {}, "give them with costs attention.F=1"),
            (dps.compare, [one], {"params": {"x": 1}}, "params x: none of the schedules"),
            (dps.compare, [one], {**two, "replicas": 2}, "replicas needs the size of the gradients"),
            (dps.compare, [one], {**two, "replicas": 2}, "costs gradients=N"),
            (dps.advise, [2, 4], {"params": {"x": 1}}, "params x: none of the schedules"),
            (dps.balance, [[[1, 1]]], {"replicas": 1, "gpus": 1}, "replicas=1: a layer needs"),
            (dps.balance, [[[1, 1]]], {"replicas": 2, "gpus": 3}, "replicas=2 is less than gpus=3"),
            (dps.balance, [[[1, 1]]], {"replicas": 3, "gpus": 2, "method": "eplb"}, "method='best' takes any number"),
            (dps.balance, [[[1, 1, 1]]], {"replicas": 4, "gpus": 2, "groups": 2, "nodes": 2}, "groups=2 does not"),
            (dps.balance, [[[1, 1]]], {"replicas": 3, "gpus": 3, "groups": 2, "nodes": 2}, "gpus=3 is not a multiple"),
            (dps.balance, [[[1]]], {"replicas": 4, "gpus": 2, "distinct": True}, "distinct: replicas=4 is too large"),
            (dps.balance, [[[9, 1]]], {"replicas": 4, "gpus": 2, "distinct": True, "moves": 0,
                                       "current": [[0, 0, 1, 1]]}, "distinct needs at least moves="),
        ]
        for function, arguments, options, words in cases:
            with self.subTest(words):
                said = self.said(function, *arguments, **options)
                self.assertIn(words, said)
                self.assertNotRegex(said.replace("dprun --profile", ""), r"(^|[^\w.-])(--?[a-zA-Z])")
        reasons = [row["reason"] for row in dps.advise(2, 4)["left_out"]]
        self.assertTrue(any("allow='async' tries it" in reason for reason in reasons))
        self.assertFalse([reason for reason in reasons if "--" in reason])


class Programs(unittest.TestCase):
    def test_compile_and_ask(self):
        program = dualpipe()
        self.assertEqual((program.schedule, program.source), ("dualpipe", "dualpipe.dps"))
        self.assertEqual((program.ranks, program.stages, program.pipes, program.microbatches), (4, 4, 2, 8))
        self.assertEqual([program.pipe(0), program.pipe(1)], [range(4), range(4, 8)])
        for rank in range(4):
            for index, chunk in enumerate(program.rank(rank).chunks):
                self.assertEqual(chunk.stage, 3 - rank if chunk.pipe else rank)
                self.assertIn((rank, index), program.group(chunk.group))
        self.assertIn("4 ranks", repr(program))
        for ask, number in ((program.rank, 4), (program.rank, -1), (program.pipe, 2), (program.group, 4)):
            self.assertRaises(IndexError, ask, number)

    def test_instructions(self):
        program = dualpipe()
        passes = {}
        for rank in range(program.ranks):
            instructions = program.instructions(rank)
            self.assertEqual(len(instructions), program.rank(rank).instruction_count)
            self.assertEqual(instructions[-1].opcode, "END")
            for i in instructions:
                passes[i.opcode] = passes.get(i.opcode, 0) + 1
                if i.opcode == "SEND_FORWARD":
                    self.assertEqual(i.text, f"SEND_F{i.chunk} m{i.microbatch} r{i.peer} y{i.message}")
                self.assertEqual(i.second is not None, i.opcode == "OVERLAP")
        self.assertEqual(passes["FORWARD"] + passes["OVERLAP"], 8 * 4)
        self.assertEqual(passes["SEND_FORWARD"], 8 * 3)

    def test_components(self):
        """Those of the first F&B of rank 0 with 1 layer in both stages: communication comes as early as it can."""
        program = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=4)
        pairs = [n for n, i in enumerate(program.instructions(0)) if i.second]
        components = program.components(0, pairs[0], (1, 1))
        self.assertEqual(" ".join(f"{c.name}({c.letter})" for c in components),
                         "combine(B) attention(F) dispatch(F) mlp(B) dispatch(B) mlp(W) mlp(F) combine(F) attention(B) "
                         "attention(W)")
        self.assertEqual(components[0], dps.Component("combine", "B", 1, 0, True))
        self.assertEqual([c.layer for c in program.components(0, pairs[0], (2, 0))], [0, 0, 0, 0, 1, 1, 1, 1])
        self.assertEqual(program.components(0, 0, (1, 1)), [])

    def test_source_text_and_paths(self):
        text = dps.schedule("gpipe").read_text()
        of_text = dps.compile(text, ranks=2, microbatches=4)
        self.assertEqual(of_text.csv(), dps.compile(str(dps.schedule("gpipe")), ranks=2, microbatches=4).csv())
        order = dps.compile(of_text.csv(), name="order.csv")
        self.assertEqual(order.csv(), of_text.csv())

    def test_parameters(self):
        program = dps.compile(dps.schedule("interleaved-1f1b"), ranks=2, microbatches=4, params={"chunks": 3})
        self.assertEqual(len(program.rank(0).chunks), 3)
        self.assertRaisesRegex(dps.UsageError, "chunkz", dps.compile, dps.schedule("gpipe"), params={"chunkz": 3})
        for name, wrong in (("ranks", 0), ("ranks", "4"), ("microbatches", 4.0)):
            words = f"^{name} must be a whole number from 1 to 4294967295, not {wrong!r}$"
            self.assertRaisesRegex(dps.UsageError, words, dps.compile, dps.schedule("gpipe"), **{name: wrong})
        for wrong in ("4", 2**63):
            words = f"^chunks must be a whole number from -9223372036854775808 to 9223372036854775807, not {wrong!r}$"
            self.assertRaisesRegex(dps.UsageError, words, dps.compile, dps.schedule("hanayo"), params={"chunks": wrong})
        self.assertRaisesRegex(dps.UsageError, "params is a dict", dps.compile, dps.schedule("gpipe"), params="x=4")

    def test_bytes_and_files(self):
        program = dualpipe()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prog.bin"
            program.save(path)
            self.assertEqual(path.read_bytes(), bytes(program))
            for again in (dps.load(path), dps.load(str(path)), dps.load(bytes(program)),
                          pickle.loads(pickle.dumps(program))):
                self.assertEqual(again.csv(messages=True), program.csv(messages=True))
                self.assertEqual(again.predict("F=2,comm=0.5"), program.predict("F=2,comm=0.5"))
            with self.assertRaises(dps.SystemFailure):
                program.save(path / "below")
        damaged = bytearray(bytes(program))
        damaged[len(damaged) // 2] ^= 1
        self.assertRaises(dps.ScheduleError, dps.load, damaged)

    def test_every_schedule(self):
        self.assertIn("dualpipe", dps.schedules())
        self.assertGreater(len(dps.schedules()), 20)
        for name in dps.schedules():
            self.assertEqual(dps.compile(dps.schedule(name)).source, f"{name}.dps")
        self.assertRaisesRegex(dps.UsageError, "dualpipe", dps.schedule, "dualpip")
        for function, argument in ((dps.compile, "dualpipe"), (dps.compare, ["dualpipe"]), (dps.compare, "dualpipe")):
            self.assertRaisesRegex(dps.ScheduleError, r'dualpipe: no such file; dps.schedule\("dualpipe"\)', function,
                                   argument)


class Errors(unittest.TestCase):
    def test_same_words_and_places_as_dpc(self):
        with self.assertRaises(dps.ScheduleError) as caught:
            dualpipe(ranks=3)
        error = caught.exception
        dpc = subprocess.run([TOP / os.environ.get("BUILD", "build") / "dpc", "--ranks", "3", "--microbatches", "8",
                              dps.schedule("dualpipe")], capture_output=True, text=True)
        self.assertEqual(str(error) + "\n", dpc.stderr.replace("--ranks ", "ranks="))
        self.assertTrue(str(error).startswith(f"{dps.schedule('dualpipe')}:{error.line}:{error.column}: error: "))
        self.assertEqual(error.help.split("\n")[-1], "the nearest numbers that work: ranks=2 or 4")

    def test_several(self):
        with self.assertRaises(dps.ScheduleError) as caught:
            dps.compile(WRONG)
        error = caught.exception
        self.assertEqual(error.diagnostics[0].severity, "error")
        self.assertIn(f"<text>:{error.line}:{error.column}: error: {error.diagnostics[0].text}", str(error))

    def test_no_place(self):
        with self.assertRaises(dps.ScheduleError) as caught:
            dps.compile("nowhere.dps")
        self.assertEqual((caught.exception.line, caught.exception.diagnostics), (None, []))
        self.assertIn("nowhere.dps", str(caught.exception))
        self.assertRaisesRegex(dps.UsageError, "fast", dualpipe, costs="F=fast")
        self.assertRaisesRegex(dps.UsageError, "slot_bytes", dualpipe, memory_limit="1G")
        some = {"message": "1M", "context": "2M", "stash": 0, "gradient": 0}
        self.assertRaisesRegex(dps.ScheduleError, "slot_bytes lacks weights", dualpipe, memory_limit="1G",
                               slot_bytes=some)
        self.assertEqual(dualpipe(slot_bytes=some).predict().ranks[0].peak_memory, 0)


class Pictures(unittest.TestCase):
    def test_costs(self):
        program = dps.compile(dps.schedule("gpipe"), ranks=4, microbatches=8)
        self.assertEqual(program.predict().makespan, 33)  # (M + P - 1)(F + B)
        self.assertAlmostEqual(program.predict().bubble_rate, 3 / 11)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "some.cost"
            path.write_text("F = 2\nI = 2\nW = 2\nunit = 1e-3\n")
            for costs in (path, "F=2,I=2,W=2,unit=1e-3", {"F": 2.0, "I": 2, "W": 2, "unit": 1e-3},
                          ["F=5", {"F": 2, "I": 2}, "W=2,unit=1e-3"]):
                predicted = program.predict(costs)
                self.assertEqual((predicted.makespan, predicted.seconds), (66, 1e-3))
        self.assertEqual(sum(rank.busy for rank in predicted.ranks), 4 * 48)
        self.assertIsNone(program.predict().seconds)
        self.assertEqual(dps.compile(dps.schedule("gpipe"), ranks=4, microbatches=8, costs={"F": 2}).predict().work, 32)

    def test_order_is_for_the_costs_of_compile(self):
        """ebb-v chooses its order by cost(FB)."""
        path, costs = dps.schedule("ebb-v"), {"F": 1, "I": 1, "W": 1, "FB": 1.2}
        program = dps.compile(path, ranks=4, microbatches=8)
        fitting = dps.compile(path, ranks=4, microbatches=8, costs=costs)
        self.assertNotEqual(program.csv(), fitting.csv())
        self.assertLess(fitting.predict().makespan, program.predict(costs).makespan)
        self.assertEqual(fitting.predict(), fitting.predict(costs))

    def test_memory(self):
        sizes = {"message": "1M", "context": 10, "stash": 10, "gradient": 0, "weights": 0}
        program = dualpipe(slot_bytes=sizes, memory_limit="1G")
        slots = program.rank(0).slots
        self.assertEqual(program.predict().ranks[0].peak_memory,
                         (slots["message"] << 20) + 10 * (slots["context"] + slots["stash"]))
        self.assertRaises(dps.ScheduleError, dualpipe, slot_bytes=sizes, memory_limit="1M")

    def test_texts(self):
        program = dualpipe()
        xml.etree.ElementTree.fromstring(program.svg())
        self.assertEqual(program._repr_svg_(), program.svg())
        self.assertTrue(program.html().startswith("<!DOCTYPE html>"))
        self.assertEqual(json.loads(program.trace())["otherData"]["ranks"], 4)
        self.assertEqual(json.loads(program.render("stats"))["makespan"], program.predict().makespan)
        self.assertTrue(program.show().startswith("dualpipe: 4 ranks, 8 microbatches"))
        self.assertEqual(len(program.csv().splitlines()), 4)
        self.assertIn("SEND_F", program.csv(messages=True))
        self.assertIn("how often", program.explain())
        self.assertNotIn("\033", program.show())
        self.assertRaisesRegex(dps.UsageError, "there are csv", program.render, "png")
        self.assertRaisesRegex(dps.UsageError, "pixels", program.svg, None, 10)


class Searches(unittest.TestCase):
    def test_progress(self):
        told = []

        def progress(tried, planned, cost, bound):
            told.append((tried, planned))
            return len(told) == 3

        program = dps.compile(dps.schedule("zb1p"), ranks=8, microbatches=32, progress=progress)
        self.assertEqual(program.ranks, 8)
        self.assertLess(len(told), told[0][1] / 2)

    def test_an_exception_ends_the_search(self):
        def progress(*_):
            raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, dps.compile, dps.schedule("zb1p"), progress=progress)

    def test_threads(self):
        texts = []

        def work():
            texts.append(dps.compile(dps.schedule("zb1p"), ranks=4, microbatches=8).svg())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(texts), 4)
        self.assertEqual(len(set(texts)), 1)


class Studies(unittest.TestCase):
    def test_compare(self):
        paths = [dps.schedule(name) for name in ("gpipe", "zb-h1", "dualpipe")]
        found = dps.compare(paths, ranks=4, microbatches=8, costs={"F": 1})["schedules"]
        self.assertEqual([row["schedule"] for row in found][-1], "gpipe")
        self.assertEqual(found[-1]["makespan"], 33)
        self.assertEqual(dps.compare(paths[0], ranks=4, microbatches=8)["schedules"][0]["schedule"], "gpipe")
        refused = dps.compare(paths, ranks=3, microbatches=8)["schedules"]
        self.assertIn("DualPipe folds", [row.get("refused") for row in refused if row["schedule"] == "dualpipe"][0])
        self.assertRaisesRegex(dps.UsageError, "chunkz", dps.compare, paths, params={"chunkz": 1})
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.dps"
            wrong.write_text(WRONG)
            self.assertRaisesRegex(dps.ScheduleError, "wrong.dps:[0-9]+:", dps.compare, [*paths, wrong])

    def test_compare_replicas(self):
        """With two replicas the sums have more bytes, and the step of 1f1b takes longer."""
        paths = [dps.schedule(name) for name in ("1f1b", "chimera")]
        costs = {"F": 1, "comm": 0.5, "gradients": 8}
        compared = (dps.compare(paths, ranks=4, microbatches=8, costs=costs, replicas=replicas) for replicas in (1, 2))
        one, two = ({row["schedule"]: row for row in rows["schedules"]} for rows in compared)
        self.assertEqual([row["1f1b"]["sums_bytes"] for row in (one, two)], [0, 4 * 8])
        self.assertGreater(two["chimera"]["sums_bytes"], one["chimera"]["sums_bytes"])
        self.assertGreater(two["1f1b"]["makespan"], one["1f1b"]["makespan"])
        self.assertRaisesRegex(dps.UsageError, "gradients=N", dps.compare, paths, replicas=2)
        self.assertRaisesRegex(dps.UsageError, "replicas must be a whole number from 1 to 4294967295, not 0",
                               dps.compare, paths, replicas=0)

    def test_check(self):
        """An order whose messages swap, one of DeepSpeed's instructions, and a wrong one."""
        one, two = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1", "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1"
        orders = {"swapped.csv": f"{one}\n{two},1B1,1SEND_B1\n", "short.csv": f"{one}\n{two}\n"}

        def instruction(name, buffer):
            return type(name, (), {"buffer_id": buffer, "__repr__": lambda self: name})()

        class Steps(list):
            def steps(self):
                return [[instruction(*pair) for pair in self]]

        first = [("LoadMicroBatch", 0), ("ForwardPass", 0), ("SendActivation", 0), ("ForwardPass", 1),
                 ("RecvGrad", 0), ("SendActivation", 1), ("BackwardPass", 0), ("RecvGrad", 1), ("BackwardPass", 1)]
        last = [(name, buffer) for buffer in (0, 1)
                for name in ("RecvActivation", "ForwardPass", "BackwardPass", "SendGrad")]
        orders["deepspeed.csv"] = dps.deepspeed_order([Steps(first), Steps(last)])
        self.assertEqual(orders["deepspeed.csv"].split()[0], "0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1")
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in orders]
            for path, text in zip(paths, orders.values()):
                path.write_text(text)
            swapped, short, deepspeed = dps.check(paths)["orders"]
        self.assertEqual((swapped["kind"], swapped["weakest"]), ("swaps", None))
        self.assertIn("message 1 from rank 0 to rank 1 is sent as 0SEND_F0", swapped["kind_why"])
        self.assertIn("rank 1 never runs 1B1", short["refused"])
        self.assertEqual((deepspeed["rendezvous"], deepspeed["weakest"]), ("safe", "rendezvous"))
        self.assertEqual(dps.check(dps.schedule("1f1b"), ranks=3)["orders"][0]["weakest"], "rendezvous")
        self.assertRaisesRegex(dps.ScheduleError, "comes before a forward", dps.deepspeed_order,
                               [Steps([("BackwardPass", 0)])])
        self.assertRaisesRegex(dps.ScheduleError, "CommitP2P is none of", dps.deepspeed_order,
                               [Steps([("CommitP2P", 0)])])

    def test_advise(self):
        found = dps.advise(2, 4, costs="F=1,I=1,W=1,comm=0.1", allow="async", seconds=600)
        makespans = [round(row["makespan"], 6) for row in found["rows"]]
        self.assertGreater(len(makespans), 10)
        self.assertEqual(makespans, sorted(makespans))
        self.assertEqual([row["schedule"] for row in found["left_out"]].count("naive"), 1)
        self.assertTrue(any("pipedream" in row["schedule"] for row in found["rows"]))
        self.assertRaisesRegex(dps.UsageError, "nothing", dps.advise, 2, 4, allow="nothing")

    def test_advise_replicas(self):
        found = dps.advise(2, 4, costs="F=1,comm=0.1,gradients=8", replicas=2, seconds=600)
        self.assertTrue(all(row["sums_bytes"] > 0 for row in found["rows"]))


class Experts(unittest.TestCase):
    LOADS = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
             [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]

    def test_balance(self):
        shape = {"replicas": 16, "gpus": 8, "groups": 4, "nodes": 2}
        eplb = dps.balance(self.LOADS, method="eplb", **shape)
        # The example of DeepSeek's EPLB and its result.
        self.assertEqual(eplb.placement, [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
                                          [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]])
        best = dps.balance(self.LOADS, **shape)
        for layer in range(2):
            self.assertGreaterEqual(best.after[layer], eplb.after[layer])
            self.assertLessEqual(best.after[layer], best.bound[layer])
        again = dps.balance(self.LOADS, current=best.placement, moves=0, **shape)
        self.assertEqual((again.placement, again.moves), (best.placement, [0, 0]))
        for loads, current, words in (
                ([[1, 2, 3], [1, 2]], None, r"loads\[1\] has length 2, but loads\[0\] has length 3"),
                ([[1, 2, 3]], [[0, 1, 2]], r"current\[0\] has length 3, but replicas is 4"),
                ([[1, 2, 3]] * 2, [[0, 1, 2, 0]], "current has length 1, but loads has length 2: one for each layer")):
            self.assertRaisesRegex(dps.UsageError, words, dps.balance, loads, replicas=4, gpus=2, current=current)
        self.assertRaisesRegex(dps.UsageError, "gpus must be a whole number from 1 to 4294967295, not -2",
                               dps.balance, self.LOADS, replicas=16, gpus=-2)
        self.assertRaises(dps.UsageError, dps.balance, self.LOADS, replicas=7, gpus=8)
        self.assertRaises(dps.ScheduleError, dps.balance, [[1, float("nan")]], replicas=2, gpus=2)


class Sources(unittest.TestCase):
    def test_python_3_9_reads_them(self):
        files = sorted((TOP / "python").rglob("*.py"))
        self.assertIn(TOP / "python/dps/torch/_graph.py", files)
        for path in files:
            ast.parse(path.read_text(), str(path), feature_version=(3, 9))


class Wheel(unittest.TestCase):
    def backend(self):
        sys.path.insert(0, str(TOP / "python"))
        try:
            import backend
        finally:
            sys.path.pop(0)
        return backend

    def test_a_wheel_has_all_it_needs(self):
        backend = self.backend()
        environment = {key: value for key, value in os.environ.items() if key != "DPS_LIBRARY"}
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            wheel = pathlib.Path(folder) / backend.build_wheel(folder)
            self.assertRegex(wheel.name, r"^dps-[0-9.]+-py3-none-(many)?linux_\w+\.whl$")
            first = wheel.read_bytes()
            backend.build_wheel(folder)
            self.assertEqual(wheel.read_bytes(), first)
            there = pathlib.Path(folder) / "there"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(there)
                names = set(archive.namelist())
            record = (there / f"dps-{dps.__version__}.dist-info/RECORD").read_text().splitlines()
            self.assertEqual({line.split(",")[0] for line in record}, names)
            self.assertIn("dps/torch/__init__.py", names)
            self.assertIn(f"dps-{dps.__version__}.dist-info/licenses/LICENSE", names)
            ran = subprocess.run(
                [sys.executable, "-c",
                 "import dps; p = dps.compile(dps.schedule('dualpipe'), ranks=2, microbatches=4); "
                 "print(dps.__file__, dps._library.library._name, p.ranks)"],
                cwd=folder, env={**environment, "PYTHONPATH": str(there)}, capture_output=True, text=True)
            self.assertEqual(ran.stdout.split(), [str(there / "dps/__init__.py"), str(there / "dps/libdps.so"), "2"],
                             ran.stderr)

    def test_an_editable_wheel_leads_here(self):
        """pip install -e"""
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(pathlib.Path(folder) / self.backend().build_editable(folder)) as archive:
                archive.extractall(folder)
            ran = subprocess.run([sys.executable, "-c", f"import site; site.addsitedir({folder!r}); import dps; "
                                  "print(dps.__file__)"], capture_output=True, text=True,
                                 env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
            self.assertEqual(ran.stdout, str(TOP / "python/dps/__init__.py") + "\n", ran.stderr)

    def build_library(self, make, *tools):
        """Lets the backend build libdps with a fake make. Returns what it says."""
        with tempfile.TemporaryDirectory() as folder:
            for tool, script in (("make", make), *((tool, "") for tool in tools)):
                path = pathlib.Path(folder, tool)
                path.write_text(f"#!/bin/sh\n{script}\n")
                path.chmod(0o755)
            environment = {"PATH": folder, "PYTHONPATH": str(TOP / "python")}
            ran = subprocess.run([sys.executable, "-c", "import backend; print(backend._library())"], env=environment,
                                 start_new_session=True, capture_output=True, text=True)
        return ran.returncode, (ran.stdout + ran.stderr).splitlines()

    def test_what_is_missing_is_said_in_one_line(self):
        status, (line,) = self.build_library("", "gcc")
        self.assertEqual((status, line), (1, "dps: libdps cannot be built without bison, flex: install the packages "
                                          "(Debian: bison flex), or set DPS_LIBRARY to a built libdps.so"))
        self.assertIn("(Debian: flex gcc libc6-dev)", self.build_library("", "bison")[1][0])

    def test_progress_is_said(self):
        tools = "gcc", "bison", "flex"
        status, lines = self.build_library("for i in 1 2 3 4; do echo gcc -c -o $i.o $i.c; done", *tools)
        self.assertEqual((status, lines), (0, [str(TOP / "build/libdps.so")] + [
            f"dps: compiles libdps, {done} of 4 files done" for done in range(4)]))
        status, lines = self.build_library("echo a message >&2; exit 2", *tools)
        self.assertEqual((status, lines[-1]), (1, "dps: libdps could not be built; the compiler's messages are above"))

    def test_another_library_is_refused(self):
        for path, words in (("/nowhere/libdps.so", "cannot open shared object file"), ("libm.so.6", "it has no dps_")):
            ran = subprocess.run([sys.executable, "-c", "import dps"], env={**os.environ, "DPS_LIBRARY": path},
                                 capture_output=True, text=True)
            self.assertIn(words, ran.stderr)
            self.assertIn("ImportError", ran.stderr)

    def test_the_tag_is_that_of_the_symbols(self):
        """The wheel's tag names the newest glibc whose functions libdps needs, as readelf lists them, but at least
        2.28."""
        def run(*command):
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        backend = self.backend()
        library = os.path.realpath(os.environ.get("DPS_LIBRARY", "build/libdps.so"))
        versions = [int(version) for version in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "-W", "-V", library))]
        tag = backend._tag(pathlib.Path(library).read_bytes())
        self.assertRegex(tag, rf"^py3-none-manylinux_2_{max(28, *versions)}_\w+$")
        for needed in re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-W", "-d", library)):
            self.assertIn(needed.encode(), backend._EVERYWHERE)

    def test_the_tag_is_that_of_this_machine(self):
        """The tag is that of this machine if libdps needs a library that not every system has, or another C library
        than glibc."""
        backend = self.backend()
        for names in (b"GLIBC_2.34\0libcadical.so.1", b"libc.musl.so.1"):
            self.assertRegex(backend._tag(b"\0libc.so.6\0" + names + b"\0"), r"^py3-none-linux_\w+$")
        found = backend._tag(b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.33\0GLIBC_2.4\0libdps.so.0\0")
        self.assertRegex(found, r"^py3-none-manylinux_2_33_\w+$")


if __name__ == "__main__":
    unittest.main()
