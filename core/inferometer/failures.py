"""What became of a process that ended: a kind for its exit, refined by what its log says.

Exit codes come in two spellings: ``subprocess`` gives a negative signal number, a shell gives
128 plus the signal. Both mean the same and get the same kind.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, evolve, field, frozen

from inferometer.engine import LogEvidence
from inferometer.fields import Role, about

LOG_TAIL_LINES = 40
_SHOWN_LINE = 2_000
_SEARCHED_BYTES = 1 << 18
_SHELL_SIGNAL_BASE = 128

_SIGNAL_KINDS = {
    signal.SIGABRT: "aborted",
    signal.SIGTRAP: "aborted",
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segfault",
    signal.SIGBUS: "segfault",
    signal.SIGILL: "illegal_instruction",
    signal.SIGTERM: "terminated",
    signal.SIGINT: "interrupted",
}

_HINTS = {
    "killed": "memory pressure is the likeliest cause: look at the kernel log or the container",
    "aborted": "the engine stopped itself; its last words are in the log",
    "segfault": "the engine crashed; its last words are in the log",
    "illegal_instruction": "the engine was built for another processor: install a build for this",
    "exited_early": "the process left while work was pending",
}
_GPU_FULL = "the GPU ran out of memory: use a smaller model or a smaller context"
_FULL = "the process ran out of memory"

VAGUE_KINDS = frozenset(
    {
        "aborted",
        "adapter_crashed",
        "bad_response",
        "connection_lost",
        "engine_error",
        "exited_early",
        "segfault",
        "server_error",
        "server_error_in_stream",
        "stalled",
        "stream_truncated",
    }
)
"""Kinds that say how something ended and not why. A SIGKILL is not among them: it came from
outside, and no line of the engine's log can know why."""

# What the platforms below every engine print. Engines add their own words as `LogEvidence`.
PLATFORM_EVIDENCE = tuple(
    LogEvidence(pattern=pattern, kind=kind, hint=hint)
    for pattern, kind, hint in (
        ("kIOGPUCommandBufferCallbackErrorOutOfMemory", "gpu_out_of_memory", _GPU_FULL),
        ("CUDA out of memory", "gpu_out_of_memory", _GPU_FULL),
        ("CUDA error: out of memory", "gpu_out_of_memory", _GPU_FULL),
        ("cudaErrorMemoryAllocation", "gpu_out_of_memory", _GPU_FULL),
        ("CUDA_ERROR_OUT_OF_MEMORY", "gpu_out_of_memory", _GPU_FULL),
        ("CUBLAS_STATUS_ALLOC_FAILED", "gpu_out_of_memory", _GPU_FULL),
        ("hipErrorOutOfMemory", "gpu_out_of_memory", _GPU_FULL),
        ("MPS backend out of memory", "gpu_out_of_memory", _GPU_FULL),
        ("Insufficient Memory", "gpu_out_of_memory", _GPU_FULL),
        ("[metal::malloc]", "gpu_out_of_memory", _GPU_FULL),
        ("torch.OutOfMemoryError", "gpu_out_of_memory", _GPU_FULL),
        ("MemoryError", "out_of_memory", _FULL),
        ("std::bad_alloc", "out_of_memory", _FULL),
    )
)


@frozen(kw_only=True)
class Failure:
    """Why something has no number."""

    kind: str = field(metadata=about(Role.MEASURED, "Short stable name of what went wrong."))
    message: str = field(metadata=about(Role.MEASURED, "The same for a person."))
    stage: str = field(
        default="", metadata=about(Role.MEASURED, "What was being done: load, cold p512 ...")
    )
    exit_code: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Exit code of a process that ended.")
    )
    signal: str | None = field(
        default=None, metadata=about(Role.MEASURED, "Signal that ended a process, by name.")
    )
    log_tail: tuple[str, ...] = field(
        default=(), metadata=about(Role.MEASURED, "Last lines of the launch's log.")
    )
    detail: Mapping[str, Any] = field(
        default=Factory(dict), metadata=about(Role.MEASURED, "The engine's own figures.")
    )


def signal_of(returncode: int) -> signal.Signals | None:
    """Return the signal that an exit code stands for, in either spelling, or None."""
    number = -returncode if returncode < 0 else returncode - _SHELL_SIGNAL_BASE
    try:
        return signal.Signals(number)
    except ValueError:
        return None


def exit_kind(returncode: int) -> str:
    """Return the kind of an exit while work was pending."""
    if returncode == 0:
        return "exited_early"
    ended_by = signal_of(returncode)
    return _SIGNAL_KINDS.get(ended_by, "ended_by_signal") if ended_by else "engine_error"


def log_lines(path: Path) -> tuple[str, ...]:
    """Return the end of a log, long enough to search it for evidence; nothing if there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _SEARCHED_BYTES))
            text = log.read(_SEARCHED_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(text.splitlines())


def log_tail(path: Path) -> tuple[str, ...]:
    """Return the last lines of a log, few enough to be shown; nothing if there is none."""
    return _tail(log_lines(path))


def _tail(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(line[:_SHOWN_LINE] for line in lines[-LOG_TAIL_LINES:])


def find_evidence(lines: Iterable[str], known: Sequence[LogEvidence]) -> LogEvidence | None:
    """Return the first known evidence in a log, searched line by line."""
    for line in lines:
        for evidence in (*known, *PLATFORM_EVIDENCE):
            if evidence.pattern in line:
                return evidence
    return None


def refined(failure: Failure, log: Sequence[str], known: Sequence[LogEvidence] = ()) -> Failure:
    """Return a failure with the log's last lines, and the kind that the log gives away, if any.

    Only a vague kind is refined: a log also holds warnings that the engine lived with, and what
    is known exactly must not be overruled by one of them.
    """
    found = find_evidence(log, known) if failure.kind in VAGUE_KINDS else None
    if found is None:
        return evolve(failure, log_tail=_tail(log))
    message = f"{failure.message}; {found.hint}"
    return evolve(failure, kind=found.kind, message=message, log_tail=_tail(log))


def describe_exit(
    returncode: int, log: Sequence[str], *, stage: str, evidence: Sequence[LogEvidence] = ()
) -> Failure:
    """Return the failure that a dead process means.

    Args:
        returncode: as ``subprocess`` or a shell gives it.
        log: last lines of its log; more are searched than are kept.
        stage: what was being done.
        evidence: words of this engine's log, beside the platform's.
    """
    kind = exit_kind(returncode)
    found = find_evidence(log, evidence) if kind in VAGUE_KINDS else None
    kind = found.kind if found else kind
    hint = found.hint if found else _HINTS.get(kind, "its last words are in the log")
    ended_by = signal_of(returncode)
    how = ended_by.name if ended_by else f"exit code {returncode}"
    return Failure(
        kind=kind,
        message=f"the process ended with {how} during {stage}: {hint}",
        stage=stage,
        exit_code=returncode,
        signal=ended_by.name if ended_by else None,
        log_tail=_tail(log),
    )
