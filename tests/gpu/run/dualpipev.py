"""What dps.torch adds to the passes of a step: dualpipev with 8 microbatches on one rank, 33 passes, on a GPU (without
one: on the CPU), beside the passes alone and DeepSeek's DualPipeV; on a GPU also as a CUDA graph. For one process:

    python3 dualpipev.py [--small] [FOLDER]     # FOLDER: a copy of github.com/deepseek-ai/DualPipe

Prints a name, a value and a unit per line, medians over ROUNDS rounds in which all ways run in turn: the time of a
step, of which `host` is the time until the call returns, and what the way adds to the passes alone."""

import os
import statistics
import sys
import time
from functools import partial

import torch
import torch.distributed as dist

import dps.torch

CHUNKS, PASSES, ROUNDS, WARM = 8, 33, 25, 5
GPU = torch.cuda.is_available()
DEVICE, TYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)


def make_stage(hidden, store=None):
    """A stage of DualPipe's example. With a store its layers defer their weight gradients to it."""
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
            return Product.apply(x, self.weight) if store else super().forward(x)

    return torch.nn.Sequential(Linear(hidden, 4 * hidden, bias=False), torch.nn.GELU(),
                               Linear(4 * hidden, hidden, bias=False))


def criterion(y, target):
    return torch.nn.functional.mse_loss(y, target).clone()


def alone(modules, x, target):
    for part, goal in zip(x.chunk(CHUNKS), target.chunk(CHUNKS)):
        y = modules[0](part.detach().requires_grad_())
        given = y.detach().requires_grad_()
        criterion(modules[1](given), goal).backward()
        y.backward(given.grad)


def ways(hidden, rows, folder, graph):
    """{name: (modules, function that runs a step)}. graph: only the passes alone and the step as a CUDA graph."""
    torch.manual_seed(0)
    x, target = torch.randn(2, CHUNKS, rows, hidden, device=DEVICE, dtype=TYPE)
    packages = {} if graph else {"dps": dps.torch}
    if folder:
        sys.path.insert(0, folder)
        import dualpipe
        if not GPU:
            torch.cuda.current_device = lambda: "cpu"
        dualpipe.set_p2p_tensor_shapes([(1, rows, hidden)])
        dualpipe.set_p2p_tensor_dtype(TYPE)
        packages["deepseek"] = dualpipe

    def made(store):
        torch.manual_seed(1)
        return [make_stage(hidden, store).to(DEVICE, TYPE) for _ in range(2)]

    modules = made(dps.torch.WeightGradStore)
    found = {"alone": (modules, partial(alone, modules, x, target))}
    for name, package in packages.items():
        modules = made(package.WeightGradStore)
        step = partial(package.DualPipeV(modules).step, x, num_chunks=CHUNKS, criterion=criterion, labels=[target])
        found[name] = modules, step
    if graph:
        found["graph"] = captured(dps.torch.DualPipeV(made(dps.torch.WeightGradStore)), x, target)
    return found


def captured(pipe, x, target):
    step = partial(pipe.step, x, num_chunks=CHUNKS, criterion=criterion, labels=[target])
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    for parameter in pipe.parameters():
        parameter.grad.zero_()
    with torch.cuda.graph(graph, stream=stream):  # the nodes that add gradients stay on the stream of the first steps
        step()
    return pipe.module, graph.replay


def synchronize():
    if GPU:
        torch.cuda.synchronize()


def measure(found):
    """{name: (us of a step, us until its call returns)}, medians."""
    times = {name: [] for name in found}
    for number in range(WARM + ROUNDS):
        for name, (modules, step) in list(found.items())[::1 if number % 2 else -1]:
            for parameter in (p for module in modules for p in module.parameters()):
                parameter.grad.zero_()
            synchronize()
            began = time.perf_counter()
            step()
            returned = time.perf_counter()
            synchronize()
            if number >= WARM:
                times[name].append([(end - began) * 1e6 for end in (time.perf_counter(), returned)])
    return {name: [statistics.median(each) for each in zip(*rows)] for name, rows in times.items()}


def check(found):
    """All ways must compute the same gradients."""
    gradients = {}
    for name, (modules, step) in found.items():
        step()
        gradients[name] = torch.cat([p.grad.float().flatten() for module in modules for p in module.parameters()])
    for name, gradient in gradients.items():
        apart = ((gradient - gradients["alone"]).norm() / gradients["alone"].norm()).item()
        if not apart < (2e-2 if GPU else 1e-5):
            sys.exit(f"dualpipev.py: the gradients of {name} differ from those of the passes alone by {apart:.1e}")


def report(place, times):
    bare, bare_host = times["alone"]
    for name, (whole, host) in times.items():
        print(f"{place}.{name} {whole:.0f} us")
        print(f"{place}.{name}.host {host:.0f} us")
        if name != "alone":
            print(f"{place}.{name}.ratio {whole / bare:.3f} of_the_passes")
            print(f"{place}.{name}.added {(whole - bare) / PASSES:.1f} us_a_pass")
            print(f"{place}.{name}.host_added {(host - bare_host) / PASSES:.1f} us_a_pass", flush=True)


def main():
    small, folder = "--small" in sys.argv, next((word for word in sys.argv[1:] if word != "--small"), None)
    os.environ.update(RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl" if GPU else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    sizes = ((16, 8), (128, 64)) if small else ((128, 256), (2048, 2048))
    for graph in (False, True) if GPU else (False,):
        for hidden, rows in sizes:
            found = ways(hidden, rows, None if graph else folder, graph)
            check(found)
            report(f"torch.dualpipev{'.captured' * graph}.{hidden}", measure(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
