"""One of three ranks. In a second step, the stage of rank 1 gives outputs of another dtype, or another number of them.
Prints what step() raises."""

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch

CHANGES = {"dtype": lambda y: y.double(), "more": lambda y: (y, y), "none": lambda y: ()}


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
        pipeline = dps.torch.Pipeline(program, [module], nn.functional.mse_loss)
        pipeline.step(x, target=x)
        module.change = change if rank == 1 else None
        try:
            pipeline.step(x, target=x)
            print(f"{how}: no failure", flush=True)
        except Exception as error:
            print(f"{how}: {type(error).__name__}: {error}", flush=True)
        dist.barrier()


main()
