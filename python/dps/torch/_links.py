"""Messages between ranks of one machine, through memory that both processes share.

For each message, gloo sends two messages of its own, and its threads copy the tensors through the kernel. For a small
message this takes more time than the pass that computes it. Here the sender copies the tensors into a ring in shared
memory (_ring.py), and the receiver copies them out. A Unix-domain socket wakes a process that sleeps, and tells when
the other process has ended. Large messages still go through gloo."""

import json
import mmap
import os
import platform
import select
import socket
import sys
import threading
import time
import weakref
from collections import deque
from ctypes import CDLL, addressof, create_string_buffer, get_errno, memmove, string_at
from math import prod

import torch

from ._failure import MessageFailed
from ._ring import ASLEEP, LARGEST, LINE, Ring, length_of

HOST = torch.device("cpu")  # named in every call, because the user may have set another default device
_SPIN = 200e-6  # most seconds for which a rank that waits for a message does not sleep
_MOST_SKIPPED = 63  # most receives in a row that sleep without spinning, after a spin in vain
_MEMFD_CREATE = 319  # number of the system call on x86-64
_CLOEXEC = 1  # option of memfd_create: programs that this process starts do not inherit the descriptor
# milliseconds: most time of one sleep. A rank that has waited this long for a message takes in the messages of all its
# links, and then waits on.
_TICK = 50


def _machine():
    """A text that is the same in processes that can share memory: those of one running kernel and one network
    namespace. None: the system is not Linux, a sandbox forbids shared memory, or the processor is not x86-64: on other
    processors other processes may see stores in another order than this process wrote them."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None
    try:
        os.close(_memory())
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read() + os.readlink("/proc/self/ns/net")
    except OSError:
        return None


def _memory():
    """A descriptor of new memory, which can be shared. Calls the kernel itself: builds of Python for old systems, such
    as those of conda, have no os.memfd_create."""
    number = CDLL(None, use_errno=True).syscall(_MEMFD_CREATE, b"dps", _CLOEXEC)
    if number < 0:
        raise OSError(get_errno(), f"no shared memory for messages: {os.strerror(get_errno())}")
    return number


class _Socket(socket.socket):
    """A socket that closes itself when nothing refers to it. Other sockets warn then. It is also closed in copies of
    this process, such as workers that load data: otherwise the other end does not notice when this process ends."""

    all = weakref.WeakSet()  # the sockets of this process

    def __init__(self, number=None):
        super().__init__(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=number)
        self.all.add(self)

    __del__ = socket.socket.close

    @classmethod
    def close_all(cls):
        for each in list(cls.all):
            each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Socket.close_all)


def connect(store, place, peers, names, deadline):
    """Connects this process with those of its peers that run on the same machine. Returns {peer: Link}. All processes
    of the pipeline must call this. `place` and the peers are numbers of processes in the group of the pipeline.

    store      a store for this purpose alone
    place      this process
    peers      the processes with which it exchanges messages
    names      for each process, its name in errors
    deadline   the longest wait for a message, in seconds"""
    machine, secret, links = _machine(), os.urandom(16).hex(), {}
    if machine is None:
        store.set(str(place), json.dumps([None]))
        return {}

    def add(peer, connection, memory, mine):
        os.ftruncate(memory, 2 * Ring.BYTES)
        mapped = memoryview(mmap.mmap(memory, 2 * Ring.BYTES))
        os.close(memory)
        rings = [Ring(mapped[:Ring.BYTES]), Ring(mapped[Ring.BYTES:])]
        links[peer] = Link(connection, rings[mine], rings[1 - mine], names[peer], deadline)

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
                connection, memory = _Socket(), _memory()
                connection.connect(bytes.fromhex(name))
                socket.send_fds(connection, [f"{place} {word}".encode()], [memory])
                add(peer, connection, memory, 0)
        while len(links) < len(near):
            connection = _Socket(listener.accept()[0].detach())
            connection.settimeout(deadline)
            hello, memories, _, _ = socket.recv_fds(connection, 100, 1)
            peer, _, word = hello.decode().partition(" ")
            if word == secret and memories:
                add(int(peer), connection, memories[0], 1)
            else:
                connection.close()
                for memory in memories:
                    os.close(memory)
    for link in links.values():
        link.all = list(links.values())
    return links


class Link:
    """The connection with one other process of this machine.

    outgoing   the Ring with messages to the other process
    incoming   the Ring with messages from it. A process that sleeps says so in the ring that it reads
    early      {number: the messages with this number that came before receive() asked for them, the oldest first}
    ended      whether the other process has closed the connection
    poll       waits until the other process wakes this one or closes the connection
    skip       how many receives did not spin after the last spin in vain; halved by each spin that is not in vain
    skipping   how many of these receives are still to come
    all        all links of this process"""

    # Taking a lock is a memory barrier: other processes see all earlier stores before this process does later loads.
    _barrier = threading.Lock()

    def __init__(self, connection, outgoing, incoming, name, deadline):
        connection.setblocking(False)
        self.socket, self.outgoing, self.incoming, self.name, self.deadline = (connection, outgoing, incoming, name,
                                                                               deadline)
        self.early, self.ended, self.all = {}, False, [self]
        self.poll, self.skip, self.skipping = _poll_of([self]), 0, 0

    def close(self):
        """Ends the connection. The other process notices this at once."""
        self.socket.close()

    def _fail(self, error):
        raise MessageFailed(self.name, error)

    # --- sending ---

    def send(self, number, length, parts):
        """Sends a message (Ring.write). Waits while there is no room. A proven program completes even if each send
        waits until the other process receives (program_verify in program/program.h)."""
        if self.ended:
            self._fail("connection closed")
        if not self.outgoing.write(number, length, parts):
            self._send_later(number, length, parts)
        self._wake()

    def _send_later(self, number, length, parts):
        """Waits for room, and writes the message. Meanwhile takes in messages, because the other process may itself
        wait for room on some link."""
        until, written = time.monotonic() + self.deadline, False

        def write():
            nonlocal written
            for link in self.all:
                link._take_in()
            written = written or self.outgoing.write(number, length, parts)
            return written

        while not write():
            if self.ended:
                self._fail("connection closed")
            self._sleep(self.all, until, write)

    def _wake(self):
        """Wakes the other process if it sleeps; to be called after each change of a ring."""
        with self._barrier:
            pass
        words = self.outgoing.words
        if words[ASLEEP]:
            words[ASLEEP] = 0
            try:
                self.socket.send(b"!")
            except BlockingIOError:  # the socket is full of earlier bytes: they wake the other process
                pass
            except OSError:
                self.ended = True

    # --- receiving ---

    def receive(self, number, parts):
        """Waits for the message with this number, and copies it to the parts: (address, bytes) of each tensor."""
        until = None
        if number not in self.early:
            self._spin()
        while number not in self.early:
            while self.incoming.has_message():
                found, length, address = self.incoming.first()
                if found == number:
                    _copy_out(address, parts)
                    self.incoming.pop(length)
                    self._wake()
                    return
                self._keep()
            if self.ended:
                self._fail("connection closed")
            until = until or time.monotonic() + self.deadline
            if not self._sleep([self], until, self.incoming.has_message):
                for link in self.all:  # the message may depend on a rank that waits for room on another link
                    link._take_in()
        messages = self.early[number]
        message = messages.popleft()
        if not messages:
            del self.early[number]
        _copy_out(addressof(message), parts)

    def _keep(self):
        """Moves the oldest message from the ring into `early`."""
        number, length, address = self.incoming.first()
        message = create_string_buffer(string_at(address, length - LINE))
        self.early.setdefault(number, deque()).append(message)
        self.incoming.pop(length)
        self._wake()

    def _take_in(self):
        """Moves all messages from the incoming ring to `early`."""
        while self.incoming.has_message():
            self._keep()

    # --- waiting ---

    def _spin(self):
        """Waits for a message for at most _SPIN without sleeping. Sleeping and being woken takes more processor time
        than a short wait. A spin is in vain if the other process computes for long, or if other programs use the
        processors. After a spin in vain the next receives do not spin: 1 at first, about twice as many after each
        further spin in vain, at most _MOST_SKIPPED. A spin that is not in vain halves this number."""
        if self.skipping:
            self.skipping -= 1
            return
        has_message, clock = self.incoming.has_message, time.perf_counter
        until = clock() + _SPIN
        while not has_message():
            if clock() >= until:
                self.skip = self.skipping = min(2 * self.skip + 1, _MOST_SKIPPED)
                return
        self.skip //= 2

    def _sleep(self, links, until, must_not):
        """Sleeps until another process changes a ring of these links, or ends; at most for _TICK. Does not sleep if
        must_not() is true after the rings say that this process sleeps. Returns whether something happened. Raises
        MessageFailed if it is later than `until`."""
        if time.monotonic() > until:
            self._fail("timed out")
        links = [link for link in links if not link.ended]
        for link in links:
            link.incoming.words[ASLEEP] = 1
        with self._barrier:
            pass
        happened = must_not() or (links[0].poll if len(links) == 1 else _poll_of(links))(_TICK)
        for link in links:
            link.incoming.words[ASLEEP] = 0
            link._notice()
        return happened

    def _notice(self):
        """Reads the bytes that _wake() of the other process has sent. Sets `ended` if the other process has closed the
        connection."""
        try:
            while self.socket.recv(16):
                pass
        except BlockingIOError:
            return
        except OSError:
            pass
        self.ended = True


def _copy_out(address, parts):
    for to, size in parts:
        memmove(to, address, size)
        address += size


def _poll_of(links):
    poll = select.poll()
    for link in links:
        poll.register(link.socket, select.POLLIN)
    return poll.poll


class Sender:
    """A message that this process sends over a link in each step: tensors of one form."""

    def __init__(self, link, number, form):
        self.link, self.number, self.sizes = link, number, _sizes(form)
        self.length = length_of(sum(self.sizes))

    def __call__(self, tensors):
        """Sends tensors. The caller may change them as soon as this returns."""
        tensors = plain(tensors)
        self.link.send(self.number, self.length, [(t.data_ptr(), size) for t, size in zip(tensors, self.sizes)])
        return self

    def wait(self):
        """The message is already sent."""


class Receiver:
    """A message that this process receives over a link in each step: tensors of one form."""

    def __init__(self, link, number, form):
        self.link, self.number = link, number
        # torch.empty_like takes less time than torch.empty with all these arguments
        self.parts = [(torch.empty(shape, dtype=dtype, device=HOST), grad, size)
                      for (shape, dtype, grad), size in zip(form, _sizes(form))]

    def __call__(self):
        return self

    def wait(self):
        """Returns the tensors of the message."""
        made = tuple([torch.empty_like(like).requires_grad_(grad) for like, grad, _ in self.parts])
        self.link.receive(self.number, [(t.data_ptr(), size) for t, (_, _, size) in zip(made, self.parts)])
        return made


def plain(tensors):
    """Returns contiguous tensors with the same elements, whose memory holds exactly these elements. The memory of a
    view such as x.conj() holds the elements of x; a bit of the view says that its elements are conjugated (or
    negated)."""
    return [t.contiguous().resolve_conj().resolve_neg() for t in tensors]


def _sizes(form):
    """The number of bytes of each tensor."""
    return [prod(shape) * torch.empty((), dtype=dtype, device=HOST).element_size() for shape, dtype, _ in form]


def fits(form):
    """Whether a message of this form may go over a link."""
    return sum(_sizes(form)) <= LARGEST
