"""How the processes of a run meet. The launcher tells each process its number. Process 0 takes a free port, and tells
the others which one by something that only this run shares: so two runs on one machine do not meet each other."""

import atexit
import ctypes
import os
import socket
import time
from datetime import timedelta

import torch.distributed as dist

from .._errors import UsageError
from ._limit import within

# (number, count) of the processes of a run, as variables of the environment: OpenMPI's mpirun; srun --mpi=pmix
_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"))
_LIMIT = 1800  # most seconds for which a process waits until process 0 says its address
_begun = [0]  # how often this process has started torch.distributed


def start():
    """Initializes torch.distributed with gloo from the environment of torchrun, of OpenMPI's mpirun or of
    `srun --mpi=pmix`, if it is not initialized. Process 0 takes a free port, unless MASTER_PORT is set."""
    if dist.is_initialized():
        return
    for number, count in _LAUNCHERS:
        if "RANK" not in os.environ and number in os.environ and count in os.environ:
            os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ[number], os.environ[count]
    if "RANK" not in os.environ:
        raise UsageError("torch.distributed is not initialized, and the environment has no RANK: start the program "
                         "with torchrun, OpenMPI's mpirun or srun --mpi=pmix, or call "
                         "torch.distributed.init_process_group")
    if "MASTER_PORT" in os.environ:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group("gloo")
    else:
        _meet(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


def run_of(number, count):
    """What the launcher calls the run to which this process belongs, which is process `number` of `count` in
    torch.distributed. None: the launcher is not known, or has given the process another number."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun's " + os.environ["TORCHELASTIC_RUN_ID"]
    if (str(number), str(count)) not in [tuple(map(os.environ.get, names)) for names in _LAUNCHERS]:
        return None
    # the number of a job of OpenMPI 4 has 16 random bits, so it may return; the key has 128
    return " ".join(filter(None, map(os.environ.get, ("PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"))))


def _meet(number, count):
    run = run_of(number, count)
    if not run:
        raise UsageError("set MASTER_PORT to a port that is free on the machine of process 0, and MASTER_ADDR to the "
                         "address of this machine: this launcher does not tell its runs apart")
    _begun[0] += 1
    near = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(count)
    board = (_Folder if near else _Pmix)(f"dps {run} {_begun[0]}")
    limit = timedelta(seconds=_LIMIT)
    if number == 0:
        address = "127.0.0.1" if near else _address()
        store = dist.TCPStore(address, 0, count, True, limit, False)
        board.tell(f"{address} {store.port}")
    else:
        address, port = board.told().split()
        store = dist.TCPStore(address, int(port), count, False, limit, False)
    dist.init_process_group("gloo", store=store, rank=number, world_size=count)


def _address():
    """The address of this machine at which other machines of the run reach it: that of OpenMPI's daemon."""
    _, _, uri = os.environ.get("OMPI_MCA_orte_local_daemon_uri", "").partition("://")
    return uri.rpartition(":")[0].split(",")[0] or socket.gethostname()


class _Folder:
    """A word that process 0 tells the others of its run and machine: a file in the folder that mpirun has made for the
    run, and removes."""

    def __init__(self, name):
        self.path = os.path.join(os.environ["PMIX_SERVER_TMPDIR"], name)

    def tell(self, word):
        with open(self.path + ".new", "w") as file:
            file.write(word)
        os.replace(self.path + ".new", self.path)

    def told(self):
        until = time.monotonic() + _LIMIT
        while not os.path.exists(self.path):
            if time.monotonic() > until:
                raise TimeoutError(f"process 0 of this run has not started torch.distributed within {_LIMIT} s")
            time.sleep(0.02)
        with open(self.path) as file:
            return file.read()


class _Process(ctypes.Structure):
    _fields_ = ("run", ctypes.c_char * 256), ("number", ctypes.c_uint32)


class _Text(ctypes.Structure):
    """A value of PMIx that is a text. `rest` is there because values of other types are longer."""

    _fields_ = ("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("rest", ctypes.c_char * 64)
    TYPE = 3


class _Pmix:
    """A word that process 0 tells the others of its run, which has several machines: through the daemons of mpirun or
    srun. Never leaves PMIx before the process ends: after that MPI could not start any more."""

    _library = None

    def __init__(self, name):
        self.name, self.me = name.encode(), _Process()
        if self._library is None:
            try:
                type(self)._library = ctypes.CDLL("libpmix.so.2")
            except OSError as error:
                raise UsageError("set MASTER_ADDR to the address of the machine of process 0, and MASTER_PORT to a "
                                 f"port that is free there: this run has several machines, and {error}") from None
        self._call("Init", ctypes.byref(self.me), None, 0)
        atexit.register(self._library.PMIx_Finalize, None, 0)

    def _call(self, name, *arguments):
        status = within(_LIMIT, getattr(self._library, "PMIx_" + name), *arguments)
        if status:
            raise RuntimeError(f"PMIx_{name} fails with {status}")

    def tell(self, word):
        self._call("Put", 3, self.name, ctypes.byref(_Text(_Text.TYPE, word.encode())))  # 3: for all processes
        self._call("Commit")
        self._call("Fence", None, 0, None, 0)

    def told(self):
        found = ctypes.POINTER(_Text)()
        self._call("Fence", None, 0, None, 0)
        self._call("Get", ctypes.byref(_Process(self.me.run, 0)), self.name, None, 0, ctypes.byref(found))
        return found.contents.text.decode()
