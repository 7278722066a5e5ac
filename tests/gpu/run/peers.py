"""What others reach on this GPU, for the figures of `speed` and `overlap` (without a GPU: on the CPU, to test this):

    python3 peers.py [--small] [--mode=MODE] PART...

Parts: `ceilings` (a large product and a copy), `layers` (F, I and W of the layer of a GPT that `overlap` measures, by
PyTorch with scaled_dot_product_attention and gradients summed in float32: eagerly, by torch.compile with MODE, and as
a CUDA graph), `attention` (each of its back ends). Each prints a name, a value and a unit per line. Times are medians
over ROUNDS rounds of several calls each; in a round all ways run in turn."""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS, CALLS, WARM = 11, 5, 3
PEAK = 989.4  # TFLOP/s of an H100 SXM in bfloat16, from NVIDIA's datasheet
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
LAYERS = ((256, 512), (512, 2048), (1024, 2048), (2048, 2048), (4096, 4096))  # hidden, sequence: as in overlap.c
ATTENTIONS = ((1, 4096, 32, 128), (4, 2048, 16, 128), (1, 16384, 16, 128), (4, 2048, 32, 64))  # as in speed.c


def times_of(ways):
    """Seconds of a call of each way (name -> function): medians."""
    times = {name: [] for name in ways}
    for way in ways.values():
        for _ in range(WARM):
            way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            if GPU:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
            began = time.perf_counter()
            for _ in range(CALLS):
                way()
            if GPU:
                end.record()
                end.synchronize()
                times[name].append(begin.elapsed_time(end) * 1e-3 / CALLS)
            else:
                times[name].append((time.perf_counter() - began) / CALLS)
    return {name: statistics.median(each) for name, each in times.items()}


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def ceilings(small):
    n = 256 if small else 8192
    a, b = random(n, n), random(n, n)
    from_, to = random(1 << 20 if small else 1 << 31), random(1 << 20 if small else 1 << 31)
    times = times_of({"product": lambda: a @ b, "copy": lambda: to.copy_(from_)})
    print(f"peer.product.{n} {2e-12 * n**3 / times['product']:.1f} TFLOP/s")
    print(f"peer.copy {2e-12 * from_.nbytes / times['copy']:.2f} TB/s")


class Layer(torch.nn.Module):
    """A pre-norm block: attention, then an MLP four times as wide."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
        self.qkv, self.project = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.up, self.down = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        rows, sequence, hidden = x.shape
        q, k, v = (part.view(rows, sequence, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).split(hidden, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.project(mixed)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def add_to_sum(parameter):
    parameter.sum.add_(parameter.grad)
    parameter.grad = None


def layers(small, mode):
    for hidden, sequence in ((128, 64),) if small else LAYERS:
        layer = Layer(hidden, hidden // 128).to(DEVICE, torch.bfloat16)
        for parameter in layer.parameters():
            parameter.sum = torch.zeros_like(parameter, dtype=torch.float32)
            parameter.register_post_accumulate_grad_hook(add_to_sum)
        x, dy = random(1, sequence, hidden).requires_grad_(), random(1, sequence, hidden)

        def step(forward):
            x.grad = None
            forward(x).backward(dy)

        compiled = torch.compile(layer, mode=mode)
        ways = {"eager": lambda: step(layer), "compiled": lambda: step(compiled)}
        if GPU:
            for _ in range(WARM):
                step(compiled)
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM):
                    step(compiled)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                step(compiled)
            ways["graph"] = graph.replay
        operations = 3e-12 * sequence * hidden * (24 * hidden + 2 * sequence)
        for name, seconds in times_of(ways).items():
            print(f"peer.fb.{hidden}.{name} {seconds * 1e6:.1f} us")
            print(f"peer.fb.{hidden}.{name}.rate {operations / seconds:.1f} TFLOP/s")
            print(f"peer.fb.{hidden}.{name}.mfu {operations / seconds / PEAK:.3f} of_{PEAK}_TFLOP/s", flush=True)


def attention(small):
    for samples, sequence, heads, width in ((1, 128, 1, 64),) if small else ATTENTIONS:
        operations = 1e-12 * samples * sequence**2 * heads * width
        q, k, v = (random(samples, heads, sequence, width).requires_grad_() for _ in range(3))
        dy = random(samples, heads, sequence, width)
        name = f"{samples}x{sequence}x{heads}x{width}"
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            with sdpa_kernel(backend):
                try:
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                except RuntimeError as error:
                    print(f"peer.attention.{name}.{backend.name}: {str(error).splitlines()[0]}", file=sys.stderr)
                    continue
                times = times_of({
                    "forward": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                    "backward": lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)})
            for pass_, factor in (("forward", 2), ("backward", 5)):
                print(f"peer.attention.{pass_}.{name}.{backend.name.split('_')[0].lower()} "
                      f"{factor * operations / times[pass_]:.1f} TFLOP/s", flush=True)


def main():
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    small, mode = "--small" in options, next((o[7:] for o in options if o.startswith("--mode=")), None)
    for part in sys.argv[1:]:
        if part == "ceilings":
            ceilings(small)
        elif part == "layers":
            layers(small, mode)
        elif part == "attention":
            attention(small)
        elif part not in options:
            sys.exit(f"peers.py: there is no part {part}: ceilings, layers, attention")


main()
