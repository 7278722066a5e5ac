"""Measures a step of DualPipe's example model under dps.torch and under DeepSeek's own class, in turn:

    python3 peers.py FOLDER [ranks]     # FOLDER: a copy of github.com/deepseek-ai/DualPipe

Prints the median time of a step of both, and theirs over ours, for a small and a large model."""

import os
import sys
import time
from statistics import median

from launch import launch

ROUNDS, CHUNKS = 10, 20
SIZES = {"hidden 128, 64 rows": (128, (1, 64)), "hidden 512, 3 x 256 rows": (512, (3, 256))}


def make_stage(hidden, store):
    """A stage of DualPipe's example. Its layers defer their weight gradients to `store`."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            context.save_for_backward(x, weight)
            return torch.nn.functional.linear(x, weight)

        @staticmethod
        def backward(context, dy):
            x, weight = context.saved_tensors
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad

            def gradient_of_weight():
                weight.grad += dy.flatten(0, -2).T @ x.flatten(0, -2)
            store.put(gradient_of_weight) if store.enabled else gradient_of_weight()
            return dy @ weight, None

    class Linear(torch.nn.Linear):
        def forward(self, x):
            return Product.apply(x, self.weight)

    return torch.nn.Sequential(Linear(hidden, 4 * hidden, bias=False), torch.nn.GELU(),
                               Linear(4 * hidden, hidden, bias=False))


def criterion(y, target):
    import torch

    return torch.nn.functional.mse_loss(y, target).clone()


def steps_of(hidden, rows):
    """Functions that run a step: of DeepSeek's class, and the same step of ours."""
    import dualpipe
    import dualpipe.comm
    import torch
    import torch.distributed as dist

    import dps.torch

    # DeepSeek's class is written for GPUs.
    torch.cuda.current_device = lambda: "cpu"
    dualpipe.comm.build_from_tensor_shapes = lambda: [torch.empty(*rows, hidden, requires_grad=True)]
    dualpipe.set_p2p_tensor_shapes([(*rows, hidden)])
    dualpipe.set_p2p_tensor_dtype(torch.float32)
    has_data = dist.get_rank() in (0, dist.get_world_size() - 1)
    x, target = torch.randn(2, CHUNKS // 2 * rows[0], *rows[1:], hidden) if has_data else (None, None)
    for kind, store in ((dualpipe.DualPipe, dualpipe.utils.WeightGradStore),
                        (dps.torch.DualPipe, dps.torch.WeightGradStore)):
        pipe = kind([make_stage(hidden, store), make_stage(hidden, store)])
        yield lambda pipe=pipe: pipe.step(x, num_chunks=CHUNKS, criterion=criterion, labels=[target])


def one_rank():
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name, size in SIZES.items():
        theirs, ours = steps_of(*size)
        times = {theirs: [], ours: []}
        for _ in range(2 + ROUNDS):
            for step, spent in times.items():
                dist.barrier()
                began = time.perf_counter()
                step()
                dist.barrier()
                spent.append(time.perf_counter() - began)
        theirs, ours = (median(spent[2:]) * 1000 for spent in times.values())
        if dist.get_rank() == 0:
            print(f"{name}, {dist.get_world_size()} ranks: DeepSeek {theirs:.1f} ms, dps.torch {ours:.1f} ms, "
                  f"ratio {theirs / ours:.2f}", flush=True)


def main():
    if "RANK" in os.environ:
        sys.path.insert(0, sys.argv[1])
        return one_rank()
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    results = launch(os.path.abspath(__file__), ranks, sys.argv[1:2], seconds=500)
    for status, output in results:
        sys.stdout.write(output)
    return next((status or 1 for status, _ in results if status != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
