"""One of three ranks. Rank 1 makes mistakes before the ranks are connected, and then ends; rank 0, which holds the
store, dies in a step. Prints what the constructor or step() raises."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch

SHORT, LONG = 4, 100  # seconds; SHORT: for a process that makes no Pipeline


def pipeline(stages=1, group=None, patience=LONG, **numbers):
    program = dps.compile(dps.schedule("1f1b"), **{"ranks": dist.get_world_size(group), "microbatches": 4, **numbers})
    return dps.torch.Pipeline(program, [nn.Linear(4, 4)] * stages, nn.functional.mse_loss, group, patience=patience)


def say(how, function):
    try:
        function()
        print(f"{how}: no failure")
    except Exception as error:
        print(f"{how}: {type(error).__name__}: {error}", flush=True)


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    dist.init_process_group("gloo")
    rank, ends = dist.get_rank(), dist.new_group([0, 2])
    say("stages", lambda: pipeline(stages=2 if rank == 1 else 1))
    say("ranks", lambda: pipeline(ranks=2 if rank == 1 else 3))
    say("program", lambda: pipeline(microbatches=6 if rank == 1 else 4))
    dist.barrier()
    if rank == 1:
        sys.exit()
    say("ended", lambda: pipeline(patience=SHORT))
    made, x = pipeline(group=ends), torch.linspace(0, 1, 32).reshape(8, 4)
    made.step(x, target=x)
    if rank == 0:
        made.modules[0].register_forward_hook(kill)
    say("store", lambda: made.step(x, target=x))


main()
