"""The processes of a pipeline, and the gloo groups and stores that only this package uses."""

import os
from datetime import timedelta

import torch.distributed as dist

from .._errors import UsageError

_made = {}  # {(processes, purpose): how many stores this process has made for them}


def start():
    """Initializes torch.distributed with gloo from the environment of torchrun or mpirun, if it is not initialized."""
    if dist.is_initialized():
        return
    for name, given in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")):
        if name not in os.environ and given in os.environ:
            os.environ[name] = os.environ[given]
    if "RANK" not in os.environ:
        raise UsageError("torch.distributed is not initialized, and the environment has no RANK: start the program "
                         "with torchrun or OpenMPI's mpirun, or call torch.distributed.init_process_group")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    dist.init_process_group("gloo")


def global_ranks(group):
    """The global ranks of the processes of a group, in the order of the group. group None: of all processes. A process
    that is not in the group may get an empty list."""
    if group is None:
        return list(range(dist.get_world_size()))
    table = dist.distributed_c10d._pg_group_ranks.get(group, {})
    return sorted(table, key=table.get)


def store_of(processes, purpose):
    """A new store for these processes and this purpose: a part of the default store with a name of its own. All these
    processes must call this equally often for the purpose, because the name contains the number of the call."""
    key = (tuple(processes), purpose)
    _made[key] = _made.get(key, 0) + 1
    name = f"dps/{purpose}/{','.join(map(str, processes))}/{_made[key]}"
    return dist.PrefixStore(name, dist.distributed_c10d._get_default_store())


def connect(processes, store, deadline):
    """A new gloo group of these processes, for this package alone: closing it does not close the groups of the user's
    program. deadline: the timeout of its messages, in seconds."""
    rank = processes.index(dist.get_rank())
    return dist.ProcessGroupGloo(store, rank, len(processes), timedelta(seconds=deadline))


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
