"""What can go wrong, and the exit code each kind leads to.

The tree::

    InferometerError
    ├── SuiteError          a suite, a subjects file or a command line asks for something wrong
    ├── ModelError          a model file is missing, damaged, or not a model
    ├── ResultsError        a results file or a journal cannot be read or written
    ├── PluginError         an adapter is missing, broken, or unusable here
    ├── PromptError         a prompt of the asked length and form cannot be built
    └── EngineFault         raised while an engine is driven
        ├── EngineError     the engine failed, or said that it failed
        ├── Unsupported     the engine cannot do this at all
        ├── Refused         the engine can, but would not this time
        └── ContractViolation   the adapter broke its contract

A message says what happened, where, and what to do. Each class knows its exit code, so that
no caller keeps a table of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the command line answers to its caller."""

    OK = 0
    """Everything that was planned has been measured."""
    FAILED = 1
    """Something failed while it was measured; the rest of the run is kept."""
    USAGE = 2
    """A file or the command line is wrong: a suite, subjects, a model, results."""
    PLUGIN = 3
    """An adapter is missing, broken, or its engine is not usable here."""
    REFUSED = 4
    """A comparison was refused: the two results did different work."""
    SLOWER = 5
    """A comparison found a slow-down beyond what was allowed."""
    INTERRUPTED = 130
    """Interrupted; what was measured until then is kept."""


class InferometerError(Exception):
    """Base of every error this project raises on purpose."""

    exit_code = ExitCode.FAILED


class SuiteError(InferometerError):
    """A suite, a subjects file or the command line asks for something that cannot be."""

    exit_code = ExitCode.USAGE


class ModelError(InferometerError):
    """A model file is missing, empty, cut short, or not a model at all."""

    exit_code = ExitCode.USAGE


class ResultsError(InferometerError):
    """A results file or a journal cannot be read or written."""

    exit_code = ExitCode.USAGE


class PluginError(InferometerError):
    """An adapter is missing, broken, or unusable on this machine."""

    exit_code = ExitCode.PLUGIN


class PromptError(InferometerError):
    """A prompt of the asked length and form cannot be built."""

    exit_code = ExitCode.USAGE


class EngineFault(InferometerError):  # noqa: N818 - the base of faults of several kinds
    """Base of what is raised while an engine is driven."""


class EngineError(EngineFault):
    """The engine failed, or said that it failed.

    Args:
        message: what happened, for a person.
        kind: a short stable name, for example ``context_overflow`` or ``connection_lost``.
        detail: the engine's own figures, untouched.
        fatal: the engine cannot take another request; the launch ends here.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "engine_error",
        detail: Mapping[str, Any] | None = None,
        fatal: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.detail = dict(detail or {})
        self.fatal = fatal


class Unsupported(EngineFault):
    """The engine cannot do this at all; asking again will not help."""


class Refused(EngineFault):
    """The engine can do this, but would not this time (a cache in use, for example)."""


class ContractViolation(EngineFault):
    """The adapter broke its contract; nothing it streamed is used as a number."""


_CLOSE = 0.65  # two letters swapped in a short word; less, and unlike words are suggested


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for a close name, or the list of what there is."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(wrong.casefold(), folded, n=1, cutoff=_CLOSE)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
