"""One of the processes of a run, of which two run at once on the same machines. Each run sends its own number through
the pipeline; the last stage says which numbers it has received.

    two_runs.py NUMBER"""

import sys

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch


class Shows(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number, self.weight, self.received = number, nn.Parameter(torch.ones(())), set()

    def forward(self, x):
        self.received.add(x.mean().item())
        return x * self.weight


def main():
    dps.torch.start()
    program = dps.compile(dps.schedule("1f1b"), ranks=dist.get_world_size(), microbatches=4)
    pipeline = dps.torch.Pipeline(program, Shows, lambda y, target: (y - target).sum())
    x = torch.full((4, 3), float(sys.argv[1]))
    given, target = pipeline.share(x, x)
    for _ in range(3):
        pipeline.step(*[given] if given else [], target=target)
    if target is not None:
        print(f"run {sys.argv[1]} received {pipeline.modules[0].received}", flush=True)


main()
