"""Checks an order of torch.distributed.pipelining before it runs."""

import os
import tempfile

import dps


def _channels(schedule):
    """NCCL has a communicator for each pair of ranks, in which messages of both directions wait for each other; other
    backends match the messages of each direction by themselves."""
    from torch import distributed

    stage = schedule._stages[0]
    nccl = distributed.is_initialized() and "nccl" in distributed.get_backend(stage.group)
    return "pair" if nccl and not getattr(stage, "p2p_per_edge", False) else "edge"


def check(schedule, channels=None):
    """Raises dps.ScheduleError if the order of a schedule of torch.distributed.pipelining swaps messages or deadlocks,
    with the words of `dpc check`. Call it on any rank before the first step; it sends nothing. channels: the model, as
    for `dpc check --channels`; None: that of the stages' process group, which is "pair" for NCCL without
    pipeline_per_edge_p2p, and else "edge". Returns the verdicts under all models, as dps.check()."""
    rows = getattr(schedule, "pipeline_order_with_comms", None)
    if not rows:
        raise dps.UsageError(f"{type(schedule).__name__} has no order with messages; the schedules of PyTorch that run "
                             "several stages on a rank have one, and a _PipelineScheduleRuntime once a .csv is loaded")
    channels = channels or _channels(schedule)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, type(schedule).__name__ + ".csv")
        with open(path, "w") as file:
            for rank in sorted(rows):
                print(*(action for action in rows[rank] if action is not None), sep=",", file=file)
        verdicts = dps.check(path)["orders"][0]
    if "refused" in verdicts:
        raise dps.ScheduleError(verdicts["refused"].rstrip())
    models = [name for name in verdicts if verdicts[name] == "safe" or name + "_why" in verdicts]
    if channels not in models:
        raise dps.UsageError(f"channels: there is no {channels!r}; there are {', '.join(models)}")
    if verdicts[channels] != "safe":
        raise dps.ScheduleError(f"{type(schedule).__name__}: {verdicts[channels]} with {channels}: "
                                f"{verdicts[channels + '_why']}; it needs {verdicts['needs'] or 'another order'}")
    return verdicts
