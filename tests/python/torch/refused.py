"""Two ranks: what Pipeline and step() refuse, with words."""

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch


def refused(words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except dps.UsageError as error:
        assert words in str(error), f"{words!r} is not in: {error}"
    else:
        raise AssertionError(f"not refused: {words}")


def main():
    dist.init_process_group("gloo")
    program = dps.compile(dps.schedule("zb-v"), ranks=2, microbatches=4)
    two = [nn.Linear(4, 4), nn.Linear(4, 4)]
    refused("holds 2 stages", dps.torch.Pipeline, program, two[:1])
    larger = dps.compile(dps.schedule("zb-v"), ranks=4, microbatches=8)
    refused("compile it with ranks=2", dps.torch.Pipeline, larger, two)
    refused("each of the ranks 0 to 1 once", dps.torch.Pipeline, program, two, rank_mapping=[0, 0])
    refused("pipedream updates weights within the step", dps.torch.Pipeline,
            dps.compile(dps.schedule("pipedream"), ranks=2, microbatches=4), two[:1])
    pipeline = dps.torch.Pipeline(program, two, nn.functional.mse_loss)
    x = torch.randn(8, 4)
    if dist.get_rank() == 0:
        refused("needs their inputs", pipeline.step)
        refused("needs their target", pipeline.step, x)
        refused("does not cut into 4 microbatches", pipeline.step, x[:3], target=x)
        refused("is a list of 2 parts; this rank needs 4", pipeline.step, [x, x], target=x)
    losses, _ = pipeline.step(x, target=x)
    assert (losses is None) == (dist.get_rank() == 1)


main()
