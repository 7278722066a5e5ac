"""Two processes of dps.torch on one GPU (without one: on the CPU), for torchrun: the losses and gradients of a step are
those of the modules alone. With the argument `kill`, rank 1 dies in the second step: rank 0 must fail, and in time."""

import faulthandler
import os
import signal
import sys

os.environ["NCCL_HOSTID"] = os.environ["RANK"]  # before NCCL starts: it takes two processes on one GPU for two machines

import torch
import torch.distributed as dist

import dps
import dps.torch

faulthandler.dump_traceback_later(40, exit=True)  # where it hangs
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cuda.matmul.allow_tf32 = False


def stage(number):
    torch.manual_seed(number)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()).to(device)


dist.init_process_group("nccl" if device == "cuda" else "gloo")
batch = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(9)).to(device)
for name in ("1f1b", "dualpipev"):
    program = dps.compile(dps.schedule(name), ranks=2, microbatches=8)
    pipeline = dps.torch.Pipeline(program, stage, loss_fn=torch.nn.functional.mse_loss, deadline=20)
    x, y = pipeline.share(*batch)
    pipeline.step(x, target=y)
    if "kill" in sys.argv:
        if dist.get_rank() == 1:
            for module in pipeline.modules:
                module.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        pipeline.step(x, target=y)
        sys.exit(0)
    pipeline.trace(os.devnull)
    alone = [stage(number) for number in range(program.stages)]
    torch.nn.functional.mse_loss(torch.nn.Sequential(*alone)(batch[0]), batch[1]).backward()
    for chunk, module in zip(program.rank(dist.get_rank()).chunks, pipeline.modules):
        for own, other in zip(module.parameters(), alone[chunk.stage].parameters()):
            torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-7)
    if device == "cuda":
        counts = []
        for _ in range(6):
            pipeline.step(x, target=y)
            counts.append(torch.cuda.memory_stats().get("num_device_alloc"))
        assert counts[-1] == counts[2], f"{name}: later steps take new memory of the GPU: {counts}"
dist.destroy_process_group()
