"""Tests messages through shared memory between threads, which have the parts of ranks on one machine."""

import json
import os
import random
import socket
import threading
import unittest.mock
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from ctypes import string_at

import torch

from dps.torch import _exchange, _links, _ring
from dps.torch._failure import MessageFailed


class Store:
    """In place of a store of torch.distributed."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values)
            return self.values[key]


def connected(deadline, ranks=2):
    """For each rank, {other rank: Link}."""
    store, names = Store(), [f"rank {rank}" for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(lambda rank: _links.connect(store, rank, set(range(ranks)) - {rank}, names, deadline),
                             range(ranks)))


def form_of(tensors):
    return [(t.shape, t.dtype, t.requires_grad) for t in tensors]


def sent(links, peer, number, tensors):
    sender = _links.Sender(links[peer], number, form_of(tensors))
    return sender(tensors)


def received(links, peer, number, form):
    return _links.Receiver(links[peer], number, form)().wait()


def every_kind():
    """Any number of tensors of any dtype and shape arrive, in any order."""
    one, other = connected(60)
    messages = {
        3: [torch.arange(6.0).reshape(2, 3).t(), torch.tensor(7), torch.ones(2, dtype=torch.bfloat16)],
        1: [],
        2: [torch.zeros(0, 4), torch.tensor([True, False, True]), torch.randn(3, dtype=torch.complex128)],
        4: [torch.ones(2, 2, requires_grad=True)],
        5: [torch.randn(3, dtype=torch.complex64).conj(), torch.randn(1, dtype=torch.complex64).conj().imag],
    }
    for number, tensors in messages.items():
        sent(one, 1, number, tensors).wait()
    for number in sorted(messages):
        found = received(other, 0, number, form_of(messages[number]))
        assert form_of(found) == form_of(messages[number]), number
        assert all(torch.equal(a, b) for a, b in zip(found, messages[number])), number


def every_dtype():
    """Tensors of each dtype that this PyTorch has arrive, and so does their form."""
    one, other = connected(60)
    warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
    for number, dtype in enumerate(filter(None, _exchange._DTYPES)):
        elements = torch.tensor([0, 1] * 8, dtype=torch.uint8)
        form = form_of([elements.view(dtype)])
        assert list(_exchange._decode(_exchange._encode(form))) == form, dtype
        sent(one, 1, number, [elements.view(dtype)]).wait()
        found, = received(other, 0, number, form)
        assert found.dtype == dtype and torch.equal(found.view(torch.uint8), elements), dtype


def more_than_fits():
    """Three ranks send each other more than the rings hold, then receive it in another order. The same numbers come
    again in the next step."""
    ranks, count, steps, size = 3, 2 * _ring.MESSAGES, 2, 1000

    def run(rank, links):
        values = [[torch.full((size + number,), 1000 * step + number, dtype=torch.int64) for number in range(count)]
                  for step in range(steps)]
        works = [sent(links, peer, number, [values[step][number] + 100000 * rank])
                 for step in range(steps) for number in range(count) for peer in links]
        for step in range(steps):
            for number in reversed(range(count)):
                for peer in links:
                    wanted = values[step][number] + 100000 * peer
                    found, = received(links, peer, number, form_of([wanted]))
                    assert torch.equal(found, wanted), (rank, peer, step, number)
        for work in works:
            work.wait()

    with ThreadPoolExecutor(ranks) as pool:
        for result in [pool.submit(run, rank, links) for rank, links in enumerate(connected(60, ranks))]:
            result.result()


def waits_elsewhere():
    """A rank that has sent more than fits may then wait for something else, such as a message through gloo or a sum:
    all its messages still arrive."""
    one, other = connected(60)
    count, arrived = 2 * _ring.MESSAGES, threading.Event()

    def run():
        for number in range(count):
            sent(one, 1, number, [torch.tensor(number)])
        return arrived.wait(30)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(run)
        for number in range(count):
            found, = received(other, 0, number, form_of([torch.tensor(0)]))
            assert found == number
        arrived.set()
        assert result.result(), "a message came only after the wait"


def rings():
    """Messages of random sizes, written while there is room and read at random, come out as they went in. An empty ring
    has room for every message that may go over a link."""
    written, read = [_ring.Ring(memory) for memory in [memoryview(bytearray(_ring.Ring.BYTES))] * 2]
    draw, waiting, refused = random.Random(7), deque(), 0
    for number in range(1000):
        size = draw.choice((0, 1, 64, 1000, 70000, draw.randrange(_ring.LARGEST), _ring.LARGEST))
        values = draw.randbytes(1) * size
        if written.write(number, _ring.length_of(size), [(values, size)]):
            waiting.append((number, size, values[:1]))
        else:
            assert waiting, "no room in an empty ring"
            refused += 1
        for _ in range(draw.randrange(2) if draw.randrange(100) else len(waiting)):
            if waiting:
                number, size, value = waiting.popleft()
                found, length, address = read.first()
                assert (found, length) == (number, _ring.length_of(size))
                assert string_at(address, size) == value * size
                read.pop(length)
        assert read.has_message() == bool(waiting)
    assert refused > 20, refused


def failed(function, *arguments):
    try:
        function(*arguments)
    except MessageFailed as error:
        return f"{error.other}: {error}"
    raise AssertionError("no failure")


def failures():
    """A wait for a message, or for room to send one, ends at the deadline; if the other end is closed, it ends at once,
    but a message that was sent before still arrives."""
    one, other = connected(0.2)
    form, large = form_of([torch.ones(1)]), [torch.ones(_ring.LARGEST // 4)]
    assert failed(received, one, 1, 0, form) == "rank 1: timed out"
    assert failed(lambda: [sent(one, 1, number, large) for number in range(_ring.MESSAGES)]) == "rank 1: timed out"
    one, other = connected(60)
    sent(other, 0, 0, [torch.ones(1)])
    other[0].close()
    received(one, 1, 0, form)
    assert failed(received, one, 1, 1, form) == "rank 1: connection closed"
    assert failed(sent, one, 1, 1, large).startswith("rank 1: ")


def copies_of_the_process():
    """The other end notices that a link is closed also while a copy of this process runs, such as a worker that loads
    data."""
    one, other = connected(60)
    (wait_for_child, of_child), (wait_for_parent, of_parent) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(of_child, b"!")
            os.close(of_parent)
            os.read(wait_for_parent, 1)
        finally:
            os._exit(0)
    try:
        os.read(wait_for_child, 1)
        other[0].close()
        assert one[1].poll(30000), "not noticed"
        assert failed(received, one, 1, 1, form_of([torch.ones(1)])) == "rank 1: connection closed"
    finally:
        os.write(of_parent, b"!")
        os.waitpid(child, 0)
        for number in (wait_for_child, of_child, of_parent, wait_for_parent):
            os.close(number)


def spins():
    """The more spins were in vain, the fewer receives spin; with messages it is the other way round."""
    one, other = connected(60)
    link = one[1]

    def spun(count):
        found = []
        for _ in range(count):
            link._spin()
            found.append((link.skip, link.skipping))
        return found

    assert spun(6) == [(1, 1), (1, 0), (3, 3), (3, 2), (3, 1), (3, 0)], "no message"
    spun(200)
    assert link.skip == _links._MOST_SKIPPED
    spun(link.skipping)
    sent(other, 0, 1, [torch.ones(1)])
    with unittest.mock.patch.object(_links, "_SPIN", 60):
        found = spun(2)
    assert found == [(_links._MOST_SKIPPED // 2, 0), (_links._MOST_SKIPPED // 4, 0)], "a message"


def without_memfd_create():
    """Ranks of one machine are connected also if Python has no os.memfd_create, but not if the kernel refuses."""
    with unittest.mock.patch.dict(vars(os)):
        vars(os).pop("memfd_create", None)
        one, other = connected(60)
        sent(one, 1, 1, [torch.ones(3)])
        received(other, 0, 1, form_of([torch.ones(3)]))
    with unittest.mock.patch.object(_links, "_MEMFD_CREATE", -1):  # there is no such call
        assert connected(60) == [{}, {}]


def strangers():
    """A process that does not know the secret word of a rank is not connected with it."""
    store, names, wanted = Store(), ["rank 0", "rank 1"], [torch.ones(3)]
    with ThreadPoolExecutor(2) as pool, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        first = pool.submit(_links.connect, store, 0, {1}, names, 60)
        _, name, _ = json.loads(store.get("0").decode())
        stranger.connect(bytes.fromhex(name))
        read, written = os.pipe()
        os.set_blocking(read, False)
        socket.send_fds(stranger, [b"1 wrong"], [written])
        os.close(written)
        second = pool.submit(_links.connect, store, 1, {0}, names, 60)
        sent(second.result(), 0, 5, wanted)
        found, = received(first.result(), 1, 5, form_of(wanted))
        assert torch.equal(found, *wanted)
        assert not stranger.recv(1), "not disconnected"
        assert not os.read(read, 1)  # the descriptor of the stranger is closed too
        os.close(read)
