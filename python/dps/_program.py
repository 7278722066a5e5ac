"""Programs: compile or load them, read their instructions, predict their times, draw them."""

import ctypes
import numbers
import os
from collections.abc import Mapping
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import _library as c
from ._errors import ScheduleError, UsageError, session


class Chunk(NamedTuple):
    """A stage on a rank. group: number for Program.group(), which lists all copies of the stage; None if the stage has
    one copy."""

    stage: int
    pipe: int
    group: Optional[int]


class Rank(NamedTuple):
    """What a rank holds and does in a step."""

    chunks: List[Chunk]
    instruction_count: int
    slots: Dict[str, int]  # number of buffers of each class: message, context, stash, gradient, weights
    # most (microbatch, stage) pairs whose activations the rank holds at the same time; 0 if the program is forward-only
    peak_activations: int
    messages_sent: int
    messages_received: int


class Instruction(NamedTuple):
    """One instruction of a rank. A member that the instruction does not have is None. dps.h explains the members."""

    text: str  # as `dpc --emit=asm` writes it
    opcode: str  # "FORWARD", "SEND_FORWARD", ...
    line: int  # line of the schedule's source
    chunk: Optional[int]
    stage: Optional[int]
    pipe: Optional[int]
    microbatch: Optional[int]
    peer: Optional[int]
    group: Optional[int]
    count: Optional[int]
    message: Optional[int]
    x: Optional[int]
    y: Optional[int]
    dx: Optional[int]
    dy: Optional[int]
    context: Optional[int]
    stash: Optional[int]
    gradient: Optional[int]
    weights: Optional[int]
    next_weights: Optional[int]
    number: Optional[int]
    second: Optional["Instruction"]  # the backward of an F&B ("OVERLAP"), the second F of an F&F ("OVERLAP_FORWARD")


class Component(NamedTuple):
    """A component of a layer in one pass, as a part of an F&B or F&F. dps.h explains the members."""

    name: str  # "attention", "dispatch", "mlp", "combine", ...
    letter: str  # "F"; "B": the input half of a backward; "W": its weight half
    half: int  # 0 or 1: that of the instruction
    layer: int  # of the stage of this half, in the order of the pass: in a backward 0 is the last layer
    communicates: bool


class RankPrediction(NamedTuple):
    """Times of a rank, in the unit of the costs, and bytes. A number of bytes is 0 if the sizes that it needs are not
    given."""

    start: float
    end: float
    busy: float
    idle: float
    bytes_sent: float
    peak_memory: float


class Prediction(NamedTuple):
    """How long a step takes, in the unit of the costs."""

    makespan: float
    # no order of this placement within the memory limits (without limits: with no more activations on any rank) has a
    # smaller makespan; None: not known
    bound: Optional[float]
    seconds: Optional[float]  # seconds per unit of the costs; None: the costs do not say
    cost: float  # largest time, over the ranks, from the start of a rank's first pass to the end of its last
    work: float  # mean over the ranks of the time that a rank is busy
    bubble_rate: float  # (cost - work) / cost
    # imbalance + order_bubble is the bubble rate of the same order if messages took no time. imbalance: the part that
    # comes from ranks with less work than others. order_bubble: the part that comes from waits of the busiest rank
    imbalance: float
    order_bubble: float
    messages_time: float  # the part of the makespan that messages add
    ranks: List[RankPrediction]


def _setting(key, value):
    return f"{key}={value!r}" if isinstance(value, float) else f"{key}={value}"


def _settings(value):
    return ",".join(_setting(*item) for item in value.items()) if isinstance(value, dict) else value


def _cost_texts(costs):
    """Costs as a list of the texts that libdps takes. costs: None, a text as for `dpc --cost`, a dict, an os.PathLike
    (the path of a cost file), or a list of these."""
    if costs is None:
        return []
    if isinstance(costs, (list, tuple)):
        return [text for part in costs for text in _cost_texts(part)]
    if isinstance(costs, os.PathLike):
        return [b"@" + os.fsencode(costs)]
    return [_settings(costs).encode()]


def _array(kind, values):
    return (kind * len(values))(*values)


class _Progress:
    """A callback for C that calls the user's function. If the function raises an exception, also KeyboardInterrupt
    (ctrl-C), the callback ends the search and keeps the exception in `raised`, for compile() to raise."""

    def __init__(self, function):
        self.function = function
        self.raised = None
        self.callback = c.ProgressFunction(self._tell)

    def _tell(self, _user, progress):
        try:
            told = progress.contents
            return bool(self.function and self.function(told.tried, told.planned, told.cost, told.bound))
        except BaseException as error:  # if the exception left this callback, ctypes would print it and continue
            self.raised = error
            return 1


def check_number(name, number, least, most):
    if not isinstance(number, numbers.Integral) or not least <= number <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, not {number!r}")


def _path(path):
    """A path as libdps takes it. Raises ScheduleError if no such file exists, but this package has a schedule of this
    name."""
    from . import schedules

    if isinstance(path, str) and path in schedules() and not os.path.exists(path):
        raise ScheduleError(f'{path}: no such file; dps.schedule("{path}") is the path of this schedule')
    return os.fsencode(path)


def _options(ranks, microbatches, params, costs, slot_bytes, memory_limit, progress=None, replicas=None):
    for name, number in (("ranks", ranks), ("microbatches", microbatches), ("replicas", replicas)):
        if number is not None:
            check_number(name, number, 1, 2**32 - 1)
    texts, params = _cost_texts(costs), params or {}
    if not isinstance(params, Mapping):
        raise UsageError(f'params is a dict such as {{"chunks": 2}}, not {params!r}')
    for name, value in params.items():
        check_number(name, value, -2**63, 2**63 - 1)
    parameters = [c.Parameter(name.encode(), value) for name, value in params.items()]
    return c.Options(ranks=ranks or 0, microbatches=microbatches or 0, parameter_count=len(parameters),
                     parameters=_array(c.Parameter, parameters), cost_count=len(texts),
                     costs=_array(ctypes.c_char_p, texts), replicas=replicas or 0,
                     progress=progress.callback if progress else c.ProgressFunction(),
                     slot_bytes=_settings(slot_bytes).encode() if slot_bytes else None,
                     memory_limit=str(memory_limit).encode() if memory_limit else None)


def compile(path_or_source, *, ranks=None, microbatches=None, params=None, costs=None, slot_bytes=None,
            memory_limit=None, name=None, progress=None):
    """Compiles and proves a schedule, and returns its Program.

    path_or_source  a path (an os.PathLike, or a string without a newline), or the text of a schedule
    ranks, microbatches, params   replace the values in the schedule: params={"chunks": 2}
    costs           times of passes and messages: "F=1,I=1,W=0.8", {"F": 1, "F[3]": 1.2}, a cost file as a
                    pathlib.Path, or a list of these. They decide the order if the schedule uses cost(), `order auto`
                    or `overlap F&B auto`; predict() with other costs keeps this order
    slot_bytes      sizes of the buffers: {"message": "8M", "context": "64M"}
    memory_limit    "40G", or "activations=8"
    name            the name of a text in error messages; if it ends in .csv, the text is an order
    progress        called with (tried, planned, cost, bound) while libdps searches an `order auto`: how many orders it
                    has tried, how many it will try, the cost of the best order so far, and a lower bound of the cost.
                    If it returns a true value, the search ends with the best order so far

    Raises ScheduleError if the schedule is wrong: str() of it is what dpc prints, in the words of this package; .line,
    .column, .help and .diagnostics have the same as data. Raises UsageError if an argument is wrong."""
    watch = _Progress(progress)
    options = _options(ranks, microbatches, params, costs, slot_bytes, memory_limit, watch)
    made = ctypes.c_void_p()
    with session() as s:
        try:
            if isinstance(path_or_source, str) and "\n" in path_or_source:
                text = path_or_source.encode()
                s.call("dps_compile_text", text, len(text), name.encode() if name else None, ctypes.byref(options),
                       ctypes.byref(made))
            else:
                s.call("dps_compile_file", _path(path_or_source), ctypes.byref(options), ctypes.byref(made))
        finally:
            program = Program(made) if made else None
            if watch.raised:
                raise watch.raised
    return program


def load(path_or_bytes):
    """Reads a program that Program.save(), bytes(program) or `dpc -o` wrote, and proves it again."""
    made = ctypes.c_void_p()
    with session() as s:
        if isinstance(path_or_bytes, (bytes, bytearray, memoryview)):
            given = bytes(path_or_bytes)
            s.call("dps_load", given, len(given), ctypes.byref(made))
        else:
            s.call("dps_load_file", os.fsencode(path_or_bytes), ctypes.byref(made))
    return Program(made)


def _none(number):
    return None if number < 0 else number


class Program:
    """A proven schedule: one list of instructions for every rank. Made by compile() or load()."""

    def __init__(self, handle):
        self._handle = handle
        info = c.ProgramInfo()
        c.library.dps_get_program_info(handle, ctypes.byref(info))
        self.schedule = info.schedule.decode("utf-8", "replace")
        self.source = info.source.decode("utf-8", "replace")
        self.ranks, self.stages, self.pipes, self.microbatches = info.ranks, info.stages, info.pipes, info.microbatches
        self.is_forward_only = bool(info.is_forward_only)
        self.is_asynchronous = bool(info.is_asynchronous)

    def __del__(self):
        if getattr(self, "_handle", None):
            c.library.dps_program_free(self._handle)

    def __repr__(self):
        return (f"<dps.Program {self.schedule}: {self.ranks} ranks, {self.stages} stages, "
                f"{self.microbatches} microbatches>")

    # --- what is in it ---

    def _check(self, what, index, count):
        if not 0 <= index < count:
            raise IndexError(f"{self.schedule} has {what} 0 to {count - 1}, not {index}")

    def rank(self, rank) -> Rank:
        """Chunks, buffers and messages of a rank."""
        self._check("ranks", rank, self.ranks)
        info, chunk = c.RankInfo(), c.ChunkInfo()
        c.library.dps_get_rank_info(self._handle, rank, ctypes.byref(info))
        chunks = []
        for index in range(info.chunks):
            c.library.dps_get_chunk_info(self._handle, rank, index, ctypes.byref(chunk))
            chunks.append(Chunk(chunk.stage, chunk.pipe, _none(chunk.group)))
        return Rank(chunks, info.instructions, dict(zip(c.SLOT_CLASSES, info.slots)), info.peak_activations,
                    info.messages_sent, info.messages_received)

    def pipe(self, pipe) -> range:
        """The microbatches of a pipe, by their numbers in the step (all pipes together)."""
        self._check("pipes", pipe, self.pipes)
        info = c.PipeInfo()
        c.library.dps_get_pipe_info(self._handle, pipe, ctypes.byref(info))
        return range(info.first, info.first + info.microbatches)

    def group(self, group) -> List[Tuple[int, int]]:
        """The members of a group: (rank, chunk) of each copy of the stage, in the order in which gradients are
        summed."""
        members, member = [], c.GroupMember()
        while c.library.dps_get_group_member(self._handle, group, len(members), ctypes.byref(member)) == c.OK:
            members.append((member.rank, member.chunk))
        if not members:
            raise IndexError(f"{self.schedule} has no group {group}")
        return members

    def _instruction(self, rank, index, half, text) -> Instruction:
        found = c.Instruction()
        c.library.dps_get_instruction(self._handle, rank, index, half, ctypes.byref(found))
        second = self._instruction(rank, index, 1, text) if half == 0 and found.halves == 2 else None
        operands = [_none(getattr(found, name)) for name in c.INSTRUCTION_MEMBERS[2:-1]]
        return Instruction(text, c.OPCODES[found.opcode], found.line, *operands, second)

    def instructions(self, rank) -> List[Instruction]:
        """All instructions of a rank, in the order in which it runs them."""
        count, text = self.rank(rank).instruction_count, ctypes.create_string_buffer(256)
        made = []
        for index in range(count):
            c.library.dps_instruction_text(self._handle, rank, index, text, len(text))
            made.append(self._instruction(rank, index, 0, text.value.decode()))
        return made

    def components(self, rank, index, layers) -> List[Component]:
        """What an F&B or F&F, instruction `index` of a rank, runs, in the order of its recipe. layers: the numbers of
        layers of the stages of its two halves. Empty: the instruction follows no recipe."""
        made, found = [], c.Component()
        while c.library.dps_get_component(self._handle, rank, index, *layers, len(made), ctypes.byref(found)) == c.OK:
            made.append(Component(found.name.decode(), chr(found.pass_), found.half, found.layer,
                                  bool(found.communicates)))
        return made

    # --- bytes ---

    def __bytes__(self):
        """The bytes of the program file (prog.bin) that `dprun` runs."""
        made, length = ctypes.c_void_p(), ctypes.c_size_t()
        with session() as s:
            s.call("dps_encode", self._handle, ctypes.byref(made), ctypes.byref(length))
            try:
                return ctypes.string_at(made, length.value)
            finally:
                c.library.dps_release(s.handle, made)

    def __reduce__(self):
        return load, (bytes(self),)

    def save(self, path):
        """Writes the program to a file, for `dprun` and load()."""
        with session() as s:
            s.call("dps_save", self._handle, os.fsencode(path))

    # --- times and pictures: `costs` as in compile(); None: those that the program was compiled with ---

    def _predicted(self, s, costs):
        texts, made = _cost_texts(costs), ctypes.c_void_p()
        s.call("dps_predict", self._handle, _array(ctypes.c_char_p, texts), len(texts), ctypes.byref(made))
        return made

    def predict(self, costs=None) -> Prediction:
        """Predicts how long a step takes and how long ranks are idle. Also predicts bytes, if the costs have sizes or
        compile() got slot_bytes. `costs` do not change the order of the program: a schedule with cost() or `order auto`
        keeps the order that compile() chose. To predict the order for other costs, compile the schedule with these
        costs."""
        info, rank, ranks = c.PredictionInfo(), c.RankPrediction(), []
        with session() as s:
            made = self._predicted(s, costs)
        c.library.dps_get_prediction_info(made, ctypes.byref(info))
        for index in range(self.ranks):
            c.library.dps_get_rank_prediction(made, index, ctypes.byref(rank))
            ranks.append(RankPrediction(*(getattr(rank, name) for name in c.RANK_PREDICTION_MEMBERS)))
        c.library.dps_prediction_free(made)
        figures = {name: getattr(info, name) for name in c.PREDICTION_MEMBERS}
        figures.update(bound=info.bound or None, seconds=info.seconds or None)
        return Prediction(**figures, ranks=ranks)

    def render(self, kind, costs=None, width=0) -> str:
        """What `dpc --emit=KIND` writes; kind: csv, comms, asm, stats, svg, html, text, trace, explain, overlap,
        torchtitan, megatron, jaxpp or shardy.
        width: of svg in pixels, of text in columns; 0: the default."""
        if kind not in c.FORMATS:
            raise UsageError(f"kind: there is no {kind!r}; there are {', '.join(c.FORMATS)}")
        check_number("width", width, 0, 2**32 - 1)
        text, length = ctypes.c_void_p(), ctypes.c_size_t()
        with session() as s:
            made = self._predicted(s, costs)
            try:
                s.call("dps_render", made, c.FORMATS.index(kind), width, ctypes.byref(text), ctypes.byref(length))
                try:
                    return ctypes.string_at(text, length.value).decode("utf-8", "replace")
                finally:
                    c.library.dps_release(s.handle, text)
            finally:
                c.library.dps_prediction_free(made)

    def csv(self, messages=False) -> str:
        """The order in the text form of torch.distributed.pipelining, one row per rank. messages: with sends and
        receives."""
        return self.render("comms" if messages else "csv")

    def svg(self, costs=None, width=0) -> str:
        """The timeline as a picture."""
        return self.render("svg", costs, width)

    def html(self, costs=None) -> str:
        """The timeline as a self-contained HTML page with zoom."""
        return self.render("html", costs)

    def show(self, costs=None, width=0) -> str:
        """The timeline in characters, as `dpc show` prints it."""
        return self.render("text", costs, width)

    def trace(self, costs=None) -> str:
        """The timeline as Chrome trace events (JSON)."""
        return self.render("trace", costs)

    def explain(self, costs=None) -> str:
        """For each rank and each step of the source: how often the rank runs the step, the passes that these runs
        contain, and the longest wait of the rank in the step."""
        return self.render("explain", costs)

    def _repr_svg_(self):
        return self.svg()
