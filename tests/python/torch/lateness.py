"""One rank. Trains under schedules on the fake GPU (fake.py): first with no lateness, then once with all as late as it
may be, and RUNS times with random lateness. Losses and gradients must have the same bits.

usage: lateness.py RUNS CASE...   a case is SCHEDULE:RANKS:MICROBATCHES"""

import sys
import unittest.mock

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch
import fake


def stage(number):
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def bits(pipeline, x, y):
    """The bytes of the losses and gradients of a step."""
    for parameter in pipeline.parameters():
        parameter.grad = None
    losses, _ = pipeline.step(*[x] if pipeline.plan.given else [], target=y if pipeline.plan.ends else None)
    found = [] if losses is None else [losses]
    assert not fake.changed, "a tensor has changed before it was sent"
    return b"".join(t.numpy().tobytes() for t in (*found, *(p.grad for p in pipeline.parameters())))


def run(name, ranks, microbatches, runs, group):
    program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=microbatches)
    fake.install("early")
    pipeline = dps.torch.Pipeline(program, stage, nn.functional.mse_loss, group, deadline=60, patience=120, tied=[])
    x, y = pipeline.share(*torch.randn(2, 2 * microbatches, 4, generator=torch.Generator().manual_seed(1)))
    first = bits(pipeline, x, y)
    for number in range(runs + 1):
        fake.install("late" if number == 0 else "random")
        fake.lateness.seed(f"{name} {number} {dist.get_rank()}")
        assert bits(pipeline, x, y) == first, f"{name}: run {number} gives other bits"
        if number == 0:
            early, every = fake.waited
            assert early or not every, f"{name}: the host waited for each of {every} receives"
            fake.waited[:] = 0, 0
            times = pipeline._order.seconds(pipeline._recorded[-1][1])
            assert all(end - start > 0.9 * fake.LATE for start, end in zip(times, times[1:])), times


def captured(ranks, group):
    """A step with messages is not captured."""
    program = dps.compile(dps.schedule("1f1b"), ranks=ranks, microbatches=ranks)
    pipeline = dps.torch.Pipeline(program, stage, group=group)
    with unittest.mock.patch.object(fake.Cuda, "captures", return_value=True):
        try:
            pipeline.step()
            raise AssertionError("no failure")
        except (dps.UsageError, dps.torch.PipelineError) as error:
            assert "cannot be captured as a CUDA graph" in str(error), error


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    groups = {ranks: dist.new_group(range(ranks)) for ranks in range(1, dist.get_world_size() + 1)}
    for case in sys.argv[2:]:
        name, ranks, microbatches = case.split(":")
        if dist.get_rank() < int(ranks):
            run(name, int(ranks), int(microbatches), int(sys.argv[1]), groups[int(ranks)])
            captured(int(ranks), groups[int(ranks)])
        dist.barrier()


main()
