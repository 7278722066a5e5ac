"""Orders of other programs as the text of a .csv."""

from ._errors import ScheduleError

_CELLS = {"ForwardPass": "F", "BackwardPass": "B", "SendActivation": "SEND_F", "RecvActivation": "RECV_F",
          "SendGrad": "SEND_B", "RecvGrad": "RECV_B"}
_SKIPPED = {"LoadMicroBatch", "ReduceTiedGrads", "ReduceGrads", "OptimizerStep"}


def deepspeed_order(schedules):
    """The order of DeepSpeed's TrainSchedule or InferenceSchedule; schedules[i] is that of stage i. The text is a .csv
    file, for check() and compile(). Instructions name buffers: the k-th forward, and the k-th receive of activations,
    are of microbatch k; all others are of the microbatch whose forward was the last in their buffer."""
    rows = []
    for stage, schedule in enumerate(schedules):
        cells, counts, held = [], {}, {}
        for instruction in (instruction for step in schedule.steps() for instruction in step):
            name = type(instruction).__name__
            if name in _SKIPPED:
                continue
            if name not in _CELLS:
                raise ScheduleError(f"stage {stage}: {instruction} is none of TrainSchedule and InferenceSchedule")
            kind, buffer = _CELLS[name], instruction.buffer_id
            microbatch = counts.get(kind, 0)
            if kind == "F":
                held[buffer] = microbatch
            elif kind != "RECV_F":
                if buffer not in held:
                    raise ScheduleError(f"stage {stage}: {instruction} comes before a forward in its buffer")
                microbatch = held[buffer]
            counts[kind] = counts.get(kind, 0) + 1
            cells.append(f"{stage}{kind}{microbatch}")
        rows.append(",".join(cells) + "\n")
    return "".join(rows)
