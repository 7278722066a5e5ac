"""One of four ranks: two replicas of a pipeline of two ranks, each with half of the batch. The gradients are those of
the mean loss of the whole batch, and they are complete when `gradient_ready` is called."""

import copy

import torch
import torch.distributed as dist

import dps
import dps.torch
from models import Model
from near import is_near


def step(pipeline, x, y):
    given, ends = [x[m] for m in pipeline.plan.given], [y[m] for m in pipeline.plan.ends]
    pipeline.step(*[given] if given else [], target=ends or None)


def main():
    dist.init_process_group("gloo")
    pipelines, replicas = ([dist.new_group(ranks) for ranks in rows] for rows in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    replica, place = divmod(dist.get_rank(), 2)
    for name in ("zb-h1", "dualpipe"):
        program = dps.compile(dps.schedule(name), ranks=2, microbatches=4)
        model, ready = Model("mlp", program.stages, 8), []
        mapping = [1, 0] if name == "dualpipe" else None
        rank = place if mapping is None else mapping[place]
        modules = [copy.deepcopy(model.stages[chunk.stage]) for chunk in program.rank(rank).chunks]

        def complete(chunk, module):
            ready.append((chunk, [p.grad.clone() for p in module.parameters()]))

        pipeline = dps.torch.Pipeline(program, modules, model.loss, pipelines[replica], mapping, replicas[place],
                                      gradient_ready=complete)
        assert pipeline.rank == rank
        x, y = (list(t.tensor_split(8)[4 * replica:4 * replica + 4]) for t in (model.inputs[0], model.target))
        step(pipeline, x, y)
        model.plain(8)
        assert sorted(chunk for chunk, _ in ready) == list(range(len(modules))), ready
        for chunk, gradients in ready:
            stage = model.stages[program.rank(rank).chunks[chunk].stage]
            for got, want, now in zip(gradients, stage.parameters(), modules[chunk].parameters()):
                assert is_near(got, want.grad) and torch.equal(got, now.grad)


main()
