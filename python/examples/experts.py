"""Trains a small transformer with experts under DualPipeV, with the overlap of its F&Bs and in turn.

    mpirun -n 4 python3 experts.py [--steps N] [--folder FOLDER]
    torchrun --nproc_per_node 4 experts.py [--steps N] [--folder FOLDER]

The processes are two pipelines of two ranks. The processes of both that have the same rank share the experts of its
layers, one expert each: dispatch sends tokens to the process of their expert, and combine sends the results back. Both
runs give the same losses, to the bit. A trace of each is written; `dpc diff` shows its components, and how much of
their communication was hidden."""

import argparse
import json
import pathlib
import re

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dps
import dps.torch

LAYERS, WIDTH, HEADS, CONTEXT, MICROBATCHES, RANKS, EXPERTS = 8, 64, 4, 32, 6, 2, 2


class Layer(nn.Module):
    """A layer with EXPERTS experts, of which this process has one. `group`: the processes that share them."""

    def __init__(self, number, group):
        super().__init__()
        torch.manual_seed(number)
        self.group, self.norm1, self.norm2 = group, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        torch.manual_seed(1000 * number + dist.get_rank(group))
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attention(self, x):
        rows, length, _ = x.shape
        heads = self.query_key_value(self.norm1(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).masked_fill(future, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH))
        tokens = self.norm2(x).flatten(0, 1)
        share, expert = self.router(tokens).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        return tokens[order], expert.bincount(minlength=EXPERTS).tolist(), order, share, x

    def dispatch(self, tokens, to_each, order, share, x):
        tokens, from_each = dps.torch.all_to_all(tokens, to_each, group=self.group)
        return tokens, from_each, to_each, order, share, x

    def mlp(self, tokens, *others):
        return self.expert(tokens), *others

    def combine(self, tokens, from_each, to_each, order, share, x):
        tokens, _ = dps.torch.all_to_all(tokens, from_each, to_each, self.group)
        return x + (share[:, None] * tokens[order.argsort()]).view_as(x)

    def components(self):
        return {name: getattr(self, name) for name in ("attention", "dispatch", "mlp", "combine")}


class Embedding(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        torch.manual_seed(100)
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))


def make_stage(number, stages, vocabulary, group):
    share = LAYERS // stages
    parts = [Layer(layer, group).components() for layer in range(number * share, (number + 1) * share)]
    if number == 0:
        parts.insert(0, Embedding(vocabulary))
    if number == stages - 1:
        torch.manual_seed(101)
        parts.append(nn.Linear(WIDTH, vocabulary))
    return dps.torch.layers(parts)


def text():
    """The characters of this file as numbers 0, 1, ..., and how many different characters there are."""
    characters = pathlib.Path(__file__).read_text()
    kinds = sorted(set(characters))
    return torch.tensor([kinds.index(character) for character in characters]), len(kinds)


def loss_of(scores, target):
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def hidden_share(path):
    """The share of the time of all-to-alls in F&Bs for which no rank waited."""
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "all-to-all"]
    return 1 - sum(e["args"]["waited"] for e in events) / sum(e["dur"] for e in events) if events else 0


def train(name, schedule, groups, options):
    pipelines, sharing = groups
    tokens, vocabulary = text()
    program = dps.compile(schedule, ranks=RANKS, microbatches=MICROBATCHES)
    rank = dist.get_rank(pipelines)
    stages = [make_stage(chunk.stage, program.stages, vocabulary, sharing) for chunk in program.rank(rank).chunks]
    # what is not an expert has a copy in both pipelines, whose gradients are summed
    copies = [p for stage in stages for path, p in stage.named_parameters() if ".expert." not in path]
    pipeline = dps.torch.Pipeline(program, stages, loss_of, pipelines, tied=[(p, sharing) for p in copies],
                                  loss_scale=1 / (MICROBATCHES * EXPERTS))
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(dist.get_rank(sharing))  # each pipeline has data of its own
    for step in range(options.steps):
        begin = torch.randint(0, len(tokens) - CONTEXT - 1, (2 * MICROBATCHES,), generator=random)
        x, y = pipeline.share(*(torch.stack([tokens[b + d:b + d + CONTEXT] for b in begin]) for d in (0, 1)))
        optimizer.zero_grad()
        losses, _ = pipeline.step(*[x] if x else [], target=y)
        optimizer.step()
        if losses is not None and dist.get_rank() == 0 and (step + 1) % max(1, options.steps // 5) == 0:
            print(f"{name}: step {step + 1}, loss {losses.mean().item():.9f}", flush=True)
    path = options.folder / f"{name}{dist.get_rank(sharing)}.json"
    pipeline.trace(path)
    if dist.get_rank() == 0:
        print(f"{name}: {100 * hidden_share(path):.0f} % of the communication in F&Bs is hidden", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    options = options.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    dps.torch.start()
    torch.set_num_threads(1)
    me = dist.get_rank()
    pipelines = [dist.new_group([0, 1]), dist.new_group([2, 3])][me // 2]
    sharing = [dist.new_group([0, 2]), dist.new_group([1, 3])][me % 2]
    overlapped = dps.schedule("dualpipev").read_text()
    in_turn = re.sub(r"overlap F&B \{.*?\n\}", "", overlapped, flags=re.S)
    for name, schedule in (("overlapped", overlapped), ("in-turn", in_turn)):
        train(name, schedule, (pipelines, sharing), options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
