"""Joins an order with what a hung run had posted: dumps of torch's flight recorder."""

import datetime
import io
import json
import os
import pickle
import re

from ._errors import ScheduleError, UsageError

_CELL = re.compile(r"(\d+)([A-Z]+(?:_[FB])?)(\d+)")
_POSTED = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")


class _Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise ScheduleError(f"a dump has only lists, dicts, numbers and texts, but this one has {module}.{name}")


def _read(path):
    """The entries of point-to-point operations of a dump, as (is a send, this rank, other rank, entry)."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        dump = json.loads(data) if data.lstrip()[:1] == b"{" else _Plain(io.BytesIO(data)).load()
        entries = dump.get("entries", []) if "version" in dump else dump["entries"]
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ScheduleError):
            raise
        raise ScheduleError(f"{path}: no dump of torch's flight recorder: {error!r}") from None
    found = []
    for entry in entries:
        match = _POSTED.search(entry.get("profiling_name", ""))
        if match and entry.get("is_p2p", True):
            found.append((match[1] == "send", int(match[2]), int(match[3]), entry))
    return found


class _Message:
    def __init__(self, rank, cell, ranks):
        stage, kind, microbatch = _CELL.fullmatch(cell).groups()
        self.cell, self.rank, self.sends = cell, rank, kind.startswith("SEND")
        other = int(stage) + (1 if kind in ("SEND_F", "RECV_B") else -1)
        self.peer = ranks[other]
        self.other = f"{other}{'RECV' if self.sends else 'SEND'}{kind[4:]}{microbatch}"
        self.entry = None  # what the dump says of it; None: it was never posted

    @property
    def done(self):
        return self.entry is not None and self.entry.get("state") == "completed"


def _place(rank, messages, posted):
    """How many messages of its row the rank had posted in its last step: the place whose messages before it agree with
    the longest run of the dump's last entries."""
    best, places, count = 0, [], len(messages)
    for place in range(1, count + 1):
        length = 0
        for sends, _, peer, _ in reversed(posted):
            message = messages[(place - 1 - length) % count]
            if (message.sends, message.peer) != (sends, peer):
                break
            length += 1
        if length > best:
            best, places = length, []
        if length == best:
            places.append(place)
    if posted and best == len(posted) and posted[0][3].get("p2p_seq_id") == 1:
        places = [(len(posted) - 1) % count + 1]  # the dump has all operations from the first one on
    if posted and len(places) > 1:
        raise ScheduleError(f"rank {rank}: the dump has too few operations: {len(places)} places of its row agree with "
                            "them; a larger TORCH_FR_BUFFER_SIZE keeps more")
    if posted and not best:
        raise ScheduleError(f"rank {rank}: its last operation is none of this order")
    place = places[0] if posted else 0
    for index in range(min(place, best)):
        messages[place - 1 - index].entry = posted[-1 - index][3]
    return place


def _since(entry, newest):
    posted = entry.get("time_created_ns", 0)
    at = datetime.datetime.fromtimestamp(posted / 1e9, datetime.timezone.utc)
    return f"since {at:%Y-%m-%d %H:%M:%S} UTC, {(newest - posted) / 1e9:.1f} s before the newest entry of the dumps"


def hang(order, dumps):
    """Says where the ranks of a hung run were: a text with a line for each rank. order: the text of a .csv with its
    messages, such as PyTorch's _dump_csv writes and Program.csv(messages=True) returns. dumps: the paths of the ranks'
    dumps (TORCH_FR_DUMP_TEMP_FILE, pickle or JSON), rank 0 first. PyTorch must post the messages of a rank in the order
    of its row, as its pipeline schedules do."""
    rows = [line.split(",") for line in order.split()]
    if len(rows) != len(dumps):
        raise UsageError(f"the order has {len(rows)} ranks, but there are {len(dumps)} dumps")
    parts = [[(cell, _CELL.findall(cell)) for cell in row] for row in rows]
    ranks = {int(stage): rank for rank, row in enumerate(parts) for _, passes in row for stage, kind, _ in passes
             if kind in "FBIW"}
    messages, names = [], {}
    for rank, row in enumerate(rows):
        messages.append([_Message(rank, cell, ranks) for cell in row if re.fullmatch(r"\d+(SEND|RECV)_[FB]\d+", cell)])
        names.update({message.cell: message for message in messages[-1]})
    posted = [_read(os.fspath(path)) for path in dumps]
    for rank, (mine, entries) in enumerate(zip(messages, posted)):
        if not mine:
            raise ScheduleError(f"rank {rank} of the order has no messages")
        _place(rank, mine, entries)
    newest = max((entry.get("time_created_ns", 0) for entries in posted for *_, entry in entries), default=0)
    return "".join(f"rank {rank}: {_where(rank, parts[rank], messages[rank], names, newest)}\n"
                   for rank in range(len(rows)))


def _where(rank, row, messages, names, newest):
    by_cell = {message.cell: message for message in messages}
    last = max((i for i, message in enumerate(messages) if message.entry is not None), default=-1)
    count = f"posted {last + 1} of {len(messages)} messages"
    at = next((i for i, (cell, _) in enumerate(row) if last >= 0 and cell == messages[last].cell), -1)
    needed = {}
    for stage, kind, microbatch in (part for _, passes in row for part in passes):
        needed[stage + kind + microbatch] = f"{stage}RECV_{'F' if kind == 'F' else 'B'}{microbatch}"
    for index, (cell, passes) in enumerate(row):
        message = by_cell.get(cell)
        if index > at and message:
            return f"{count}, never {cell} ({'to' if message.sends else 'from'} rank {message.peer}); no pass before " \
                   "it waits for a message: it computes, or is stuck outside of messages"
        for stage, kind, microbatch in passes:
            received = by_cell.get(needed[stage + kind + microbatch]) if kind in ("F", "B", "I") else None
            if received and received.entry is not None and not received.done:
                theirs = names.get(received.other)
                never = theirs is None or theirs.entry is None
                return f"{count}; {cell} waits for {received.cell} from rank {received.peer}, " \
                       f"{_since(received.entry, newest)}; rank {received.peer} " + (
                           f"never posted {received.other}" if never else f"has posted {received.other}")
    return f"{count}, all of its step"
