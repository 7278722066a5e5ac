"""Trains a small GPT in PyTorch under DualPipe, ZB-V and a schedule of one's own, and writes a picture of each.

    mpirun -n 2 python3 gpt.py [--steps N] [--folder FOLDER]
    torchrun --nproc_per_node 2 gpt.py [--steps N] [--folder FOLDER]

The second command does the same, but not with Debian 12's own PyTorch, whose torchrun is broken.

All three train the same model on the same data, so their losses agree. ZB-V and DualPipe cut it into different numbers
of stages: a rank has two in both."""

import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dps
import dps.torch

LAYERS, WIDTH, HEADS, CONTEXT, MICROBATCHES = 4, 64, 4, 32, 8

OWN = """
schedule own;

ranks P = 2;
microbatches M = 8;

pipe a: P stages, stage s on s, M microbatches;

# 1F1B with one more forward at the start; each weight half runs right after its input half.
nF   : min(P-r+1, M);
nIWF : max(M-(P-r+1), 0);
nIW  : min(P-r+1, M);
"""


class Attention(nn.Module):
    """Attention made of layers, so that its backward runs in two halves. nn.MultiheadAttention has weights of its own,
    whose gradients the input half would compute as well."""

    def __init__(self):
        super().__init__()
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.query_key_value(x).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).masked_fill(future, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embedding(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))


def seeded(number, kind, *arguments):
    """Makes a part of the model, a `kind` with these arguments. Its weights depend only on `number`, so all ranks that
    make it have the same."""
    torch.manual_seed(number)
    return kind(*arguments)


def make_stage(number, stages, vocabulary):
    """The module of stage `number` of the model, which is cut into `stages` stages."""
    share = LAYERS // stages
    parts = [seeded(layer, Layer) for layer in range(number * share, (number + 1) * share)]
    if number == 0:
        parts.insert(0, seeded(100, Embedding, vocabulary))
    if number == stages - 1:
        parts += [nn.LayerNorm(WIDTH), seeded(101, nn.Linear, WIDTH, vocabulary)]
    return nn.Sequential(*parts)


def text():
    """The characters of this file as numbers 0, 1, ..., and how many different characters there are."""
    characters = pathlib.Path(__file__).read_text()
    kinds = sorted(set(characters))
    return torch.tensor([kinds.index(character) for character in characters]), len(kinds)


def loss_of(scores, target):
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def train(program, steps, folder):
    """Trains for `steps` steps. Prints the loss about five times, and writes the schedule's picture and the trace."""
    tokens, vocabulary = text()
    pipeline = dps.torch.Pipeline(program, lambda number: make_stage(number, program.stages, vocabulary), loss_of)
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(0)
    for step in range(steps):
        begin = torch.randint(0, len(tokens) - CONTEXT - 1, (2 * MICROBATCHES,), generator=random)
        x = torch.stack([tokens[b:b + CONTEXT] for b in begin])
        y = torch.stack([tokens[b + 1:b + CONTEXT + 1] for b in begin])
        optimizer.zero_grad()
        mine, target = pipeline.share(x, y)
        losses, _ = pipeline.step(mine, target=target)
        optimizer.step()
        total = torch.zeros(1) if losses is None else losses.sum().reshape(1)
        dist.all_reduce(total)
        if pipeline.rank == 0 and (step + 1) % max(1, steps // 5) == 0:
            print(f"{program.schedule}: step {step + 1}, loss {total.item() / MICROBATCHES:.3f}", flush=True)
    pipeline.trace(folder / f"{program.schedule}.json")
    if pipeline.rank == 0:
        (folder / f"{program.schedule}.svg").write_text(program.svg())


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    options = options.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    dps.torch.start()
    if dist.get_world_size() != 2:
        raise SystemExit(f"gpt.py runs on 2 ranks, not on {dist.get_world_size()}: mpirun -n 2 python3 gpt.py")
    torch.set_num_threads(1)
    for schedule in (dps.schedule("dualpipe"), dps.schedule("zb-v"), OWN):
        train(dps.compile(schedule, ranks=2, microbatches=MICROBATCHES), options.steps, options.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
