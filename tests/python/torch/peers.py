"""Measures a step of DualPipe's example model under DeepSeek's classes, under torch.distributed.pipelining and under
dps.torch, in turn:

    python3 peers.py FOLDER [ranks [rounds [size]]]     # FOLDER: a copy of github.com/deepseek-ai/DualPipe

`size` is a part of a size's name, for example "hidden 128"; without it, all sizes are measured.

For each schedule and size it prints medians over the rounds, with quartiles: the time of a step, the processor time
that rank 0 spends on it, and for both the ratio of the peer's to ours. It also prints the ratio of the peer's time to
that of the passes alone, called without a pipeline on all ranks at once: no pipeline reaches a higher ratio. In a
round the steps run one after the other, and the next round turns their order round; each round gives one ratio.
PyTorch's schedules take stages of ordinary layers, and DeepSeek's take layers that defer their weight gradients;
dps.torch takes the same stages as its peer."""

import os
import pathlib
import sys
import time
from functools import partial

from launch import launch

WARM, CHUNKS = 2, 20
TINY = 4  # the hidden size of stages that add 4 numbers: DeepSeek's classes refuse stages that return their input
SIZES = {"stages that add 4 numbers": (TINY, (1, 1)), "hidden 128, 64 rows": (128, (1, 64)),
         "hidden 512, 3 x 256 rows": (512, (3, 256))}


def make_stage(hidden, store=None):
    """A stage of DualPipe's example, or a tiny one. With a store its layers defer their weight gradients to
    it."""
    import torch

    import dualpipev

    class Add(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(hidden))

        def forward(self, x):
            return x + self.bias

    return Add() if hidden == TINY else dualpipev.make_stage(hidden, store)


def rows_of(chunks, hidden, rows):
    import torch

    return torch.randn(2, chunks * rows[0], *rows[1:], hidden)


def passes_alone(modules, hidden, rows, microbatches):
    """Runs the forward and the backward of each module for so many microbatches."""
    import torch

    x, dy = torch.zeros(*rows, hidden, requires_grad=True), torch.zeros(*rows, hidden)
    for module in modules:
        for _ in range(microbatches):
            module(x).backward(dy)


def deepseek(hidden, rows):
    """For each of DeepSeek's classes (name of the schedule, name of the peer, their step, our step, passes_alone)."""
    import dualpipe
    import dualpipe.comm
    import torch
    import torch.distributed as dist

    import dps.torch
    from dualpipev import criterion

    # DeepSeek's classes are written for GPUs; with these replacements they run on a CPU.
    torch.cuda.current_device = lambda: "cpu"
    dualpipe.comm.build_from_tensor_shapes = lambda: [torch.empty(*rows, hidden, requires_grad=True)]
    dualpipe.set_p2p_tensor_shapes([(*rows, hidden)])
    dualpipe.set_p2p_tensor_dtype(torch.float32)
    for name, schedule, ends, chunks in (("DualPipe", "dualpipe", (0, dist.get_world_size() - 1), CHUNKS // 2),
                                         ("DualPipeV", "dualpipev", (0,), CHUNKS)):
        x, target = rows_of(chunks, hidden, rows) if dist.get_rank() in ends else (None, None)
        steps = []
        for package, store in ((dualpipe, dualpipe.utils.WeightGradStore), (dps.torch, dps.torch.WeightGradStore)):
            modules = [make_stage(hidden, store), make_stage(hidden, store)]
            pipe = getattr(package, name)(modules)
            steps.append(partial(pipe.step, x, num_chunks=CHUNKS, criterion=criterion,
                                 labels=[target]))
        yield schedule, f"DeepSeek's {name}", *steps, partial(passes_alone, modules, hidden, rows, chunks)


def pytorch(hidden, rows):
    """For each of PyTorch's schedules (name of the schedule of dps, name of the peer, their step, our step,
    passes_alone). An old PyTorch has none."""
    try:
        from torch.distributed.pipelining import PipelineStage, schedules
    except ImportError:
        return
    import torch
    import torch.distributed as dist

    import dps
    import dps.torch
    from dualpipev import criterion

    for name, schedule, per_rank in (("Schedule1F1B", "1f1b", 1), ("ScheduleDualPipeV", "dualpipev", 2)):
        if not hasattr(schedules, name):
            continue
        program = dps.compile(dps.schedule(schedule), ranks=dist.get_world_size(), microbatches=CHUNKS)
        numbers = [chunk.stage for chunk in program.rank(dist.get_rank()).chunks]
        x, target = rows_of(CHUNKS, hidden, rows)
        given = [x] if 0 in numbers else []
        target = target if program.stages - 1 in numbers else None
        stages = [PipelineStage(make_stage(hidden), s, program.stages, torch.device("cpu")) for s in numbers]
        theirs = getattr(schedules, name)(stages if per_rank > 1 else stages[0], CHUNKS, loss_fn=criterion)
        modules = [make_stage(hidden) for _ in numbers]
        ours = dps.torch.Pipeline(program, modules, criterion)
        yield (schedule, f"PyTorch's {name}", partial(theirs.step, *given, target=target),
               partial(ours.step, *given, target=target), partial(passes_alone, modules, hidden, rows, CHUNKS))


def measure(steps, rounds):
    """Runs steps in turn. Returns for each its times and the processor times of this rank, in ms, by rounds. The first
    WARM rounds are not among them."""
    import torch.distributed as dist

    times = [([], []) for _ in steps]
    for number in range(WARM + rounds):
        for (wall, work), step in list(zip(times, steps))[::1 if number % 2 else -1]:
            dist.barrier()
            began, worked = time.perf_counter(), time.process_time()
            step()
            worked = time.process_time() - worked
            dist.barrier()
            if number >= WARM:
                wall.append((time.perf_counter() - began) * 1000)
                work.append(worked * 1000)
    return times


def say(values, digits):
    """The median of the values, and their quartiles."""
    values = sorted(values)
    low, middle, high = (values[round((len(values) - 1) * part / 4)] for part in (1, 2, 3))
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def ratios(theirs, ours):
    return say([their / our for their, our in zip(theirs, ours)], 2)


def compared(theirs, ours):
    digits = 1 if min(ours) > 10 else 2
    return f"{say(theirs, digits)}, dps.torch {say(ours, digits)}, ratio {ratios(theirs, ours)}"


def one_rank(rounds, wanted):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size, (hidden, rows) in SIZES.items():
        if wanted not in size:
            continue
        for schedule, peer, *steps in (*deepseek(hidden, rows), *pytorch(hidden, rows)):
            (theirs, their_work), (ours, our_work), (alone, _) = measure(steps, rounds)
            if dist.get_rank() == 0:
                print(f"{schedule}, {size}, {dist.get_world_size()} ranks, ms: {peer} {compared(theirs, ours)}; "
                      f"ratio to the passes alone {ratios(theirs, alone)}; "
                      f"processor time {compared(their_work, our_work)}", flush=True)


def main():
    folder, ranks, rounds, size = (sys.argv[1:] + ["2", "10", ""][len(sys.argv) - 2:])[:4]
    if "RANK" in os.environ:
        sys.path.insert(0, folder)
        sys.path.append(str(pathlib.Path(__file__).parents[2] / "gpu/run"))
        return one_rank(int(rounds), size)
    results = launch(os.path.abspath(__file__), int(ranks), [folder, ranks, rounds, size], seconds=3000)
    for status, output in results:
        sys.stdout.write(output)
    return next((status or 1 for status, _ in results if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
