"""Exceptions of this package. If libdps finds the error, the text is the message of dpc."""

import ctypes
from contextlib import contextmanager
from typing import NamedTuple, Optional

from . import _library as c


class Diagnostic(NamedTuple):
    """A mistake in a source file, or a note. A note explains the mistake before it, or says how many more mistakes
    there are. Lines and columns count from 1. `line` is 0 if the diagnostic has no position in the source."""

    severity: str  # "error" or "note"
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    help: Optional[str]


class Error(Exception):
    """The base class of this package's exceptions. If libdps finds the error, str() is what dpc prints, with source
    lines and help, in the words of this package."""

    def __init__(self, words, diagnostics=()):
        super().__init__(words)
        self.diagnostics = list(diagnostics)

    @property
    def line(self):
        """The line of the first mistake; None if the error has no position in a source file."""
        return self.diagnostics[0].line if self.diagnostics else None

    @property
    def column(self):
        return self.diagnostics[0].column if self.diagnostics else None

    @property
    def help(self):
        return self.diagnostics[0].help if self.diagnostics else None


class ScheduleError(Error, ValueError):
    """A schedule, a program file, a cost file or the input of balance() is wrong, or such a file cannot be read."""


class UsageError(Error, ValueError):
    """An argument is wrong."""


class SystemFailure(Error, OSError):
    """The system failed: for example, a file could not be written."""


_ERRORS = {c.BAD_INPUT: ScheduleError, c.BAD_USAGE: UsageError, c.FAILED: SystemFailure}


def _text(value):
    return None if value is None else value.decode("utf-8", "replace")


def _diagnostics(session):
    for index in range(c.library.dps_diagnostic_count(session)):
        found = c.Diagnostic()
        c.library.dps_get_diagnostic(session, index, ctypes.byref(found))
        yield Diagnostic(("error", "note")[found.severity], found.line, found.column, found.end_line,
                         found.end_column, _text(found.text), _text(found.help))


class Session:
    """A session of libdps (a `dps` handle). The function session() opens one for one operation and frees it
    afterwards."""

    def __init__(self, handle):
        self.handle = handle

    def call(self, name, *arguments):
        """Calls the libdps function `name`, which returns a status. Raises an exception if the status is not OK."""
        status = getattr(c.library, name)(self.handle, *arguments)
        if status == c.OK:
            return
        words = _text(c.library.dps_error(self.handle))
        if status == c.NO_MEMORY:
            raise MemoryError(words)
        raise _ERRORS[status](words, _diagnostics(self.handle))


@contextmanager
def session():
    handle = c.library.dps_new(ctypes.byref(c.Host(for_python=1)))
    if not handle:
        raise MemoryError("no memory for a session of libdps")
    try:
        yield Session(handle)
    finally:
        c.library.dps_free(handle)
