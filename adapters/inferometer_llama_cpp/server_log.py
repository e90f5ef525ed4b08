"""What a llama-server writes while it starts: facts that no endpoint tells. Pure.

Older and newer servers word some lines differently; a fact whose line is missing is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import frozen

_HOST = "cpu"
_PINNED = re.compile(r"_host$", re.IGNORECASE)
"""Host memory a GPU can reach: weights there are the processor's, scratch there is nobody's."""
_MODEL, _COMPUTE = "model", "compute"
_FAMILY = re.compile(r"[A-Za-z]+")
_FAMILIES = {"mtl": "metal", "blas": _HOST, "amx": _HOST, "repack": _HOST}

_COMPILER = re.compile(r"build:? .*?\bwith (.+ for .+)")
_SYSTEM_INFO = re.compile(
    r"system_info: n_threads = (\d+)(?: \(n_threads_batch = (\d+)\))? / \d+ \| (.*\S) \|"
)
_ERROR = re.compile(r"[\d.]+ E (.+)")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_LAYERS = re.compile(r"print_info: n_layer\s+= (\d+)")
_BUFFER = re.compile(r"(\S+) (model|compute) buffer size")
_USING = re.compile(r"using device (\S+) \((.*?)\)(?: \(.*\))? - ")
_PROCESSOR = re.compile(r" - CPU\s*: (.+?) \(\d+ MiB")
_FLASH_ASKED = re.compile(r"flash_attn\s+= (\w+)")
_FLASH_RESOLVED = re.compile(r"Flash Attention\b.*\b(enabled|disabled)")
_MAPPED = re.compile(r"load_mode = (\w+)|mmap = (true|false)")
_KV_TYPES = re.compile(r"K \((\w+)\):.*V \((\w+)\):")
_SWITCHES = {"enabled": "on", "disabled": "off", "1": "on", "0": "off"}


def first_error(tail: Sequence[str]) -> str:
    """Return the first error among the last lines: those after it only follow from it."""
    errors = (match[1] for line in tail if (match := _ERROR.match(line)))
    return next(errors, "") or next(reversed(tail), "")


@frozen
class StartupLog:
    """The text of one start, asked for facts."""

    text: str

    @property
    def architecture(self) -> str | None:
        """The model architecture, as loaded."""
        return self._last(re.compile(r"print_info: arch\s+= (\S+)"))

    @property
    def compiler(self) -> str | None:
        """Compiler and target, in the build's own words."""
        return self._last(_COMPILER)

    @property
    def instruction_sets(self) -> str | None:
        """What the processor code was built for, in the build's own words."""
        return self._last(_SYSTEM_INFO, group=3)

    @property
    def threads(self) -> int | None:
        """Threads that decode."""
        return _number(self._last(_SYSTEM_INFO))

    @property
    def threads_batch(self) -> int | None:
        """Threads that process the prompt."""
        return _number(self._last(_SYSTEM_INFO, group=2)) or self.threads

    def context(self, name: str) -> int | None:
        """A number of the context that was made: ``n_batch``, ``n_ubatch`` ..."""
        return _number(self._last(re.compile(rf"llama_context: {name}\s+= (\d+)")))

    @property
    def layers(self) -> int | None:
        """Layers of the model, the output layer included."""
        repeating = _number(self._last(_LAYERS))
        return None if repeating is None else repeating + 1

    @property
    def layers_offloaded(self) -> int | None:
        """Layers on a GPU: 0 when weights were placed and no line speaks of a GPU."""
        told = _number(self._last(_OFFLOADED))
        placed = any(self._families(_MODEL))
        return 0 if told is None and placed else told

    @property
    def backend(self) -> str | None:
        """What computes: every family that holds weights or computes, GPUs first.

        Devices that are merely found do not count. With all layers on a GPU the processor
        only looks up the input tokens, and is left out.
        """
        families = set(self._families(_MODEL)) | set(self._families(_COMPUTE))
        if len(families) > 1 and self._all_offloaded():
            families.discard(_HOST)
        return "+".join(sorted(families, key=lambda name: (name == _HOST, name))) or None

    @property
    def device(self) -> str | None:
        """The computing devices' own descriptions."""
        if self.backend in (None, _HOST):
            return self._last(_PROCESSOR)
        found = dict.fromkeys(match[2] for match in _USING.finditer(self.text))
        return " + ".join(found) or None

    @property
    def flash_attention(self) -> str | None:
        """``on`` or ``off`` as it turned out; None when the log does not say."""
        asked = _SWITCHES.get(self._last(_FLASH_ASKED) or "")
        return asked or _SWITCHES.get(self._last(_FLASH_RESOLVED) or "")

    @property
    def mmap(self) -> bool | None:
        """Whether the model file was mapped."""
        matches = list(_MAPPED.finditer(self.text))
        if not matches:
            return None
        mode, mapped = matches[-1].groups()
        return mapped == "true" or "mmap" in (mode or "")

    @property
    def kv_types(self) -> tuple[str, str] | None:
        """Number formats of keys and values."""
        found = _KV_TYPES.search(self.text)
        return (found[1], found[2]) if found else None

    def _all_offloaded(self) -> bool:
        return self._last(_OFFLOADED) == self._last(_OFFLOADED, group=2)

    def _families(self, kind: str) -> Iterator[str]:
        for match in _BUFFER.finditer(self.text):
            if match[2] == kind and not (kind == _COMPUTE and _PINNED.search(match[1])):
                yield _family(match[1])

    def _last(self, pattern: re.Pattern[str], group: int = 1) -> str | None:
        found = [match[group] for match in pattern.finditer(self.text) if match[group]]
        return found[-1] if found else None


def _family(buffer: str) -> str:
    """``CUDA0`` is cuda, ``CPU_Mapped`` and ``CPU_REPACK`` are cpu."""
    match = _FAMILY.match(buffer)
    name = _HOST if _PINNED.search(buffer) or match is None else match[0].lower()
    return _FAMILIES.get(name, name)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
