"""Places the replicas of experts on GPUs, as `dpc balance` does."""

import ctypes
from typing import List, NamedTuple

from . import _library as c
from ._errors import UsageError, session
from ._program import check_number


class Balance(NamedTuple):
    """The result of balance(). The balance of a layer is the mean load of a GPU divided by the largest: 1 is perfect.

    The placement before is `current`. Without `current`, the placement before repeats experts 0, 1, 2, ... GPU after
    GPU. If the number of groups is a multiple of the number of nodes, each node repeats the experts of its groups."""

    placement: List[List[int]]  # [layer][physical expert]: number of its expert. Order: GPU after GPU
    before: List[float]  # balance of each layer in the placement before
    after: List[float]  # balance of each layer in `placement`
    bound: List[float]  # no placement of the layer has a larger balance
    moves: List[int]  # of each layer: number of physical experts on a GPU that did not hold this expert before


def _values(name, rows, length, same):
    """The values of all rows. Raises UsageError if a row does not have this length. same: what has it, in errors."""
    for number, row in enumerate(rows):
        if len(row) != length:
            raise UsageError(f"{name}[{number}] has length {len(row)}, but {same} {length}")
    return [value for row in rows for value in row]


def balance(loads, *, replicas, gpus, groups=1, nodes=1, method="best", current=None, moves=None, threshold=0.0,
            distinct=False) -> Balance:
    """Places the replicas of the experts of each layer on GPUs, to make the largest load of a GPU small.

    loads           for each layer, the loads of its experts (a list of lists, or an array)
    replicas, gpus  number of physical experts of a layer (the replicas of all its experts), and number of GPUs
    groups, nodes   number of groups of experts with consecutive numbers, and number of nodes (consecutive GPUs). If
                    groups is a multiple of nodes, all replicas of an expert are on one node
    method          "best", or "eplb": exactly the algorithm of DeepSeek's EPLB. With "eplb", `current` and
                    `distinct` must not be given
    current         the current placement, in the form of Balance.placement. At most `moves` physical experts of a layer
                    then move to a GPU that does not hold the expert (None: any number), and a layer whose balance would
                    rise by less than `threshold` is not changed, unless `distinct` forbids its current placement
    distinct        True: no expert is twice on a GPU"""
    if method not in ("best", "eplb"):
        raise UsageError(f"there is no method {method!r}; there are 'best' and 'eplb'")
    for name, number, least in (("replicas", replicas, 1), ("gpus", gpus, 1), ("groups", groups, 0),
                                ("nodes", nodes, 0), ("moves", moves or 0, 0)):
        check_number(name, number, least, 2**32 - 1)
    loads = [list(layer) for layer in loads]
    layers, experts = len(loads), len(loads[0]) if loads else 0
    flat = _values("loads", loads, experts, "loads[0] has length")
    request = c.Experts(layers=layers, experts=experts, replicas=replicas, gpus=gpus, groups=groups, nodes=nodes,
                        loads=(ctypes.c_double * len(flat))(*flat), threshold=threshold, distinct=distinct,
                        eplb=method == "eplb", limit_moves=moves is not None, most_moves=moves or 0)
    if current is not None:
        current = [list(layer) for layer in current]
        if len(current) != layers:
            raise UsageError(f"current has length {len(current)}, but loads has length {layers}: one for each layer")
        placed = _values("current", current, replicas, "replicas is")
        request.current = (ctypes.c_uint32 * len(placed))(*placed)
    doubles, numbers = ctypes.c_double * layers, ctypes.c_uint32 * layers
    slots = (ctypes.c_uint32 * (layers * replicas))()
    before, after, bound, moved = doubles(), doubles(), doubles(), numbers()
    result = c.Placement(placement=slots, before=before, after=after, bound=bound, moves=moved)
    with session() as s:
        s.call("dps_balance", ctypes.byref(request), ctypes.byref(result))
    return Balance([slots[i * replicas:(i + 1) * replicas] for i in range(layers)], list(before), list(after),
                   list(bound), list(moved))
