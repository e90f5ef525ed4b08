"""What llama.cpp writes to its log while a model loads, read for facts. Pure.

Three facts are nowhere else: why a load failed, which device each layer went to, and what
became of flash attention when the engine was left to decide.
"""

from __future__ import annotations

import re

ERROR = 4
"""Level of an error, as ggml numbers it."""
LAYER_DEVICE = "assigned to device"
"""Words of the only debug lines that are read."""

_LAYER_DEVICE = re.compile(rf"layer +(\d+) {LAYER_DEVICE} ([^,\s]+)")
_FLASH_ASKED = re.compile(r"flash_attn +(?:= )?(auto|enabled|disabled)")
_FLASH_RESOLVED = re.compile(r"Flash Attention\b.*\b(enabled|disabled)")
_ORIGIN = re.compile(r"^\w+: (?:error loading model: )?")
_OUT_OF_MEMORY = ("failed to allocate", "insufficient memory", "out of memory")
_SAYS_NOTHING = "failed to load model"


class LoadLog:
    """The log of one load, line by line, with levels."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []

    def add(self, level: int, text: str) -> None:
        self._lines.append((level, text))

    @property
    def reason(self) -> str:
        """Why the load failed, in llama.cpp's words; its log is on standard error in full."""
        errors = [_ORIGIN.sub("", text.strip()) for level, text in self._lines if level == ERROR]
        telling = [error for error in errors if error != _SAYS_NOTHING]
        return "; ".join(telling or errors) or "it gave no reason"

    @property
    def failure(self) -> str:
        """The kind of a failed load: ``out_of_memory`` or ``load_failed``."""
        memory = any(words in self.reason for words in _OUT_OF_MEMORY)
        return "out_of_memory" if memory else "load_failed"

    @property
    def layer_devices(self) -> tuple[str, ...]:
        """The device of each layer, the output layer last; empty when the log does not say."""
        found = (_LAYER_DEVICE.search(text) for _, text in self._lines)
        return tuple({match[1]: match[2] for match in found if match}.values())

    @property
    def flash_attention(self) -> str | None:
        """``enabled`` or ``disabled``, as it happened; None when the log does not say."""
        asked = self._last(_FLASH_ASKED)
        return self._last(_FLASH_RESOLVED) if asked in (None, "auto") else asked

    def _last(self, pattern: re.Pattern[str]) -> str | None:
        found = [match[1] for _, text in self._lines if (match := pattern.search(text))]
        return found[-1] if found else None
