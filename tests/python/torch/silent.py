"""One of three ranks. First, a rank is busy for longer than the deadline: in a pass of the first step, and between two
steps. That ends no step. Then the process of each rank in turn is stopped (SIGSTOP), in a step and
between steps. The other ranks print what step() raises, and the last of them lets the process go on.

    silent.py FOLDER WAYS   an empty folder, where ranks say that they have noticed; how processes are stopped, such as
                            "0 in a step" """

import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch

DEADLINE, BUSY, PATIENCE = 4, 6, 300  # seconds
SCHEDULE = dps.schedule("interleaved-1f1b")


class Stage(nn.Linear):
    before = None  # called before the next forward

    def forward(self, x):
        before, self.before = self.before, None
        if before:
            before()
        return super().forward(x)


def made():
    program = dps.compile(SCHEDULE, ranks=3, microbatches=6)
    return dps.torch.Pipeline(program, lambda _stage: Stage(4, 4), nn.functional.mse_loss, deadline=DEADLINE,
                              patience=PATIENCE)


def step(pipeline, x):
    given, target = pipeline.share(x, x)
    return pipeline.step(*[given] if given else [], target=target)


def busy(rank, x):
    pipeline = made()
    pipeline.modules[0].before = (lambda: time.sleep(BUSY)) if rank == 1 else None
    step(pipeline, x)
    if rank == 2:
        time.sleep(BUSY)
    step(pipeline, x)
    print("busy: 2 steps", flush=True)


def stopped(how, rank, x, processes, folder):
    victim, inside = int(how[0]), how.endswith("in a step")
    pipeline = made()
    step(pipeline, x)

    def stop():
        os.kill(os.getpid(), signal.SIGSTOP)

    if rank == victim and not inside:
        stop()
    pipeline.modules[0].before = stop if rank == victim and inside else None
    begun = time.monotonic()
    try:
        step(pipeline, x)
        print(f"{how}: no failure", flush=True)
    except dps.torch.PipelineError as error:
        print(f"{how}: {error}", flush=True)
    if rank != victim:
        if time.monotonic() - begun > PATIENCE / 2:
            print(f"{how}: too late", flush=True)
        (folder / f"{how} {rank}").touch()
        if len(list(folder.glob(f"{how} *"))) == 2:
            os.kill(processes[victim], signal.SIGCONT)


def main():
    dist.init_process_group("gloo")
    rank, x, folder = dist.get_rank(), torch.linspace(0, 1, 48).reshape(12, 4), pathlib.Path(sys.argv[1])
    processes = torch.zeros(3, dtype=torch.int64)
    processes[rank] = os.getpid()
    dist.all_reduce(processes)
    busy(rank, x)
    for how in sys.argv[2:]:
        stopped(how, rank, x, processes.tolist(), folder)


main()
