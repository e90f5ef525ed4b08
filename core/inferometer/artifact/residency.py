"""How much of a model is already in the operating system's file cache.

A load that finds its file in memory is another measurement than one that reads a disk. The
kernel is asked with ``mincore`` about a mapping of the file, which reads nothing in.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from inferometer.artifact.files import model_files
from inferometer.errors import ModelError

_WINDOW_BYTES = 2**30
"""Mapped at a time: the answer takes one byte per page, and models can be very large."""
_MAP_FAILED = ctypes.c_void_p(-1).value
_ABSENT = bytes(range(0, 256, 2))
"""Answers whose lowest bit, the only portable one, is off."""


def resident_ratio(path: Path) -> float | None:
    """Return which share (0 to 1) of a model's pages is in the file cache; never raises.

    A shard stands for its whole split model, a folder for its files. None when it cannot be
    known: no such system call, nothing there, or a kernel that does not say.
    """
    try:
        counts = [_pages(file) for file in model_files(path)]
        return sum(resident for resident, _ in counts) / sum(pages for _, pages in counts)
    except (OSError, ModelError, AttributeError, ValueError, ZeroDivisionError):
        return None


def _pages(path: Path) -> tuple[int, int]:
    """Return how many of a file's pages are resident, and how many it has."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        _check_told(path, status)
        resident = sum(
            _resident_pages(file.fileno(), offset, min(_WINDOW_BYTES, status.st_size - offset))
            for offset in range(0, status.st_size, _WINDOW_BYTES)
        )
    return resident, _page_count(status.st_size)


def _check_told(path: Path, status: os.stat_result) -> None:
    # Linux calls every page resident when the caller neither owns the file nor may write it.
    if os.geteuid() not in (0, status.st_uid) and not os.access(path, os.W_OK):
        raise PermissionError


def _resident_pages(descriptor: int, offset: int, length: int) -> int:
    libc = _libc()
    address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        answer = (ctypes.c_ubyte * _page_count(length))()
        if libc.mincore(address, length, answer):
            raise OSError(ctypes.get_errno(), "mincore")
        return len(bytes(answer).translate(None, delete=_ABSENT))
    finally:
        libc.munmap(address, length)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc


def _page_count(size: int) -> int:
    return -(-size // mmap.PAGESIZE)
