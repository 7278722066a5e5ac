"""Messages between ranks: activations and gradients, each a tuple of tensors."""

from functools import partial

import torch

from .._errors import UsageError
from . import _links
from ._failure import MessageFailed
from ._links import HOST

# The dtypes of messages; None for those that this PyTorch lacks.
_DTYPES = tuple([getattr(torch, name, None) for name in (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "complex128", "complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu")])
_MOST_DIMENSIONS, _MOST_TENSORS = 8, 32
_HEADER = 1 + _MOST_TENSORS * (3 + _MOST_DIMENSIONS)

_PARTS = "shape", "dtype", "requires_grad"


def form_of(tensors):
    """The form of a message: (shape, dtype, requires_grad) of each of its tensors."""
    return tuple([(t.shape, t.dtype, t.requires_grad) for t in tensors])


def say(form):
    """A form in words, for error messages."""
    return ", ".join(f"{list(shape)} {str(dtype)[6:]}{'' if grad else ' without gradient'}"
                     for shape, dtype, grad in form) or "no tensors"


def _changes(known, form):
    """What differs between two forms, in words."""
    if len(known) != len(form):
        return f"{len(form)} tensor{'s'[:len(form) != 1]} instead of {len(known)}"
    words = []
    for number, (before, now) in enumerate(zip(known, form)):
        pairs = zip(_PARTS, map(_plain, before), map(_plain, now))
        parts = [f"{name} {new} instead of {old}" for name, old, new in pairs if new != old]
        words += [f"tensor {number} with {', '.join(parts)}"] * bool(parts)
    return "; ".join(words)


def _plain(part):
    return list(part) if isinstance(part, tuple) else str(part).replace("torch.", "")


def _encode(form):
    if len(form) > _MOST_TENSORS or any(len(shape) > _MOST_DIMENSIONS for shape, _, _ in form):
        raise UsageError(f"a stage can return at most {_MOST_TENSORS} tensors of at most {_MOST_DIMENSIONS} "
                         f"dimensions, not {say(form)}")
    numbers = [len(form)]
    for shape, dtype, grad in form:
        if dtype not in _DTYPES:
            raise UsageError(f"a stage cannot return a tensor of {dtype}; it can return "
                             f"{', '.join(str(known) for known in _DTYPES if known)}")
        numbers += [_DTYPES.index(dtype), int(grad), len(shape), *shape, *[0] * (_MOST_DIMENSIONS - len(shape))]
    return torch.tensor(numbers + [0] * (_HEADER - len(numbers)), device=HOST)


def _decode(header):
    numbers = header.tolist()
    count, length = numbers[0], 3 + _MOST_DIMENSIONS
    parts = [numbers[1 + i * length:1 + (i + 1) * length] for i in range(count)]
    return tuple((tuple(part[3:3 + part[2]]), _DTYPES[part[0]], bool(part[1])) for part in parts)


class _Flying:
    """A message that gloo or NCCL sends or receives. `sent` keeps the tensors alive while they are sent."""

    __slots__ = ("exchange", "works", "peer", "received", "sent")

    def __init__(self, exchange, works, peer, received=None, sent=None):
        self.exchange, self.works, self.peer, self.received, self.sent = exchange, works, peer, received, sent

    def wait(self):
        """Waits until the message is sent or received, at most for the timeout of the group, which is the deadline.
        Returns the received tensors; None for a send. Raises MessageFailed."""
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as error:
            self.exchange.failed(self.peer, error)
        return self.received


class _OnDevice:
    """A received message for a rank that computes on another device than the CPU. Gloo or a link puts the message into
    memory of the host; wait() copies it to the device."""

    __slots__ = ("flying", "device")

    def __init__(self, flying, device):
        self.flying, self.device = flying, device

    def wait(self):
        return tuple([t.detach().to(self.device).requires_grad_(t.requires_grad) for t in self.flying.wait()])


class Exchange:
    """Sends and receives the messages of a rank. Each message has a number in the program; the tags of its tensors and
    of its header follow from this number.

    In the first step the sender sends a header before each activation, with the form of the activation (form_of). Both
    ends keep the form until Pipeline.forget_shapes(), so later steps send only the tensors. The gradient of an
    activation has a tensor for each tensor of the activation that requires a gradient, of the same shape and dtype.
    Where there is a link (shared memory), messages whose form is known go over it if they fit. All others go through
    NCCL or gloo.

    group   a gloo group (dps.torch._group.connect)
    links   {process: Link} for the processes on the same machine
    names   for each process of the group, its name in errors
    device  where the rank computes. If this is not the CPU, messages are copied through memory of the host, except
            those through NCCL
    outgoing, incoming   {process: dps.torch._nccl.Group} for the processes to which, and from which, messages go
            through NCCL, except headers; these processes have no link"""

    def __init__(self, group, links, names, device, outgoing, incoming):
        self.group, self.links, self.names, self.device = group, links, names, device
        self.outgoing, self.incoming = outgoing, incoming
        self.forms = {}  # {number of a message with an activation: its form}

    def failed(self, peer, error):
        raise MessageFailed(self.names[peer], error) from None

    def _posted(self, post, tensors, peer, number):
        try:
            return [post([t], peer, tag) for tag, t in enumerate(tensors, _MOST_TENSORS * number)]
        except RuntimeError as error:
            self.failed(peer, error)

    # sender() and receiver() make the functions that send and receive one message in each step. Their arguments:
    # peer         the process at the other end
    # number       the number of the message
    # activation   `number` if the message is an activation; if it is a gradient, the number of its activation's message
    # what         the sending stage and the microbatch in words, for errors

    def sender(self, peer, number, activation, what):
        """Returns a function that starts to send the tensors given to it. That function returns an object whose wait()
        must be called before the message is sent again."""
        local = self._local(_links.Sender, peer, number, activation)
        post = local or partial(self._send, peer, number)
        as_is = peer in self.outgoing or self.device.type == "cpu"
        send = post if as_is else lambda tensors: post([t.cpu() for t in tensors])
        if number != activation:
            return send

        def send_activation(tensors):
            self._check(tensors, peer, number, what)
            return send(tensors)
        return send_activation

    def receiver(self, peer, number, activation):
        """Returns a function that starts to receive the message. That function returns an object whose wait() returns
        the tensors."""
        post = (self._local(_links.Receiver, peer, number, activation)
                or partial(self._receive, peer, number, activation))
        as_is = peer in self.incoming or self.device.type == "cpu"
        return post if as_is else lambda: _OnDevice(post(), self.device)

    def _local(self, kind, peer, number, activation):
        """The Sender or Receiver of a message that goes over a link. None: there is no link to `peer`, the form of the
        message is not known yet, or the message is too large for a link."""
        link, form = self.links.get(peer), self._form(number, activation)
        return kind(link, number, form) if link and form is not None and _links.fits(form) else None

    def _form(self, number, activation):
        """The form of a message (form_of); None if its activation has not been sent or received yet."""
        form = self.forms.get(activation)
        if form is None or number == activation:
            return form
        return tuple([(shape, dtype, False) for shape, dtype, grad in form if grad])

    def _check(self, tensors, peer, number, what):
        """If no form is known for this activation, sends its form; else raises UsageError if the form has changed."""
        form, known = form_of(tensors), self.forms.get(number)
        if known is None:
            self._check_tensors(tensors)
            self.forms[number] = form
            self._header(self.group.send, _encode(form), peer, number)
        elif known != form:
            raise UsageError(f"{what} to {self.names[peer]}: {_changes(known, form)}. Messages keep the form that an "
                             "earlier step has learnt; if it is to change, call forget_shapes() on all ranks first")

    def _check_tensors(self, tensors):
        for tensor in tensors:
            if tensor.layout != torch.strided:
                raise UsageError(f"the stage returns a tensor of layout {tensor.layout}; a stage can return only dense "
                                 "tensors (to_dense() makes one)")
            if tensor.device.type != self.device.type:
                raise UsageError(f"the stage returns a tensor on {tensor.device}, but this rank computes on "
                                 f"{self.device}: give Pipeline device=\"{tensor.device}\", or move the stage to "
                                 f"{self.device}")

    def _header(self, post, header, peer, number):
        _Flying(self, self._posted(post, [header], peer, number + (1 << 24)), peer).wait()

    def _send(self, peer, number, tensors):
        tensors = _links.plain(tensors)
        group = self.outgoing.get(peer, self.group)
        return _Flying(self, self._posted(group.send, tensors, peer, number), peer, sent=tensors)

    def _receive(self, peer, number, activation):
        if activation not in self.forms:
            header = torch.empty(_HEADER, dtype=torch.int64, device=HOST)
            self._header(self.group.recv, header, peer, number)
            self.forms[number] = _decode(header)
        group, device = (self.incoming[peer], self.device) if peer in self.incoming else (self.group, HOST)
        tensors = tuple([torch.empty(shape, dtype=dtype, requires_grad=grad, device=device)
                         for shape, dtype, grad in self._form(number, activation)])
        return _Flying(self, self._posted(group.recv, tensors, peer, number), peer, received=tensors)
