"""Small messages between ranks of one machine, through Unix-domain sockets.

For each message, gloo sends two messages of its own, which a thread of gloo handles. For a small message this takes
more time than the pass that computes it. Here the sender copies the tensors into the socket, and the receiver copies
them out. Large messages still go through gloo, which receives them while a pass computes."""

import json
import os
import select
import socket
import time
from collections import deque
from ctypes import addressof, c_char, memmove
from itertools import accumulate
from math import prod
from struct import pack

import torch

from ._failure import MessageFailed

HOST = torch.device("cpu")  # named in every call, because the user may have set another default device
LARGEST = 1 << 16  # most bytes of a message that goes through a socket
_HEAD = 8  # bytes of the head with which each message begins: the number of the message
_SPIN = 50e-6  # most seconds for which a rank that waits for a message does not sleep
_MOST_SKIPPED = 63  # most receives in a row that sleep at once, since spinning was in vain before
_TICK = 50  # milliseconds after which a rank that waits for a message on one link also serves its other links


def _machine():
    """A text that is the same in processes that can connect their sockets: those of one running kernel and one network
    namespace. None: this is not Linux."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read() + os.readlink("/proc/self/ns/net")
    except OSError:  # not Linux
        return None


class _Socket(socket.socket):
    """A socket that closes itself when nothing refers to it. Other sockets warn then."""

    def __init__(self, number=None):
        super().__init__(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=number)

    __del__ = socket.socket.close


def connect(store, place, peers, names, deadline):
    """Connects this process with those of its peers that run on the same machine. Returns {peer: Link}. All processes
    of the pipeline must call this. `place` and the peers are numbers of processes in the group of the pipeline.

    store      a store for this purpose alone
    place      this process
    peers      the processes with which it exchanges messages
    names      for each process, its name in errors
    deadline   the longest wait for a message, in seconds"""
    machine, secret, found = _machine(), os.urandom(16).hex(), {}
    if machine is None:
        store.set(str(place), json.dumps([None]))
        return {}
    with _Socket() as listener:
        listener.bind("")  # Linux chooses a name that is free
        listener.listen(len(peers) + 1)
        listener.settimeout(deadline)
        store.set(str(place), json.dumps([machine, listener.getsockname().hex(), secret]))
        addresses = {peer: json.loads(store.get(str(peer)).decode()) for peer in peers}
        near = {peer: rest for peer, (there, *rest) in addresses.items() if there == machine}
        for peer in near:
            if peer < place:
                name, word = near[peer]
                found[peer] = _Socket()
                found[peer].connect(bytes.fromhex(name))
                found[peer].send(f"{place} {word}".encode())
        while len(found) < len(near):
            connection = _Socket(listener.accept()[0].detach())
            connection.settimeout(deadline)
            peer, _, word = connection.recv(100).decode().partition(" ")
            if word == secret:
                found[int(peer)] = connection
            else:
                connection.close()
    links = {peer: Link(connection, names[peer], deadline) for peer, connection in found.items()}
    for link in links.values():
        link.all = list(links.values())
    return links


class Link:
    """The connection with one other process of this machine. Each send and each receive of the socket is one message.

    buffer   the message received last: its head (_HEAD bytes), then its tensors, from the address `body` on
    early    {head: the messages with this head that came before receive() asked for them, the oldest first}
    unsent   copies of messages for which the socket had no room, the oldest first
    ended    whether the other process has closed the connection
    poll     tells whether a message has come, or the other process has closed the connection
    skip     how many receives did not spin after the last spin in vain; halved by each spin that is not in vain
    skipping how many of these receives are still to come
    all      all links of this process"""

    def __init__(self, connection, name, deadline):
        connection.setblocking(True)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pack("ll", 0, _TICK * 1000))
        self.socket, self.name, self.deadline = connection, name, deadline
        self.buffer = bytearray(_HEAD + LARGEST)
        self.body = addressof(c_char.from_buffer(self.buffer)) + _HEAD
        self.early, self.unsent, self.ended, self.all = {}, deque(), False, [self]
        coming = select.poll()
        coming.register(connection, select.POLLIN)
        self.poll, self.skip, self.skipping = coming.poll, 0, 0

    def close(self):
        """Ends the connection. The other process notices this at once."""
        self.socket.close()

    def _fail(self, error):
        raise MessageFailed(self.name, error) from None

    def send(self, parts):
        """Sends a message, given in parts. If the socket has no room, keeps a copy in `unsent`."""
        try:
            if not self.unsent:
                self.socket.sendmsg(parts, (), socket.MSG_DONTWAIT)
                return
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
        self.unsent.append(b"".join(parts))

    def flush(self):
        """Waits until `unsent` is empty."""
        until = time.monotonic() + self.deadline
        while self.unsent:
            self._exchange_all(_TICK, until)

    def receive(self, head):
        """Waits for the message that begins with `head`, and puts it into the buffer."""
        until = None
        if head not in self.early:
            self._spin()
        while head not in self.early:
            try:
                count = self.socket.recv_into(self.buffer)
            except BlockingIOError:  # nothing came for _TICK: the other process may itself wait for room on some link
                until = until or time.monotonic() + self.deadline
                self._exchange_all(0, until)
                continue
            except OSError as error:
                self._fail(error)
            if self.buffer.startswith(head):
                return
            self._keep(count)
            if self.ended:
                self._fail("connection closed")
        messages = self.early[head]
        message = messages.popleft()
        self.buffer[:len(message)] = message
        if not messages:
            del self.early[head]

    def _spin(self):
        """Waits for a message for at most _SPIN without sleeping. Sleeping and being woken takes more processor time
        than a short wait. A spin is in vain if the other process computes for long, or if other programs use the
        processors. After a spin in vain the next receives do not spin: about twice as many as the last time."""
        if self.skipping:
            self.skipping -= 1
            return
        until = time.perf_counter() + _SPIN
        while not self.poll(0) and time.perf_counter() < until:
            pass
        if time.perf_counter() < until:
            self.skip //= 2
        else:
            self.skip = self.skipping = min(2 * self.skip + 1, _MOST_SKIPPED)

    def _keep(self, count):
        if count == 0:
            self.ended = True
        else:
            self.early.setdefault(bytes(self.buffer[:_HEAD]), deque()).append(bytes(self.buffer[:count]))

    def _exchange_all(self, milliseconds, until):
        """Receives all messages that have come over all links into `early`, and sends unsent ones. If there is nothing
        to do, waits for at most `milliseconds`. Raises MessageFailed if it is later than `until`."""
        if time.monotonic() > until:
            self._fail("timed out")
        links = {link.socket.fileno(): link for link in self.all if not link.ended}
        poll = select.poll()
        for number, link in links.items():
            poll.register(number, select.POLLIN | (select.POLLOUT if link.unsent else 0))
        for number, _ in poll.poll(milliseconds):
            links[number]._exchange()

    def _exchange(self):
        try:
            while not self.ended:
                self._keep(self.socket.recv_into(self.buffer, 0, socket.MSG_DONTWAIT))
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        try:
            while self.unsent:
                self.socket.send(self.unsent[0], socket.MSG_DONTWAIT)
                self.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)


class Sender:
    """A message that this process sends over a link in each step: tensors of one form."""

    def __init__(self, link, number, form):
        self.link, self.head = link, number.to_bytes(_HEAD, "little")
        self.arrays = [c_char * size for size in _sizes(form)]

    def __call__(self, tensors):
        """Sends tensors, or copies of them later: the caller may change the tensors as soon as this returns."""
        tensors = [t.contiguous() for t in tensors]
        self.link.send([self.head, *[array.from_address(t.data_ptr()) for array, t in zip(self.arrays, tensors)]])
        return self

    def wait(self):
        if self.link.unsent:
            self.link.flush()


class Receiver:
    """A message that this process receives over a link in each step: tensors of one form."""

    def __init__(self, link, number, form):
        self.link, self.head = link, number.to_bytes(_HEAD, "little")
        sizes = _sizes(form)
        starts = accumulate(sizes, initial=link.body)
        # torch.empty_like takes less time than torch.empty with all these arguments
        self.parts = [(torch.empty(shape, dtype=dtype, device=HOST), grad, start, size)
                      for (shape, dtype, grad), start, size in zip(form, starts, sizes)]

    def __call__(self):
        return self

    def wait(self):
        """Returns the tensors of the message."""
        self.link.receive(self.head)
        made = []
        for like, grad, start, size in self.parts:
            tensor = torch.empty_like(like).requires_grad_(grad)
            memmove(tensor.data_ptr(), start, size)
            made.append(tensor)
        return tuple(made)


def _sizes(form):
    """The number of bytes of each tensor."""
    return [prod(shape) * torch.empty((), dtype=dtype, device=HOST).element_size() for shape, dtype, _ in form]


def is_small(form):
    return sum(_sizes(form)) <= LARGEST
