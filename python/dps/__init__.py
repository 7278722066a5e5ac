"""Pipeline-parallel training schedules: compiled, proven, predicted and drawn.

    import dps

    program = dps.compile(dps.schedule("dualpipe"), ranks=8, microbatches=20)
    print(program.show())
    print(program.predict({"F": 1, "I": 1, "W": 0.8}).bubble_rate)
    for instruction in program.instructions(0):
        print(instruction.line, instruction.text)
"""

import pathlib

from ._balance import Balance, balance
from ._errors import Diagnostic, Error, ScheduleError, SystemFailure, UsageError
from ._hang import hang
from ._library import library as _c
from ._orders import deepspeed_order
from ._study import advise, check, compare
from ._program import Chunk, Component, Instruction, Prediction, Program, Rank, RankPrediction, compile, load

__version__ = _c.dps_version().decode()
__all__ = ["Balance", "Chunk", "Component", "Diagnostic", "Error", "Instruction", "Prediction", "Program", "Rank",
           "RankPrediction", "ScheduleError", "SystemFailure", "UsageError", "advise", "balance", "check",
           "compare", "compile", "deepspeed_order", "hang", "load", "schedule", "schedules"]


def _schedule_folder():
    """The folder of the schedules: in the package or, if dps is imported from a checkout, in the checkout."""
    here = pathlib.Path(__file__).parent
    inside = here / "schedules"
    return inside if inside.is_dir() else here.parent.parent / "schedules"


def schedules():
    """Names of the schedules that come with this package."""
    return sorted(path.stem for path in _schedule_folder().glob("*.dps"))


def schedule(name):
    """The path of the schedule `name` of schedules(), for compile() and for reading."""
    path = _schedule_folder() / f"{name}.dps"
    if not path.exists():
        raise UsageError(f"there is no schedule {name!r}; there are {', '.join(schedules())}")
    return path
