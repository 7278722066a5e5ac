"""Messages between ranks: activations and gradients, each a tuple of tensors."""

import torch

from .._errors import UsageError

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
           torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)
_MOST_DIMENSIONS, _MOST_TENSORS = 8, 32
_HEADER = 1 + _MOST_TENSORS * (3 + _MOST_DIMENSIONS)


def form_of(tensors):
    """Shape, dtype and requires_grad of each tensor."""
    return tuple([(t.shape, t.dtype, t.requires_grad) for t in tensors])


def say(form):
    """The text of a form, for messages of errors."""
    return ", ".join(f"{list(shape)} {str(dtype)[6:]}{'' if grad else ' without gradient'}"
                     for shape, dtype, grad in form) or "no tensors"


def _encode(form):
    if len(form) > _MOST_TENSORS or any(len(shape) > _MOST_DIMENSIONS for shape, _, _ in form):
        raise UsageError(f"a stage gives at most {_MOST_TENSORS} tensors of at most {_MOST_DIMENSIONS} dimensions, "
                         f"not {say(form)}")
    numbers = [len(form)]
    for shape, dtype, grad in form:
        if dtype not in _DTYPES:
            raise UsageError(f"a stage cannot give a tensor of {dtype}")
        numbers += [_DTYPES.index(dtype), int(grad), len(shape), *shape, *[0] * (_MOST_DIMENSIONS - len(shape))]
    return torch.tensor(numbers + [0] * (_HEADER - len(numbers)))


def _decode(header):
    numbers = header.tolist()
    count, length = numbers[0], 3 + _MOST_DIMENSIONS
    parts = [numbers[1 + i * length:1 + (i + 1) * length] for i in range(count)]
    return tuple((tuple(part[3:3 + part[2]]), _DTYPES[part[0]], bool(part[1])) for part in parts)


class MessageFailed(Exception):
    """A message was not received or not sent: the connection closed, or the deadline is over.

    other   the rank at the other end, in words"""

    def __init__(self, other, error):
        super().__init__(str(error))
        self.other = other


class Exchange:
    """Sends and receives the messages of a rank. Each message has a number in the program; the tags of its tensors and
    of its header follow from this number.

    In the first step the sender sends a header with the form of each activation before it. Both ends keep the form, so
    later steps send only the tensors. The gradient of an activation has a tensor for each tensor of the activation that
    requires a gradient, of the same shape and dtype.

    names   for each process of the group, its name in errors"""

    def __init__(self, group, names):
        self.group, self.names = group, names
        self.forms = {}  # {number of a message with an activation: its form}

    def _failed(self, peer, error):
        raise MessageFailed(self.names[peer], error) from None

    def _posted(self, post, tensors, peer, number):
        try:
            return [post([t], peer, tag) for tag, t in enumerate(tensors, _MOST_TENSORS * number)]
        except RuntimeError as error:
            self._failed(peer, error)

    def send(self, tensors, peer, number):
        """Starts to send tensors. Pass the result to wait(), which then returns None; it keeps the tensors alive until
        then."""
        tensors = [t.contiguous() for t in tensors]
        return self._posted(self.group.send, tensors, peer, number), peer, None, tensors

    def send_activation(self, tensors, peer, key, number):
        form = form_of(tensors)
        known = self.forms.get(key)
        if known is None:
            self.forms[key] = form
            header = self._posted(self.group.send, [_encode(form)], peer, self._header_number(number))
            self.wait((header, peer, None, None))
        elif known != form:
            raise UsageError(f"the stage gives {say(form)} for this microbatch; in the first step it gave "
                             f"{say(known)}. Where shapes change, call forget_shapes() on all ranks")
        return self.send(tensors, peer, number)

    @staticmethod
    def _header_number(number):
        return number + (1 << 24)

    def receive_gradients(self, peer, key, number):
        """Starts to receive the gradients of the activation `key`, one for each of its tensors that requires a
        gradient."""
        return self.receive([(shape, dtype, False) for shape, dtype, grad in self.forms[key] if grad], peer, number)

    def receive(self, form, peer, number):
        """Starts to receive tensors of this form. Pass the result to wait(), which returns the tensors."""
        tensors = tuple([torch.empty(shape, dtype=dtype, requires_grad=grad) for shape, dtype, grad in form])
        return self._posted(self.group.recv, tensors, peer, number), peer, tensors, None

    def receive_activation(self, peer, key, number):
        form = self.forms.get(key)
        if form is None:
            header = torch.empty(_HEADER, dtype=torch.int64)
            self.wait((self._posted(self.group.recv, [header], peer, self._header_number(number)), peer, None, None))
            form = self.forms[key] = _decode(header)
        return self.receive(form, peer, number)

    def wait(self, flying):
        works, peer, result, _ = flying
        try:
            for work in works:
                work.wait()  # waits at most for the timeout of the group, which is the deadline
        except RuntimeError as error:
            self._failed(peer, error)
        return result
