"""One of two ranks. Writes the trace and the costs of a run. usage: traced.py FOLDER"""

import sys

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch

dist.init_process_group("gloo")
for name, microbatches in (("zb-h1", 4), ("dualpipe", 4), ("decode", 4)):
    program = dps.compile(dps.schedule(name), ranks=2, microbatches=microbatches)
    stages = [nn.Linear(64, 64) for _ in program.rank(dist.get_rank()).chunks]
    pipeline = dps.torch.Pipeline(program, stages, nn.functional.mse_loss)
    rows = max(len(pipeline.plan.given), len(pipeline.plan.ends))
    x = torch.randn(8 * rows, 64)
    for _ in range(6):
        pipeline.step(*[x] if pipeline.plan.given else [], target=x if pipeline.plan.ends else None)
    pipeline.trace(f"{sys.argv[1]}/{name}.json")
    pipeline.profile(f"{sys.argv[1]}/{name}.costs")
dist.barrier()
