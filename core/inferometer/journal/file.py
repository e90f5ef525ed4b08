"""The file: append and sync, cut what is torn, read line by line."""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from inferometer.errors import ResultsError
from inferometer.journal.records import Record, from_line, to_line

NAME = "journal.jsonl"


class Journal:
    """An open journal, for appending.

    Args:
        path: the file; what is torn at its end is cut off first.

    Raises:
        ResultsError: it cannot be opened, or another process is writing to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = _opened(path)
        try:
            _lock(self._fd, path)
            self._good = _cut_torn_tail(self._fd)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, record: Record) -> None:
        """Write one record and wait until it is on the disk.

        Raises:
            ResultsError: the disk refused; everything before is whole and safe.
        """
        line = to_line(record)
        try:
            _write_all(self._fd, line)
            os.fsync(self._fd)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._good)
            folder = shlex.quote(str(self.path.parent))
            raise ResultsError(
                f"cannot write {self.path}: {error.strerror}. Everything measured before is kept; "
                f"free some space, then: inferometer run --resume {folder}"
            ) from None
        self._good += len(line)

    def close(self) -> None:
        os.close(self._fd)


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a journal, a torn last line left out.

    Raises:
        ResultsError: naming file and line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from None
    # The last piece follows the last line end: empty when whole, torn when not.
    for number, line in enumerate(lines[:-1], 1):
        yield from_line(line, f"{path}:{number}")


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror}") from None


def _lock(fd: int, path: Path) -> None:
    """Keep a second process from writing beside us; the lock goes when the file is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResultsError(f"{path}: another process is writing this run") from None
    except OSError:  # a file system without locks
        return


def _cut_torn_tail(fd: int) -> int:
    size = os.fstat(fd).st_size
    with os.fdopen(os.dup(fd), "rb") as file:
        whole = file.read().rfind(b"\n") + 1 if size else 0
    if whole < size:
        os.ftruncate(fd, whole)
    return whole


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
