"""One of four ranks: two replicas of a pipeline of two ranks, each with half of the batch. FSDP divides the parameters
of each stage among its replicas. It sums no gradients during the passes; gradient_ready() starts its sums. The
gradients are those of the mean loss of the whole batch.

usage: sharded.py fully_shard|FullyShardedDataParallel SCHEDULE..."""

import contextlib
import copy
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

import dps
import dps.torch
from models import WIDTH, Model
from near import is_near

MICROBATCHES = 4


class Sharded:
    """A stage under fully_shard. Its parameters stay whole from the first forward of a step to the sum."""

    def __init__(self, module, group):
        mesh = DeviceMesh.from_group(group, "cpu")
        self.module = fully_shard(module, mesh=mesh, reshard_after_forward=False)

    def _let_sum(self, whether):
        self.module.set_is_last_backward(whether)
        self.module.set_requires_gradient_sync(whether)
        self.module.set_reshard_after_backward(whether)

    def hold(self):
        """Before a step: backwards only add up gradients."""
        self._let_sum(False)

    def sum(self):
        """Sums the gradients over the replicas, as torch.distributed.pipelining does it. Each process then has the
        gradient of its part of the parameters."""
        self._let_sum(True)
        shared = fully_shard.state(self.module)
        for state in shared._state_ctx.all_states:
            if state._fsdp_param_group:
                state._fsdp_param_group.post_backward()
        shared._root_post_backward_final_callback()

    def gradient(self):
        """The gradients of all parameters, one after the other in one tensor."""
        return torch.cat([parameter.grad.full_tensor().flatten() for parameter in self.module.parameters()])


class OlderSharded:
    """A stage under FullyShardedDataParallel, which sums only at the end of a backward. It cannot run I and W apart."""

    def __init__(self, module, group):
        # One row, from which a backward can start.
        self.example = torch.zeros(1, WIDTH, dtype=torch.float64)
        self.group, self.held = group, contextlib.ExitStack()
        self.module = FullyShardedDataParallel(module, group, ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True,
                                               device_id=torch.device("cpu"))

    def hold(self):
        """Before a step: backwards only add up gradients."""
        self.held.enter_context(self.module.no_sync())

    def sum(self):
        """Sums the gradients over the replicas in one more backward, which adds 0 to them."""
        self.held.close()
        with torch.enable_grad():
            (0 * self.module(self.example).sum()).backward()

    def gradient(self):
        """The gradients of all parameters, one after the other in one tensor. Each process has an equal part of it."""
        parts = [parameter.grad.flatten() for parameter in self.module.parameters() if parameter.grad is not None]
        part = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
        whole = [None, None]
        dist.all_gather_object(whole, part, group=self.group)
        return torch.cat(whole)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    kind = {"fully_shard": Sharded, "FullyShardedDataParallel": OlderSharded}[sys.argv[1]]
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    replica, rank = divmod(dist.get_rank(), 2)
    for name in sys.argv[2:]:
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=MICROBATCHES)
        model = Model("mlp", program.stages, 2 * MICROBATCHES)
        numbers = [chunk.stage for chunk in program.rank(rank).chunks]
        stages = [kind(copy.deepcopy(model.stages[number]), replicas[rank]) for number in numbers]
        modules = [stage.module for stage in stages]
        pipeline = dps.torch.Pipeline(program, modules, model.loss, pipelines[replica],
                                      gradient_ready=lambda chunk, _: stages[chunk].sum())
        x, y = (t.tensor_split(2)[replica] for t in (model.inputs[0], model.target))
        given, target = pipeline.share(x, y)
        for _ in range(2):
            for stage in stages:
                stage.module.zero_grad()
                stage.hold()
            pipeline.step(*[given] if given else [], target=target)
        model.plain(2 * MICROBATCHES)
        for number, stage in zip(numbers, stages):
            want = torch.cat([parameter.grad.flatten() for parameter in model.stages[number].parameters()])
            assert is_near(stage.gradient(), want), (name, number)
        if dist.get_rank() == 0:
            print(f"{name}: equal", flush=True)
    dist.destroy_process_group()


main()
