"""llama.cpp's log: to standard error, and kept while a model loads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp

from inferometer_llama_cpp.load_log import LAYER_DEVICE, LoadLog

_INFO, _CONTINUED = 2, 5
_STDERR = 2
_WANTED = LAYER_DEVICE.encode()


class _Listener:
    """The one callback llama.cpp's log goes to, for as long as the process lives.

    It is never taken out again: llama.cpp logs from several places, and a callback that had
    been freed would end the process.
    """

    def __init__(self) -> None:
        self._kept: LoadLog | None = None
        self._callback = llama_cpp.llama_log_callback(self._hear)
        llama_cpp.llama_log_set(self._callback, None)

    def _hear(self, level: int, text: bytes, _: Any) -> None:
        # A load logs thousands of debug lines: whatever is done with them counts as loading.
        if level < _INFO and _WANTED not in text:
            return
        os.write(_STDERR, text)
        if self._kept is not None and level != _CONTINUED:
            self._kept.add(level, text.decode("utf-8", "replace"))

    @contextmanager
    def keep(self) -> Iterator[LoadLog]:
        self._kept = log = LoadLog()
        try:
            yield log
        finally:
            self._kept = None


keep = _Listener().keep
"""``with keep() as log:`` keeps what llama.cpp logs inside the block."""
