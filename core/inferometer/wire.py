"""What parent and worker say to each other: JSON lines over two pipes, in lock-step.

The worker speaks first. It waits for an empty line after every message before it goes on, so
that the parent's writing, syncing and drawing never run beside a timed request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from attrs import Factory, field, frozen

from inferometer.codec import from_json, structure, to_json
from inferometer.engine import Capabilities, LogEvidence, Placement, Probe, Usage
from inferometer.errors import PluginError
from inferometer.failures import Failure
from inferometer.fields import Role, about
from inferometer.identity import EngineIdentity
from inferometer.results import LoadPhases, Sample
from inferometer.suite import Condition, Workload

WIRE_VERSION = 1
GO_ON = b"\n"


# --- parent to worker ----------------------------------------------------------------------


@frozen(kw_only=True)
class Describe:
    """Say which adapters this interpreter has; with options, whether they are right."""

    adapter: str | None = None
    options: Mapping[str, Any] | None = None


@frozen(kw_only=True)
class Cell:
    """What is left to measure of one workload in this launch."""

    workload: Workload = field(metadata=about(Role.WORKLOAD, "What is asked."))
    conditions: tuple[Condition, ...] = field(
        metadata=about(Role.WORKLOAD, "What is measured of it, in order.")
    )


@frozen(kw_only=True)
class Job:
    """One launch: one subject, its cells in order."""

    launch: str
    round: int
    subject: str
    engine: str
    model: Path
    options: Mapping[str, Any] = Factory(dict)
    context_tokens: int
    seed: int
    cells: tuple[Cell, ...]
    first_request: Workload | None = None
    """A request of this shape, cut to one output token, ends the load condition."""
    log_path: Path
    cache_dir: Path


# --- worker to parent ----------------------------------------------------------------------


@frozen(kw_only=True)
class Hello:
    """The first words of a worker."""

    wire: int
    tool_version: str
    python: str


@frozen(kw_only=True)
class Option:
    """One option of an adapter."""

    name: str
    type: str
    default: str | None
    """Written as on the command line; null when the option is required."""
    doc: str


@frozen(kw_only=True)
class Description:
    """An adapter as an interpreter has it."""

    name: str
    distribution: str
    placement: Placement
    engine_api: int
    capabilities: Capabilities
    options: tuple[Option, ...]
    log_evidence: tuple[LogEvidence, ...] = ()
    probe: Probe


@frozen(kw_only=True)
class Broken:
    """A plugin that could not be loaded."""

    name: str
    distribution: str
    reason: str


@frozen(kw_only=True)
class Described:
    """Answer to ``Describe``."""

    adapters: tuple[Description, ...] = ()
    broken: tuple[Broken, ...] = ()
    missing: str | None = None
    """Why the adapter asked for is not there."""
    options_error: str | None = None


@frozen(kw_only=True)
class Stage:
    """What the worker is about to do."""

    name: str
    """import, prepare, load, identify, prompt, first request, warm-up, a condition, or usage."""
    workload: str | None = None


@frozen(kw_only=True)
class Loaded:
    """The engine is ready."""

    python: str = field(metadata=about(Role.ENVIRONMENT, "Python version of the worker."))
    phases: LoadPhases = field(
        metadata=about(Role.MEASURED, "The phases of loading that the worker timed.")
    )
    identity: EngineIdentity = field(metadata=about(Role.SUBJECT, "What exactly was loaded."))
    harness_overhead_ns: int = field(
        metadata=about(Role.MEASURED, "Our own cost per arrival, in nanoseconds.")
    )


@frozen(kw_only=True)
class Measured:
    """One request is over."""

    sample: Sample


@frozen(kw_only=True)
class Skipped:
    """A condition that the engine turned out not to support."""

    workload: str
    condition: Condition
    code: str
    reason: str


@frozen(kw_only=True)
class Failed:
    """The launch cannot go on."""

    failure: Failure


@frozen(kw_only=True)
class Done:
    """The launch is over."""

    usage: Usage | None = None


Message = Hello | Described | Stage | Loaded | Measured | Skipped | Failed | Done
Order = Describe | Job


@frozen
class _Envelope:
    kind: str
    body: Mapping[str, Any]


def encode(message: Message | Order) -> bytes:
    """Return a message as one line.

    Raises:
        TypeError: it holds something that JSON cannot.
    """
    return b'{"kind":"%b","body":%b}\n' % (type(message).__name__.encode(), to_json(message))


def decode_message(line: bytes) -> Message:
    """Return what a worker said in one line.

    Raises:
        PluginError: the line is no message of ours.
    """
    return cast(Message, _decode(line, get_args(Message)))


def decode_order(line: bytes) -> Order:
    """Return what a parent wants, in one line.

    Raises:
        PluginError: the line is no order of ours.
    """
    return cast(Order, _decode(line, get_args(Order)))


def _decode(line: bytes, kinds: Sequence[type[Any]]) -> Any:
    try:
        envelope = structure(from_json(line), _Envelope)
        kind = {kind.__name__: kind for kind in kinds}.get(envelope.kind)
        if kind:
            return structure(envelope.body, kind, strict=False)
        problem: object = f"{envelope.kind!r} is unknown here"
    except ValueError as error:
        problem = error
    raise PluginError(f"parent and worker do not speak alike: {problem}")


def check_hello(hello: Hello, tool_version: str) -> None:
    """Refuse a worker that speaks another version of the wire.

    Raises:
        PluginError: naming both versions.
    """
    if hello.wire != WIRE_VERSION:
        raise PluginError(
            f"the worker (Inferometer {hello.tool_version}, Python {hello.python}) speaks wire "
            f"version {hello.wire}, this process (Inferometer {tool_version}) speaks "
            f"{WIRE_VERSION}: install the same Inferometer in both interpreters"
        )
