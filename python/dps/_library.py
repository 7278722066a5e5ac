"""libdps by ctypes: where the library is, and what dps.h declares."""

import ctypes
import os
import pathlib
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p

OK, BAD_INPUT, BAD_USAGE, FAILED, NO_MEMORY = range(5)
SLOT_CLASSES = ("message", "context", "stash", "gradient", "weights")
OPCODES = ("FORWARD", "FORWARD_ONLY", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "OVERLAP", "SEND_FORWARD",
           "RECEIVE_FORWARD", "SEND_BACKWARD", "RECEIVE_BACKWARD", "WAIT", "REDUCE", "WAIT_REDUCE", "NORM", "UPDATE",
           "ASYNC_UPDATE", "END", "OVERLAP_FORWARD")
FORMATS = ("csv", "comms", "asm", "stats", "svg", "html", "text", "trace", "explain", "overlap",
           "torchtitan", "megatron", "jaxpp", "shardy")


class Sized(Structure):
    """A struct whose first member is its size; the constructor sets this member."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(self), **members)


class Diagnostic(Sized):
    _fields_ = [("size", c_size_t), ("severity", c_int32), ("line", c_uint32), ("column", c_uint32),
                ("end_line", c_uint32), ("end_column", c_uint32), ("text", c_char_p), ("help", c_char_p)]


class Parameter(Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Progress(Structure):
    _fields_ = [("size", c_size_t), ("tried", c_uint32), ("planned", c_uint32), ("cost", c_double),
                ("bound", c_double)]


ProgressFunction = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Progress))


class Options(Sized):
    _fields_ = [("size", c_size_t), ("ranks", c_uint32), ("microbatches", c_uint32), ("parameter_count", c_uint32),
                ("cost_count", c_uint32), ("parameters", POINTER(Parameter)), ("costs", POINTER(c_char_p)),
                ("slot_bytes", c_char_p), ("memory_limit", c_char_p), ("progress", ProgressFunction),
                ("replicas", c_uint32)]


class ProgramInfo(Sized):
    _fields_ = [("size", c_size_t), ("schedule", c_char_p), ("source", c_char_p), ("ranks", c_uint32),
                ("stages", c_uint32), ("pipes", c_uint32), ("microbatches", c_uint32), ("is_forward_only", c_int32),
                ("is_asynchronous", c_int32)]


class RankInfo(Sized):
    _fields_ = [("size", c_size_t), ("chunks", c_uint32), ("instructions", c_uint32),
                ("slots", c_uint32 * len(SLOT_CLASSES)), ("peak_activations", c_uint32), ("messages_sent", c_uint32),
                ("messages_received", c_uint32)]


class PipeInfo(Sized):
    _fields_ = [("size", c_size_t), ("microbatches", c_uint32), ("first", c_uint32)]


class ChunkInfo(Sized):
    _fields_ = [("size", c_size_t), ("stage", c_uint32), ("pipe", c_uint32), ("group", c_int32)]


class GroupMember(Sized):
    _fields_ = [("size", c_size_t), ("rank", c_uint32), ("chunk", c_uint32)]


INSTRUCTION_MEMBERS = ("halves", "line", "chunk", "stage", "pipe", "microbatch", "peer", "group", "count", "message",
                       "x", "y", "dx", "dy", "context", "stash", "gradient", "weights", "next_weights", "number",
                       "index")


class Instruction(Sized):
    pass


Instruction._fields_ = ([("size", c_size_t), ("opcode", c_int32)] + [(name, c_int32) for name in INSTRUCTION_MEMBERS] +
                        [("second", POINTER(Instruction))])


class Component(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("pass_", c_int32), ("half", c_int32), ("layer", c_int32),
                ("communicates", c_int32)]


class RankOptions(Sized):
    _fields_ = [("size", c_size_t), ("ranks", c_uint32), ("post_early", c_int32)]


Function = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Instruction))
FUNCTION_MEMBERS = ("forward", "backward_input", "backward_weight", "backward", "overlap", "send", "receive", "wait",
                    "reduce", "wait_reduce", "norm", "update", "update_async")


class Functions(Sized):
    _fields_ = [("size", c_size_t), ("user", c_void_p)] + [(name, Function) for name in FUNCTION_MEMBERS]


class Buffers(Sized):
    _fields_ = [("size", c_size_t), ("messages", POINTER(c_void_p)), ("gradients", POINTER(c_void_p)),
                ("elements", POINTER(c_size_t)), ("element_bytes", c_size_t)]


PREDICTION_MEMBERS = ("makespan", "bound", "seconds", "cost", "work", "bubble_rate", "imbalance", "order_bubble",
                      "messages_time")
RANK_PREDICTION_MEMBERS = ("start", "end", "busy", "idle", "bytes_sent", "peak_memory")


class PredictionInfo(Sized):
    _fields_ = [("size", c_size_t)] + [(name, c_double) for name in PREDICTION_MEMBERS]


class RankPrediction(Sized):
    _fields_ = [("size", c_size_t)] + [(name, c_double) for name in RANK_PREDICTION_MEMBERS]


class Experts(Sized):
    _fields_ = [("size", c_size_t), ("layers", c_uint32), ("experts", c_uint32), ("replicas", c_uint32),
                ("gpus", c_uint32), ("groups", c_uint32), ("nodes", c_uint32), ("loads", POINTER(c_double)),
                ("current", POINTER(c_uint32)), ("most_moves", c_uint32), ("limit_moves", c_int32),
                ("threshold", c_double), ("distinct", c_int32), ("eplb", c_int32)]


class Host(Sized):
    _fields_ = [("size", c_size_t), ("user", c_void_p), ("allocate", c_void_p), ("release", c_void_p),
                ("for_python", c_int32)]


class Placement(Sized):
    _fields_ = [("size", c_size_t), ("placement", POINTER(c_uint32)), ("before", POINTER(c_double)),
                ("after", POINTER(c_double)), ("bound", POINTER(c_double)), ("moves", POINTER(c_uint32))]


# {function: (type of its result, types of its arguments)}. A result c_int is a status, except that of
# dps_instruction_text.
FUNCTIONS = {
    "dps_version": (c_char_p, []),
    "dps_new": (c_void_p, [c_void_p]),
    "dps_free": (None, [c_void_p]),
    "dps_release": (None, [c_void_p, c_void_p]),
    "dps_error": (c_char_p, [c_void_p]),
    "dps_diagnostic_count": (c_size_t, [c_void_p]),
    "dps_get_diagnostic": (c_int, [c_void_p, c_size_t, POINTER(Diagnostic)]),
    "dps_compile_file": (c_int, [c_void_p, c_char_p, POINTER(Options), POINTER(c_void_p)]),
    "dps_compile_text": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(Options), POINTER(c_void_p)]),
    "dps_load": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "dps_load_file": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "dps_encode": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "dps_save": (c_int, [c_void_p, c_void_p, c_char_p]),
    "dps_program_free": (None, [c_void_p]),
    "dps_get_program_info": (c_int, [c_void_p, POINTER(ProgramInfo)]),
    "dps_get_rank_info": (c_int, [c_void_p, c_uint32, POINTER(RankInfo)]),
    "dps_get_pipe_info": (c_int, [c_void_p, c_uint32, POINTER(PipeInfo)]),
    "dps_get_chunk_info": (c_int, [c_void_p, c_uint32, c_uint32, POINTER(ChunkInfo)]),
    "dps_get_group_member": (c_int, [c_void_p, c_uint32, c_uint32, POINTER(GroupMember)]),
    "dps_get_instruction": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, POINTER(Instruction)]),
    "dps_get_component": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32, c_uint32, c_uint32, POINTER(Component)]),
    "dps_instruction_text": (c_int, [c_void_p, c_uint32, c_uint32, c_char_p, c_size_t]),
    "dps_rank_open": (c_int, [c_void_p, c_void_p, c_uint32, POINTER(RankOptions), POINTER(c_void_p)]),
    "dps_rank_free": (None, [c_void_p]),
    "dps_rank_error": (c_char_p, [c_void_p]),
    "dps_next": (c_int, [c_void_p, POINTER(POINTER(Instruction))]),
    "dps_done": (c_int, [c_void_p, POINTER(Instruction), c_int]),
    "dps_reason": (None, [c_void_p, c_char_p]),
    "dps_step": (c_int, [c_void_p, POINTER(Functions)]),
    "dps_threads_new": (c_int, [c_void_p, c_void_p, c_double, POINTER(c_void_p)]),
    "dps_threads_free": (None, [c_void_p]),
    "dps_join": (c_int, [c_void_p, c_void_p, POINTER(Buffers)]),
    "dps_gather": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "dps_forward_half": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "dps_predict": (c_int, [c_void_p, c_void_p, POINTER(c_char_p), c_size_t, POINTER(c_void_p)]),
    "dps_prediction_free": (None, [c_void_p]),
    "dps_get_prediction_info": (c_int, [c_void_p, POINTER(PredictionInfo)]),
    "dps_get_rank_prediction": (c_int, [c_void_p, c_uint32, POINTER(RankPrediction)]),
    "dps_render": (c_int, [c_void_p, c_void_p, c_int, c_uint32, POINTER(c_void_p), POINTER(c_size_t)]),
    "dps_compare": (c_int, [c_void_p, POINTER(c_char_p), c_size_t, POINTER(Options), POINTER(c_void_p),
                            POINTER(c_size_t)]),
    "dps_check": (c_int, [c_void_p, POINTER(c_char_p), c_size_t, POINTER(Options), POINTER(c_void_p),
                          POINTER(c_size_t)]),
    "dps_advise": (c_int, [c_void_p, POINTER(c_char_p), c_size_t, POINTER(Options), c_uint32, c_uint32,
                           POINTER(c_void_p), POINTER(c_size_t)]),
    "dps_balance": (c_int, [c_void_p, POINTER(Experts), POINTER(Placement)]),
}


def _open():
    """Loads libdps: the file $DPS_LIBRARY if this is set; else the first of libdps.so in this package and
    build/libdps.so in the checkout that exists; else the system's libdps.so.0."""
    here = pathlib.Path(__file__).parent
    places = [here / "libdps.so", here.parent.parent / "build" / "libdps.so"]
    path = os.environ.get("DPS_LIBRARY") or next((str(place) for place in places if place.exists()), "libdps.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libdps was not loaded ({error}): install this package with pip, or run `make all` in the "
                          "project and set DPS_LIBRARY to the path of its build/libdps.so") from None
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"{path} is another version of libdps than this package needs: it has no {name}")
        function.restype, function.argtypes = result, arguments
    return library


library = _open()
