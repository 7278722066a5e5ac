"""The plan of one rank for a step: its instructions in the order of the program, and the microbatches it needs."""

from typing import NamedTuple

_FORWARDS = {"FORWARD", "FORWARD_ONLY", "OVERLAP", "OVERLAP_FORWARD"}
_BACKWARDS = {"BACKWARD", "BACKWARD_INPUT"}
_FORWARD_HALF = _FORWARDS | {"SEND_FORWARD", "RECEIVE_FORWARD"}
_LETTERS = {"FORWARD": "F", "FORWARD_ONLY": "F", "OVERLAP": "F", "OVERLAP_FORWARD": "F", "BACKWARD": "B",
            "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "SEND_FORWARD": "SEND_F", "RECEIVE_FORWARD": "RECV_F",
            "SEND_BACKWARD": "SEND_B", "RECEIVE_BACKWARD": "RECV_B"}
_MESSAGE_SLOTS = ("message", "x", "y", "dx", "dy")


class Action(NamedTuple):
    """An instruction of a rank. index: its position in Program.instructions(rank), from 0."""

    index: int
    instruction: object  # dps.Instruction
    name: str  # what the instruction runs, such as 3F5, p1:3F5, 3F5&7B2, 3SEND_F5, "wait 3SEND_F5", "reduce of stage 3"


def halves_of(instruction):
    return (instruction,) if instruction.second is None else (instruction, instruction.second)


def slots_of(instruction):
    """The numbers of the message slots (the buffers of messages) that an instruction or either half of it uses."""
    found = {getattr(half, name) for half in halves_of(instruction) for name in _MESSAGE_SLOTS}
    return found - {None}


def receive_early(actions):
    """Moves each receive to an earlier position: directly after the previous instruction that uses its message slot,
    or to the start if there is none. So receives are posted as early as possible, and senders wait less. This is right
    only for transports that match messages by tags, as gloo does; a transport that works strictly in order needs the
    order of the program."""
    moved = []
    for action in actions:
        at = len(moved)
        if action.instruction.opcode.startswith("RECEIVE"):
            while at > 0 and action.instruction.message not in slots_of(moved[at - 1].instruction):
                at -= 1
        moved.insert(at, action)
    return moved


def _pass_name(half, pipes):
    pipe = f"p{half.pipe}:" if pipes > 1 else ""
    return f"{pipe}{half.stage}{_LETTERS[half.opcode]}{half.microbatch}"


def _actions(program, rank):
    """The actions of a rank, in the order of the program. A WAIT is named after the message that it waits for."""
    posted = {}
    for index, instruction in enumerate(program.instructions(rank)):
        if instruction.opcode in _LETTERS:
            name = "&".join(_pass_name(half, program.pipes) for half in halves_of(instruction))
        elif instruction.opcode == "WAIT":
            name = f"wait {posted[instruction.message]}"
        elif instruction.stage is not None:
            name = f"{instruction.opcode.lower()} of stage {instruction.stage}"
        else:
            name = instruction.opcode
        posted[instruction.message] = name
        yield Action(index, instruction, name)


class Plan:
    """The instructions of a rank, and the microbatches whose inputs and targets it needs.

    chunks    the rank's stages (dps.Chunk)
    given     microbatches (numbers in the step) whose first stage this rank runs: step() needs their inputs
    ends      microbatches whose last stage this rank runs: step() needs their targets, and returns their losses
    split     (chunk, microbatch of its pipe) of each backward that runs in two halves, I and W
    peers     the ranks with which this rank exchanges messages
    training, evaluation   lists of Action; evaluation has only the forward passes and their messages"""

    def __init__(self, program, rank):
        self.program, self.rank = program, rank
        self.chunks = program.rank(rank).chunks
        self.training = list(_actions(program, rank))
        self.evaluation = list(self._forward_half())
        self.peers = {action.instruction.peer for action in self.training} - {None}
        halves = [half for action in self.training for half in halves_of(action.instruction)]
        self.split = {(half.chunk, half.microbatch) for half in halves if half.opcode == "BACKWARD_INPUT"}
        forwards = [half for half in halves if half.opcode in _FORWARDS]
        self.given = sorted(half.number for half in forwards if half.stage == 0)
        self.ends = sorted(half.number for half in forwards if half.stage == program.stages - 1)

    def _forward_half(self):
        """The forwards of a step and their messages, in the order of the program. The whole step cannot deadlock. The
        forwards alone cannot deadlock either, because each message that is left out is left out on both ranks."""
        flying = {}
        for action in self.training:
            instruction = action.instruction
            if instruction.opcode == "WAIT":
                keep = flying.pop(instruction.message)
            else:
                keep = instruction.opcode in _FORWARD_HALF
            if instruction.opcode.startswith(("SEND", "RECEIVE")):
                flying[instruction.message] = keep
            if keep:
                second = instruction.second if instruction.opcode == "OVERLAP_FORWARD" else None
                yield action._replace(instruction=instruction._replace(second=second))
