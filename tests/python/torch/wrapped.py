"""One of four ranks: two replicas of a pipeline of two ranks, each with half of the batch. Their stages are in
DistributedDataParallel, or fully_shard has divided their parameters. Three steps with an optimizer, one of them with
clipped gradients, give the parameters of the model without a pipeline that has the whole batch.

usage: wrapped.py ddp|fully_shard|older SCHEDULE...   older: fully_shard without finalize_backward()"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn

import dps
import dps.torch
from calls import refused
from models import Model
from near import difference

MICROBATCHES, CLIPPED = 4, 0.05


def wrap(kind, module, group):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(module, process_group=group)
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh = DeviceMesh.from_group(group, "cpu")
    fully_shard(next(module.children()), mesh=mesh)
    return fully_shard(module, mesh=mesh)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(parameters, step, norm, clip):
    """Trains three steps. Returns the norms of the gradients, and clones of the gradients of the last step."""
    optimizer, norms = torch.optim.SGD(parameters, lr=0.1, momentum=0.9), []
    for number in range(3):
        if number < 2:
            optimizer.zero_grad()  # the third step adds to the gradients of the second
        step()
        norms.append(clip(CLIPPED) if number == 1 else norm())
        optimizer.step()
    return norms


def run(kind, name, model_kind, pipeline_group, replica_group):
    program = dps.compile(dps.schedule(name), ranks=2, microbatches=MICROBATCHES)
    replica, rank = divmod(dist.get_rank(), 2)
    model = Model(model_kind, program.stages, 2 * MICROBATCHES)
    numbers = [chunk.stage for chunk in program.rank(rank).chunks]
    modules = [wrap(kind, copy.deepcopy(model.stages[number]), replica_group) for number in numbers]
    pipeline = dps.torch.Pipeline(program, modules, model.loss, pipeline_group)
    x, y = (t.tensor_split(2)[replica] for t in (model.inputs[0], model.target))
    given, target = pipeline.share(x, y)

    def step():
        pipeline.step(*[given] if given else [], target=target)
        with torch.no_grad():  # nothing stays whole or is summed after an evaluation
            pipeline.step(*[given] if given else [], target=target)

    norms = train(pipeline.parameters(), step, pipeline.gradient_norm, pipeline.clip_gradients)
    plain = list(nn.ModuleList(model.stages).parameters())
    expected = train(plain, lambda: model.plain(2 * MICROBATCHES),
                     lambda: torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in plain])).item(),
                     lambda most: nn.utils.clip_grad_norm_(plain, most).item())
    assert all(abs(got - want) < 1e-12 * want for got, want in zip(norms, expected)), (name, norms, expected)
    assert expected[1] > CLIPPED, expected
    for number, module in zip(numbers, modules):
        inside = getattr(module, "module", module)
        assert [n for n, _ in inside.named_parameters()] == [n for n, _ in model.stages[number].named_parameters()]
        for (parameter, got), want in zip(inside.named_parameters(), model.stages[number].parameters()):
            for mine, wanted in ((got, want), (got.grad, want.grad)):
                apart = difference(whole(mine.detach()), wanted.detach())
                assert apart < 1e-12, (name, number, parameter, apart)
            both = [torch.empty_like(want), torch.empty_like(want)]
            dist.all_gather(both, whole(got.detach()).contiguous(), group=replica_group)
            assert torch.equal(*both), (name, number, parameter, "replicas differ")


class Around(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x)


def refuses(kind, pipeline_group, replica_group):
    """What would sum twice, in part or in a pass is refused by the constructor."""
    program = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=MICROBATCHES)

    def made(module, **options):
        dps.torch.Pipeline(program, [module], nn.functional.mse_loss, pipeline_group, **options)

    wrapped = wrap(kind, Model("mlp", 1, 1).stages[0], replica_group)
    refused("would be summed twice: leave out replicate_group", made, wrapped, replicate_group=replica_group)
    if kind == "ddp":
        refused("has DistributedDataParallel inside (`inside`): wrap the whole stage", made, Around(wrapped))
        hooked = wrap(kind, nn.Linear(2, 2), replica_group)
        hooked.register_comm_hook(None, lambda state, bucket: None)
        refused("has a communication hook", made, hooked)
        everywhere = wrap(kind, nn.Linear(2, 2), None)
        refused("here two ranks have a process in common", made, everywhere)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel
        refused("fully_shard has divided only parts of it (`inside`)", made, Around(wrapped))
        older = FullyShardedDataParallel(nn.Linear(2, 2), replica_group, device_id=torch.device("cpu"))
        refused("is in FullyShardedDataParallel, which sums in each backward: take fully_shard", made, older)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    kind, *names = sys.argv[1:]
    if kind == "older":
        from torch.distributed.fsdp import FSDPModule
        if hasattr(FSDPModule, "finalize_backward"):
            del FSDPModule.finalize_backward
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    groups = pipelines[dist.get_rank() // 2], replicas[dist.get_rank() % 2]
    for name in names:
        run(kind, name, "transformer" if name in ("zb-v", "1f1b") else "mlp", *groups)
    if kind != "older":
        refuses(kind, *groups)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
