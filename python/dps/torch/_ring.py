"""A ring of messages in memory that two processes share."""

from ctypes import addressof, c_char, memmove

LINE = 64  # bytes of a cache line. Each message begins with one, which has its number and its length
LARGEST = 1 << 22  # most bytes of a message
MESSAGES = 16  # the used part of a ring is this many times as long as the largest message so far
# Indices of words (8 bytes each): a ring begins with three, each in a cache line of its own; _BODY is where its body
# begins.
WRITTEN, READ, ASLEEP, _BODY = 0, 8, 16, 24
_END = (1 << 64) - 1  # in place of a message's number: the next message is at the beginning of the body


def length_of(size):
    """The bytes that a message of `size` bytes takes in a ring."""
    return LINE + -(-size // LINE) * LINE


_CAPACITY = MESSAGES * length_of(LARGEST)  # bytes of the body


class Ring:
    """Messages in shared memory. One process writes them; the other reads each once, the oldest first.

    words     the memory as numbers of 8 bytes. words[WRITTEN] and words[READ] are positions in the body, in bytes:
              where the next message will be written, and where the next to be read begins. If they are equal, the ring
              is empty. words[ASLEEP] is 1 while the reader sleeps
    body      the address of the messages
    at        of the writer: words[WRITTEN]; of the reader: words[READ]
    end       of the writer: the bytes of the body that it uses, so that a ring of small messages stays in the caches

    A message is stored before words[WRITTEN] moves past it. The reader sees this order, because x86-64 processors make
    stores visible in the order of the program (_links.py uses rings only there)."""

    BYTES = 8 * _BODY + _CAPACITY

    def __init__(self, memory):
        self.words, self.body = memory.cast("Q"), addressof(c_char.from_buffer(memory)) + 8 * _BODY
        self.at, self.end = 0, 0

    def write(self, number, length, parts):
        """Writes a message if there is room, and returns whether there was.

        number   tells the reader which message it is; first() returns it
        length   the bytes that the message takes in the ring (length_of)
        parts    (address, bytes) of each tensor"""
        words, at, read = self.words, self.at, self.words[READ]
        if MESSAGES * length > self.end:
            self.end = MESSAGES * length
        place = at
        if at < read:
            if at + length >= read:
                return False
        elif at + length >= self.end:
            if length >= read:
                return False
            words[_BODY + at // 8], place = _END, 0
        words[_BODY + place // 8], words[_BODY + place // 8 + 1] = number, length
        to = self.body + place + LINE
        for address, size in parts:
            memmove(to, address, size)
            to += size
        self.at = words[WRITTEN] = place + length
        return True

    def has_message(self):
        return self.words[WRITTEN] != self.at

    def first(self):
        """(number, length, address) of the oldest message, which stays in the ring until pop(length). There must be
        one."""
        words, at = self.words, self.at
        if words[_BODY + at // 8] == _END:
            at = self.at = 0
        return words[_BODY + at // 8], words[_BODY + at // 8 + 1], self.body + at + LINE

    def pop(self, length):
        self.at += length
        self.words[READ] = self.at
