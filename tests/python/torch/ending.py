"""One of two ranks, whose program ends while threads of gloo still hold what they have summed (late.c)."""

import atexit
import ctypes

# What is registered first runs last, so end_late() runs right before the interpreter ends, and it keeps the
# interpreter's lock. CPython ends a thread that asks for the lock meanwhile, and C++ then aborts the process.
late = ctypes.PyDLL(None)
atexit.register(late.end_late)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import dps  # noqa: E402
import dps.torch  # noqa: E402


def train():
    dps.torch.start()
    program = dps.compile(dps.schedule("dualpipe"), ranks=2, microbatches=4)
    modules = [nn.Linear(4, 4) for _ in program.rank(dist.get_rank()).chunks]
    unused, loss = nn.Parameter(torch.ones(4)), nn.MSELoss()
    loss.unused = unused
    pipeline = dps.torch.Pipeline(program, modules, loss, tied=[(unused, dist.new_group())])
    x, y = pipeline.share(*torch.linspace(0, 1, 64).reshape(2, 8, 4))
    late.begin_late()
    pipeline.step(x, target=y)
    pipeline.gradient_norm()
    for parameter in (*pipeline.parameters(), unused):
        parameter.grad = None
    return pipeline


pipeline = train()
