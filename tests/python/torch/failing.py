"""One of three ranks whose steps fail on rank 1 in several ways. Prints what step() raises. With --fake, they
compute as on a GPU, with messages through NCCL (fake.py)."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch
import fake

# Seconds. SHORT is for the failures that are noticed only then:
# - patience: a rank stays in a pass;
# - deadline: a rank dies while messages go through the fake of NCCL (--fake).
# LONG is for all other failures. They must end the step long before it.
SHORT, LONG = 6, 100
FAKE = "--fake" in sys.argv


class Failing(nn.Module):
    """Fails in its seventh forward, which is the third of the second step."""

    def __init__(self, how):
        super().__init__()
        self.how, self.calls, self.layer = how, 0, nn.Linear(4, 4)
        self.others_ended = None  # a function: whether ranks 0 and 2 have seen the failure

    def forward(self, x):
        self.calls += 1
        if self.calls == 7:
            if self.how == "raises":
                raise ArithmeticError("this stage does not like its seventh microbatch")
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "stays":
                while not self.others_ended():
                    time.sleep(0.1)
            if self.how == "shape":
                return self.layer(x)[:1]
        return self.layer(x)


def fail(how, steps):
    rank = dist.get_rank()
    program = dps.compile(dps.schedule("1f1b"), ranks=dist.get_world_size(), microbatches=4)
    module = Failing(how) if rank == 1 else nn.Linear(4, 4)
    pipeline = dps.torch.Pipeline(program, [module], nn.functional.mse_loss,
                                  deadline=SHORT if how == "dies" and FAKE else LONG,
                                  patience=SHORT if how == "stays" else LONG)
    ended = pipeline._store.part(how)
    module.others_ended = lambda: ended.add("ended", 0) == 2
    x = torch.linspace(0, 1, 32).reshape(8, 4)
    pipeline.step(x, target=x)
    started = time.monotonic()
    for _ in range(steps):
        try:
            pipeline.step(x, target=x)
            print(f"{how}: no failure")
        except Exception as error:
            print(f"{how}: {type(error).__name__}: {error}", flush=True)
    if time.monotonic() - started > LONG / 2:
        print(f"{how}: too late", flush=True)
    if rank != 1:
        ended.add("ended", 1)
    return module.others_ended


def refuse(_chunk, _module):
    raise ArithmeticError("rank 1 does not like its gradients")


def fail_before_tied():
    """Rank 1 fails when the other ranks already wait for the sum of a tied parameter."""
    rank = dist.get_rank()
    program = dps.compile(dps.schedule("1f1b"), ranks=dist.get_world_size(), microbatches=4)
    module, unused = nn.Linear(4, 4), nn.Parameter(torch.ones(4))
    module.unused = unused
    pipeline = dps.torch.Pipeline(program, [module], nn.functional.mse_loss, deadline=LONG, patience=LONG,
                                  tied=[(unused, dist.new_group())])
    x = torch.linspace(0, 1, 32).reshape(8, 4)
    pipeline.step(x, target=x)
    assert torch.equal(unused.grad, torch.zeros(4)), unused.grad
    pipeline.gradient_ready = refuse if rank == 1 else None
    try:
        pipeline.step(x, target=x)
        print("tied: no failure")
    except Exception as error:
        print(f"tied: {type(error).__name__}: {error}", flush=True)


def main():
    dist.init_process_group("gloo")
    if FAKE:
        fake.install("random")
    for how, steps in (("shape", 1), ("raises", 2), ("stays", 1), ("dies", 1)):
        dist.barrier()
        others_ended = fail(how, steps)
        if how == "shape":
            fail_before_tied()
    while dist.get_rank() == 0 and not others_ended():
        time.sleep(0.1)  # rank 0 hosts the store, so it must end last


main()
