"""One of four ranks. The copies of a stage, and the replicas of a pipeline, begin with the parameters and buffers of
the first of their processes, to the bit. Copies with different shapes are refused on the ranks that have them. A
replica that makes no Pipeline is missed at the deadline."""

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch


class Stage(nn.Module):
    """A stage with tensors of many kinds, which differ from process to process."""

    def __init__(self, width=4):
        super().__init__()
        torch.manual_seed(dist.get_rank())
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.short = nn.Parameter(torch.randn(3, 2).to(torch.bfloat16).t())
        self.frozen = nn.Parameter(torch.tensor(0.0 if dist.get_rank() else -0.0), requires_grad=False)
        self.empty = nn.Parameter(torch.zeros(0, 5))
        self.register_buffer("mask", torch.rand(7) < 0.5)
        self.register_buffer("turns", torch.full((2,), 1j * dist.get_rank()))
        self.norm.num_batches_tracked += dist.get_rank()

    def forward(self, x):
        return self.norm(self.linear(x))


def bytes_of(module):
    tensors = [*module.parameters(), *module.buffers()]
    return b"".join(t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors)


def begun(name, ranks, **options):
    """For each process, {stage: the bytes of this process's copy}."""
    program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=8)
    pipeline, found = dps.torch.Pipeline(program, lambda _: Stage(), **options), [None] * 4
    stages = [chunk.stage for chunk in program.rank(pipeline.rank).chunks]
    dist.all_gather_object(found, {s: bytes_of(module) for s, module in zip(stages, pipeline.modules)})
    return found


def main():
    dist.init_process_group("gloo")
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    replica, place = divmod(dist.get_rank(), 2)

    outer, inner, again, last = begun("dualpipe", 4)  # ranks 0 and 3 have stages 0 and 3, ranks 1 and 2 stages 1 and 2
    assert outer == last and inner == again and outer[0] != inner[1]

    found = begun("1f1b", 2, group=pipelines[replica], replicate_group=replicas[place])
    assert found[0] == found[2] and found[1] == found[3] and found[0][0] != found[1][1]

    apart = begun("dualpipe", 4, sum_copies=False)
    assert apart[0] != apart[3]

    program = dps.compile(dps.schedule("dualpipe"), ranks=4, microbatches=8)
    try:
        dps.torch.Pipeline(program, lambda stage: Stage(5 if stage == 3 and dist.get_rank() == 0 else 4))
    except dps.UsageError as error:
        print(error, flush=True)
    dist.barrier()

    if replica == 0:
        program = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=8)
        try:
            dps.torch.Pipeline(program, lambda _: Stage(), group=pipelines[0], replicate_group=replicas[place],
                               patience=1)
        except dps.torch.PipelineError as error:
            print(error, flush=True)
    dist.barrier()


main()
