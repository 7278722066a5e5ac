"""The processes of a pipeline, and the gloo groups and stores that only this package uses."""

from datetime import timedelta

import torch.distributed as dist

from .._errors import UsageError
from ._limit import Store, within
from ._start import run_of

_made = {}  # {(processes, purpose): how many stores this process has made for them}


def global_ranks(group):
    """The global ranks of the processes of a group, in the order of the group. group None: of all processes. A process
    that is not in the group may get an empty list."""
    if group is None:
        return list(range(dist.get_world_size()))
    table = dist.distributed_c10d._pg_group_ranks.get(group, {})
    return sorted(table, key=table.get)


def default_store(deadline, patience):
    """The store that all processes share, as a dps.torch._limit.Store. Raises UsageError if another run uses it."""
    store = Store(dist.distributed_c10d._get_default_store(), deadline, patience)
    mine = run_of(dist.get_rank(), dist.get_world_size())
    first = store.first("dps run", mine) if mine else None
    if mine != first:
        raise UsageError(f"this process belongs to run {mine}, but the store of torch.distributed to run {first}: give "
                         "each run a MASTER_PORT of its own, or unset it and let dps.torch.start() find one")
    return store


def store_of(store, processes, purpose):
    """A new part of the default store for these processes and this purpose. All these processes must call this equally
    often for the purpose, because the name of the part contains the number of the call."""
    key = (tuple(processes), purpose)
    _made[key] = _made.get(key, 0) + 1
    return store.part(f"dps/{purpose}/{','.join(map(str, processes))}/{_made[key]}")


def connect(processes, store, limit):
    """A new gloo group of these processes, for this package alone: closing it does not close the groups of the user's
    program. limit: the timeout of its messages, in seconds."""
    rank = processes.index(dist.get_rank())
    return within(limit, dist.ProcessGroupGloo, store.raw, rank, len(processes), timedelta(seconds=limit))


def place_in(processes):
    """The number of this process in the group."""
    if dist.get_rank() not in processes:
        raise UsageError("this process is not in the torch.distributed group that it gives: a process can give only "
                         "groups that contain it")
    return processes.index(dist.get_rank())


def program_rank(program, processes, rank_mapping):
    """The rank of the program that this process runs."""
    place, count = place_in(processes), len(processes)
    if count != program.ranks:
        raise UsageError(f"{program.schedule} is compiled with ranks={program.ranks}, but the group has size {count}: "
                         f"compile it with ranks={count}")
    if rank_mapping is not None and sorted(rank_mapping) != list(range(program.ranks)):
        raise UsageError(f"rank_mapping must have each of the ranks 0 to {program.ranks - 1} once, not {rank_mapping}")
    return place if rank_mapping is None else rank_mapping[place]
