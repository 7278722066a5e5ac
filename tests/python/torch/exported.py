"""One rank. Trains with orders that dpc wrote (`--emit=torchtitan`) under PyTorch's own runtime, and compares the
gradients with those of the model without a pipeline. Arguments: SCHEDULE:MICROBATCHES."""

import copy
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.nn import functional as F

import dps
from near import is_near

WIDTH = 8


def train(name, microbatches):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=microbatches)
    numbers, count = [chunk.stage for chunk in program.rank(rank).chunks], program.stages
    torch.manual_seed(1)
    whole = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count))).double()
    x, y = torch.randn(2, 2 * microbatches, WIDTH, dtype=torch.float64)
    stages = [PipelineStage(copy.deepcopy(whole[s]), s, count, torch.device("cpu")) for s in numbers]
    schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=F.mse_loss)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(program.render("torchtitan"))
        file.flush()
        schedule._load_csv(file.name)
    schedule.step(*[x] * (0 in numbers), **({"target": y} if count - 1 in numbers else {}))
    F.mse_loss(whole(x), y).backward()
    for stage in stages:
        for made, wanted in zip(stage.submod.parameters(), whole[stage.stage_index].parameters()):
            assert is_near(made.grad, wanted.grad), f"{name}: stage {stage.stage_index}"
    if rank == 0:
        print(f"{name}: equal", flush=True)


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for argument in sys.argv[1:]:
        name, microbatches = argument.split(":")
        train(name, int(microbatches))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
