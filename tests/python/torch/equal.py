"""One rank. Trains each case of a list with the pipeline and without it, and compares losses, outputs and gradients.

usage: equal.py [--fake=MODE] CASE...   a case is SCHEDULE:RANKS:MICROBATCHES:MODEL; SCHEDULE: a name, or the path of a
                                        file. MODE: that of the fake of CUDA and NCCL (fake.py)"""

import copy
import sys
import time
import traceback
import warnings

import torch
import torch.distributed as dist

import dps
import dps.torch
import fake
from models import Model
from near import is_near

torch.set_num_threads(1)
warnings.simplefilter("ignore")


class Held(dict):
    """The microbatches that a rank holds; peak: the most that it has held at once."""

    peak = 0

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.peak = max(self.peak, len(self))


def part(tensor, numbers, microbatches):
    parts = tensor.tensor_split(microbatches)
    return torch.cat([parts[m] for m in numbers]) if numbers else None


def gradients(modules):
    return [None if p.grad is None else p.grad.clone() for module in modules for p in module.parameters()]


def zero(modules):
    for module in modules:
        for parameter in module.parameters():
            parameter.grad = None


def tie(program, rank, modules, ends):
    """Ties the weights of the embedding and the head; returns what Pipeline takes as `tied`. A rank that has both gets
    one parameter. Otherwise there are two, whose gradients are summed over `ends`, the group of the first and the last
    rank."""
    held = {chunk.stage: module for chunk, module in zip(program.rank(rank).chunks, modules)}
    first, last = held.get(0), held.get(program.stages - 1)
    if first and last:
        last.head.weight = first.embedding.weight
        return []
    if first:
        return [(first.embedding.weight, ends)]
    return [(last.head.weight, ends)] if last else []


def run(schedule, ranks, microbatches, kind, group, ends):
    path = schedule if schedule.endswith(".dps") else dps.schedule(schedule)
    program = dps.compile(path, ranks=ranks, microbatches=microbatches)
    rank, model = dist.get_rank(group), Model(kind, program.stages, microbatches)
    modules = [copy.deepcopy(model.stages[c.stage]) for c in program.rank(rank).chunks]
    tied = tie(program, rank, modules, ends) if kind == "tied" else ()
    pipeline = dps.torch.Pipeline(program, modules, loss_fn=model.loss, group=group, tied=tied)
    plan, pipeline._held = pipeline.plan, Held()
    inputs = [part(x, plan.given, microbatches) for x in model.inputs] if plan.given else []
    target = part(model.target, plan.ends, microbatches)
    results = []
    for _ in range(2):
        zero(modules)
        losses, outputs = pipeline.step(*inputs, target=target, return_outputs=True)
        results.append((losses, outputs, gradients(modules)))
    norms = pipeline.gradient_norm(), pipeline.clip_gradients(1e-3), pipeline.gradient_norm()
    with torch.no_grad():
        evaluated, _ = pipeline.step(*inputs, target=target)
    expected_losses, expected_outputs = model.plain(microbatches)
    assert pipeline._held.peak == program.rank(rank).peak_activations, "more microbatches are held than planned"
    assert not pipeline._held, "a step leaves something behind"
    check(plan, results, evaluated, expected_losses, expected_outputs, microbatches)
    check_norms(norms, model)
    expected = [p.grad for c in plan.chunks for p in model.stages[c.stage].parameters()]
    for got, want in zip(results[0][2], expected):
        if want is None:  # the loss does not depend on this parameter; a sum over copies makes zeros
            assert got is None or not got.any(), "a gradient where there is none"
        else:
            assert got is not None and is_near(got, want), f"gradients differ: {got}, not {want}"


def check(plan, results, evaluated, expected_losses, expected_outputs, microbatches):
    (losses, outputs, first), (again, outputs_again, second) = results
    assert all(torch.equal(a, b) for a, b in zip(first, second) if a is not None), "two steps have different gradients"
    if not plan.ends:
        assert losses is None and outputs is None and evaluated is None
        return
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    assert torch.equal(losses, again) and torch.equal(losses, evaluated), "two steps have different losses"
    assert is_near(losses, expected_losses[plan.ends]), (losses, expected_losses)
    assert is_near(outputs, part(expected_outputs, plan.ends, microbatches)), outputs


def check_norms(norms, model):
    """gradient_norm() is the norm of the model's gradients, where a tied parameter counts once.
    After clip_gradients(1e-3) it is 1e-3."""
    gradients = [p.grad for p in torch.nn.ModuleList(model.stages).parameters() if p.grad is not None]
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    assert norm > 2e-3, norm
    assert abs(norms[0] - norm) < 1e-12 * norm and norms[1] == norms[0], (norms, norm)
    assert abs(norms[2] - 1e-3) < 1e-6, norms


def main():
    dist.init_process_group("gloo")
    groups = {ranks: dist.new_group(range(ranks)) for ranks in range(1, dist.get_world_size() + 1)}
    ends = {ranks: dist.new_group(sorted({0, ranks - 1})) for ranks in groups}
    failed = 0
    if sys.argv[1].startswith("--fake="):
        fake.install(sys.argv[1][7:])
    for case in [argument for argument in sys.argv[1:] if not argument.startswith("-")]:
        schedule, ranks, microbatches, kind = case.split(":")
        started = time.monotonic()
        if dist.get_rank() < int(ranks):
            try:
                run(schedule, int(ranks), int(microbatches), kind, groups[int(ranks)], ends[int(ranks)])
            except Exception:
                failed += 1
                print(f"{case} on rank {dist.get_rank()}:", traceback.format_exc(), flush=True)
        if dist.get_rank() == 0 and "-v" in sys.argv:
            print(f"{case}: {time.monotonic() - started:.1f} s", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
