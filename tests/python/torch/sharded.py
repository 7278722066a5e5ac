"""One of four ranks: two replicas of a pipeline of two ranks, each with half of the batch. fully_shard (FSDP) divides
the parameters of each stage among its replicas. It sums no gradients during the passes; gradient_ready() starts its
sums. The gradients are those of the mean loss of the whole batch.

usage: sharded.py SCHEDULE..."""

import copy
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import dps
import dps.torch
from models import Model
from near import is_near

MICROBATCHES = 4


def hold(module):
    """Before a step: backwards only add up gradients."""
    module.set_is_last_backward(False)
    module.set_requires_gradient_sync(False)
    module.set_reshard_after_backward(False)


def sum_shards(_chunk, module):
    """Sums the gradients of a stage over the replicas, as torch.distributed.pipelining does it. Each process then has
    the gradient of its part of the parameters."""
    module.set_is_last_backward(True)
    module.set_requires_gradient_sync(True)
    module.set_reshard_after_backward(True)
    shared = fully_shard.state(module)
    for state in shared._state_ctx.all_states:
        if state._fsdp_param_group:
            state._fsdp_param_group.post_backward()
    shared._root_post_backward_final_callback()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    replica, rank = divmod(dist.get_rank(), 2)
    mesh = DeviceMesh.from_group(replicas[rank], "cpu")
    for name in sys.argv[1:]:
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=MICROBATCHES)
        model = Model("mlp", program.stages, 2 * MICROBATCHES)
        numbers = [chunk.stage for chunk in program.rank(rank).chunks]
        # The parameters stay whole from the first forward of a step to the sum of the gradients.
        modules = [fully_shard(copy.deepcopy(model.stages[s]), mesh=mesh, reshard_after_forward=False) for s in numbers]
        pipeline = dps.torch.Pipeline(program, modules, model.loss, pipelines[replica], gradient_ready=sum_shards)
        x, y = (t.tensor_split(2)[replica] for t in (model.inputs[0], model.target))
        given, target = pipeline.share(x, y)
        for _ in range(2):
            for module in modules:
                module.zero_grad()
                hold(module)
            pipeline.step(*[given] if given else [], target=target)
        model.plain(2 * MICROBATCHES)
        for number, module in zip(numbers, modules):
            for got, want in zip(module.parameters(), model.stages[number].parameters()):
                assert is_near(got.grad.full_tensor(), want.grad), (name, number)
        if dist.get_rank() == 0:
            print(f"{name}: equal", flush=True)
    dist.destroy_process_group()


main()
