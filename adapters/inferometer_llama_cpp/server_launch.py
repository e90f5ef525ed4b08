"""How a llama-server is started: embedded or as a binary, the settings are the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from attrs import frozen

from inferometer import EngineError
from inferometer_llama_cpp.options import CommonOptions

_HELP_LIMIT_S = 30.0
_ALL_LAYERS = 999
_TRACE = 4
"""Verbosity at which the start-up log tells every effective setting, and no token yet."""


@frozen(kw_only=True)
class Launch:
    """One start of a server."""

    options: CommonOptions
    model: Path
    port: int
    alias: str
    """A name nobody else can have, by which the server that answers is known to be ours."""
    slot_folder: Path
    """An empty folder; a server that has one lets its slot be erased."""
    context_tokens: int

    def embedded(self) -> list[str]:
        """Return the command line of the server embedded in ``xllamacpp``."""
        fields = attrs.fields(CommonOptions)
        settings = {field.name: getattr(self.options, field.name) for field in fields} | {
            "model": str(self.model),
            "port": self.port,
            "alias": self.alias,
            "slot_folder": str(self.slot_folder),
            "context_tokens": self.context_tokens,
            "verbosity": _TRACE,
        }
        # As a file and not as a module: importing this package would cost the load 0.1 s of
        # our own. `-P` keeps this folder off the path, where our names could hide others.
        script = Path(__file__).with_name("embedded.py")
        return [sys.executable, "-P", str(script), json.dumps(settings)]

    def stock(self, binary: str, help_text: str, extra_args: tuple[str, ...]) -> list[str]:
        """Return the command line of a stock llama-server.

        Args:
            binary: path of the server.
            help_text: what it prints for ``--help``; flags that only some versions have are
                given to those that know them.
            extra_args: what the user adds, last so that it wins.
        """
        known = frozenset(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_text))
        guards = [flag for flag in self._guards("trace" in help_text) if flag[0] in known]
        flags = (*self._place(), *self._asked(known), *guards)
        return [binary, *(word for flag in flags for word in flag), *extra_args]

    def _place(self) -> Iterator[tuple[str, ...]]:
        yield "--model", str(self.model)
        yield "--alias", self.alias
        yield "--host", "127.0.0.1"
        yield "--port", str(self.port)
        yield "--parallel", "1"
        yield "--ctx-size", str(self.context_tokens)

    def _asked(self, known: frozenset[str]) -> Iterator[tuple[str, ...]]:
        options = self.options
        yield "--n-gpu-layers", str(_ALL_LAYERS if options.gpu_layers < 0 else options.gpu_layers)
        yield "--cache-type-k", options.kv_key_type
        yield "--cache-type-v", options.kv_value_type
        # Before it knew "auto", this flag took no value.
        if options.flash_attention != "auto":
            yield "--flash-attn", options.flash_attention
        if not options.mmap:
            yield ("--load-mode", "none") if "--load-mode" in known else ("--no-mmap",)
        for flag, value in (
            ("--threads", options.threads),
            ("--threads-batch", options.threads_batch),
            ("--batch-size", options.batch),
            ("--ubatch-size", options.ubatch),
        ):
            if value is not None:
                yield flag, str(value)

    def _guards(self, has_trace: bool) -> Iterator[tuple[str, ...]]:
        """Yield what keeps a server from changing the work behind our back."""
        yield "--cache-ram", "0"
        yield "--fit", "off"
        yield ("--no-context-shift",)
        yield "--slot-save-path", str(self.slot_folder)
        # Versions without a level of this name print a line per token at the same number.
        if has_trace:
            yield "--verbosity", str(_TRACE)


def help_text(binary: str) -> str:
    """Return what a llama-server prints for ``--help``.

    Raises:
        EngineError: there is no such program, or it does not answer (``not_startable``).
    """
    try:
        told = subprocess.run(
            [binary, "--help"], capture_output=True, text=True, timeout=_HELP_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(
            f"option `binary`: {binary} does not answer to --help like a llama-server: {error}",
            kind="not_startable",
            fatal=True,
        ) from error
    return told.stdout + told.stderr
