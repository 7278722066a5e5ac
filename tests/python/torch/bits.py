"""One of four ranks. Prints a hash of all losses and gradients under each of three schedules. A second Pipeline with
the same weights and batch gives the same bits, also if each gradient is the sum over four copies of a stage."""

import hashlib

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch


def stage(number):
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(33, 33), nn.GELU(), nn.Linear(33, 33))


def bits(name, ranks, **options):
    """The hash of the losses and gradients of two steps."""
    program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=8)
    pipeline, found = dps.torch.Pipeline(program, stage, nn.functional.mse_loss, **options), hashlib.sha256()
    torch.manual_seed(dist.get_rank() // ranks)  # each replica has its own batch
    given, target = pipeline.share(*torch.randn(2, 64, 33))
    for _ in range(2):
        losses, _ = pipeline.step(*[given] if given else [], target=target)
        for tensor in (*[losses] * (losses is not None), *(p.grad for p in pipeline.parameters())):
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    replica, place = divmod(dist.get_rank(), 2)
    two = {"group": pipelines[replica], "replicate_group": replicas[place]}
    for name, ranks, options in (("dualpipe", 2, two), ("zb-v", 4, {}), ("bitpipe", 4, {})):
        first, second = (bits(name, ranks, **options) for _ in range(2))
        assert first == second, f"{name}: two pipelines give different bits"
        print(name, first, flush=True)


main()
