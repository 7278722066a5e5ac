"""One rank. Runs schedules of torch.distributed.pipelining and those of dps on the same PipelineStages, and checks that
losses and gradients are equal. A weight that torch's tracer copies to two stages is noticed."""

import copy
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline, schedules
from torch.nn import functional as F

import dps
import dps.torch
from models import WIDTH, Attention
from near import is_near

warnings.simplefilter("ignore")
# The class of torch, the schedule of dps, the number of stages on a rank.
PAIRS = (("ScheduleGPipe", "gpipe", 1), ("Schedule1F1B", "1f1b", 1), ("ScheduleInterleaved1F1B", "interleaved-1f1b", 2),
         ("ScheduleInterleavedZeroBubble", "interleaved-zb", 2), ("ScheduleZBVZeroBubble", "zb-v", 2),
         ("ScheduleDualPipeV", "dualpipev", 2))
# Schedules in which a rank holds two consecutive stages. Older versions of PyTorch send a message
# from such a rank to itself, which gloo cannot do.
V_SHAPED = {"ScheduleZBVZeroBubble", "ScheduleDualPipeV"}
MICROBATCHES = 8


def compare(kind, name, per_rank):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    program = dps.compile(dps.schedule(name), ranks=ranks, microbatches=MICROBATCHES)
    count = per_rank * ranks
    assert program.stages == count
    torch.manual_seed(1)
    model = [Attention().double() for _ in range(count)]
    x, y = torch.randn(2, 2 * MICROBATCHES, 5, WIDTH, dtype=torch.float64)
    numbers = [chunk.stage for chunk in program.rank(rank).chunks]

    def stages():
        return [PipelineStage(copy.deepcopy(model[s]), s, count, torch.device("cpu")) for s in numbers]

    theirs, ours, losses = stages(), stages(), []
    mine = theirs if per_rank > 1 else theirs[0]
    schedule = kind(mine, MICROBATCHES, loss_fn=F.mse_loss)
    given = [x] if 0 in numbers else []
    schedule.step(*given, **(dict(target=y, losses=losses) if count - 1 in numbers else {}))
    mine = dps.torch.Pipeline(program, ours, F.mse_loss)
    found, _ = mine.step(*given, target=y if count - 1 in numbers else None)
    assert found is None or is_near(found, torch.stack(losses)), (found, losses)
    for ends, made in zip(theirs, ours):
        for (parameter, wanted), got in zip(ends.submod.named_parameters(), made.submod.parameters()):
            assert is_near(got.grad, wanted.grad), f"{name}: {parameter}: {got.grad}, not {wanted.grad}"
    if rank == 0:
        print(f"{kind.__name__} and {name}: equal", flush=True)


def tied_by_the_tracer():
    """Torch's tracer gives each stage a copy of a tied weight."""
    torch.manual_seed(1)
    model = nn.ModuleDict({"wte": nn.Embedding(11, WIDTH), "h": Attention(), "head": nn.Linear(WIDTH, 11, bias=False)})
    model["head"].weight = model["wte"].weight
    model.forward = lambda x: model["head"](model["h"](model["wte"](x)))
    cut = pipeline(model, (torch.zeros(2, 5, dtype=torch.int64),), split_spec={"h": SplitPoint.BEGINNING})
    program = dps.compile(dps.schedule("1f1b"), ranks=2, microbatches=4)
    try:
        dps.torch.Pipeline(program, [cut.get_stage_module(dist.get_rank())], F.cross_entropy)
    except dps.UsageError as error:
        assert "begin with the same random numbers, as tied weights do" in str(error), error
    else:
        raise AssertionError("a tied weight is not noticed")


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    tied_by_the_tracer()
    for kind, name, per_rank in PAIRS:
        if kind not in V_SHAPED or issubclass(getattr(schedules, kind, object), schedules._PipelineScheduleRuntime):
            compare(getattr(schedules, kind), name, per_rank)
        elif dist.get_rank() == 0:
            print(f"{kind}: not compared, because PyTorch {torch.__version__} does not run it on gloo", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
