"""One of three ranks. In a second step, the stage of rank 1 gives other outputs, rank 1 alone has forgotten the shapes,
or rank 0 gives step() a wrong argument. Prints what step() raises."""

import time

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch

CHANGES = {"dtype": lambda y: y.double(), "more": lambda y: (y, y), "none": lambda y: (),
           "frozen": lambda y: y.detach(), "both": lambda y: torch.cat([y, y[:, :1]], 1).double(), "one": None,
           "argument": None}
LONG = 300  # seconds; no failure here needs a limit


class Changing(nn.Linear):
    """A linear stage. `change`, if set, makes its outputs from the output of the layer."""

    change = None

    def forward(self, x):
        y = super().forward(x)
        return self.change(y) if self.change else y


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    program = dps.compile(dps.schedule("1f1b"), ranks=3, microbatches=4)
    x = torch.linspace(0, 1, 32).reshape(8, 4)
    for how, change in CHANGES.items():
        module = Changing(4, 4)
        pipeline = dps.torch.Pipeline(program, [module], nn.functional.mse_loss, deadline=LONG / 10, patience=LONG)
        pipeline.step(x, target=x)
        module.change, begun = change if rank == 1 else None, time.monotonic()
        if how == "one" and rank == 1:
            pipeline.forget_shapes()
        try:
            pipeline.step(x[:3] if how == "argument" and rank == 0 else x, target=x)
            print(f"{how}: no failure", flush=True)
        except Exception as error:
            print(f"{how}: {type(error).__name__}: {error}", flush=True)
        assert time.monotonic() - begun < LONG / 2, how
        dist.barrier()


main()
