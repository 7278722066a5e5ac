# Give `schedule` to JaxPP as the schedule of its pipeline.

import re
from dataclasses import dataclass

from jaxpp.schedules import BaseSchedule, FusedTask, Task
from jaxpp.types import MpmdIdx, TaskType

TYPES = {"F": TaskType.FWD, "B": TaskType.BWD, "I": TaskType.BWD_I, "W": TaskType.BWD_W}
ROWS = [[[(kind, int(stage), int(microbatch)) for stage, kind, microbatch in re.findall(r"(\d+)([FBIW])(\d+)", cell)]
         for cell in row.split(",")] for row in ORDER.splitlines()]
CELLS = [cell for row in ROWS for cell in row]
RANKS = {stage: rank for rank, row in enumerate(ROWS) for cell in row for _, stage, _ in cell}
SPLIT = any(kind == "I" for cell in CELLS for kind, _, _ in cell)
MICROBATCHES = 1 + max(microbatch for cell in CELLS for _, _, microbatch in cell)


def parts(kind, stage):
    """The task types of a pass. JaxPP runs I and W of stage 0 together; if it splits backwards, it splits all."""
    if stage == 0 and kind in "IW":
        return "IW" if kind == "I" else ""
    return "IW" if kind == "B" and SPLIT else kind


def tasks(row):
    for cell in row:
        made = [Task.make(stage, microbatch, TYPES[part]) for kind, stage, microbatch in cell
                for part in parts(kind, stage)]
        if made:
            yield made[0] if len(made) == 1 else FusedTask(made)


@dataclass(eq=True, frozen=True)
class Schedule(BaseSchedule):
    def __post_init__(self):
        super().__post_init__()
        if self.num_stages != len(RANKS):
            raise ValueError(f"this order has {len(RANKS)} stages, not {self.num_stages}")
        object.__setattr__(self, "is_partial_bwd", SPLIT)

    def get_mpmd_idx(self, stage_id):
        return MpmdIdx(RANKS[stage_id])

    @staticmethod
    def get_num_stages(num_tasks):
        return len(RANKS)

    def tasks(self, n_mubatches):
        if n_mubatches != MICROBATCHES:
            raise ValueError(f"this order is of {MICROBATCHES} microbatches, not of {n_mubatches}")
        return [list(tasks(row)) for row in ROWS]


schedule = Schedule(len(RANKS))
