"""One of two ranks. Stages that name their components under the recipe of F&Bs. usage: recipes.py FOLDER"""

import pathlib
import re
import sys

import torch
import torch.distributed as dist

import dps
import dps.torch
from models import Model
from near import is_near

torch.set_num_threads(1)
dist.init_process_group("gloo")
me = dist.get_rank()


def trained(program, autocast):
    """The losses, and the gradients of a step whose dropout draws from the generator of the process."""
    model = Model("experts-drops", program.stages, program.microbatches)
    stages = [model.stages[chunk.stage] for chunk in program.rank(me).chunks]
    pipeline = dps.torch.Pipeline(program, stages, model.loss)
    x, y = pipeline.share(model.inputs[0], model.target)
    for _ in range(3):
        pipeline.parameters()[0].grad = None
        torch.manual_seed(5)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            losses, _ = pipeline.step(*[x] if x else [], target=y)
    return pipeline, [losses] + [p.grad for p in pipeline.parameters()]


def all_to_all():
    """Process r gives r + 1 rows to process 0 and 2 rows to process 1. The loss of each process weighs its rows."""
    given = [me + 1, 2]
    rows = (10 * me + torch.arange(me + 3.)).double().requires_grad_()
    got, taken = dps.torch.all_to_all(rows.square()[:, None], given)
    assert taken == ([1, 2], [2, 2])[me], taken
    back, _ = dps.torch.all_to_all(got * (me + 1), taken, given)
    assert is_near(back[:, 0], rows.square() * torch.tensor([1.] * (me + 1) + [2., 2.]).double())
    back.sum().backward()
    assert is_near(rows.grad, 2 * rows.detach() * torch.tensor([1.] * (me + 1) + [2., 2.]).double())


all_to_all()
text = dps.schedule("dualpipev").read_text()
in_turn = re.sub(r"overlap F&B \{.*?\n\}\n", "", text, flags=re.S)
for autocast in (False, True):
    (pipeline, ours), (_, theirs) = [trained(dps.compile(source, ranks=2, microbatches=6), autocast)
                                     for source in (text, in_turn)]
    assert pipeline._recipes, "no F&B follows the recipe"
    for got, want in zip(ours, theirs):
        assert (got is None and want is None) or torch.equal(got, want), (got, want)
path = pathlib.Path(sys.argv[1])
pipeline.trace(path / "recipes.json")
pipeline.profile(path / "recipes.costs")
dist.barrier()
