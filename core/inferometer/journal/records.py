"""What a journal is made of: one record per event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from attrs import field, frozen

from inferometer.codec import StructureError, from_json, structure, to_json
from inferometer.engine import Usage
from inferometer.errors import ResultsError
from inferometer.failures import Failure
from inferometer.fields import Role, about
from inferometer.host import Host
from inferometer.plan import Plan
from inferometer.results import Launch, Sample, Skip, SubjectRecord
from inferometer.suite import Suite
from inferometer.wire import Loaded

SCHEMA = "inferometer.journal/1"


@frozen(kw_only=True)
class Opened:
    """The first record: everything that was decided before the first launch."""

    schema: str = field(
        default=SCHEMA, metadata=about(Role.PROVENANCE, "Name and version of this format.")
    )
    run_id: str = field(metadata=about(Role.PROVENANCE, "Name of the run."))
    tool_version: str = field(metadata=about(Role.PROVENANCE, "Version of Inferometer."))
    started_at: str = field(metadata=about(Role.PROVENANCE, "UTC, ISO 8601."))
    suite: Suite = field(metadata=about(Role.WORKLOAD, "The suite, as it was read."))
    host: Host = field(metadata=about(Role.ENVIRONMENT, "The machine."))
    subjects: tuple[SubjectRecord, ...] = field(metadata=about(Role.SUBJECT, "What is measured."))
    plan: Plan = field(metadata=about(Role.WORKLOAD, "What will be done."))
    corpus_version: str = field(metadata=about(Role.WORKLOAD, "Version of the prompts' text."))
    prompt_date: str = field(
        metadata=about(Role.WORKLOAD, "The date that chat templates were told.")
    )


@frozen(kw_only=True)
class Launched:
    """A worker was started."""

    launch: Launch = field(metadata=about(Role.PROVENANCE, "What is known of it so far."))


@frozen(kw_only=True)
class Ready:
    """Its engine was loaded."""

    launch: str = field(metadata=about(Role.PROVENANCE, "Name of the launch."))
    spawn_ns: int = field(metadata=about(Role.MEASURED, "Start of the process until it spoke."))
    loaded: Loaded = field(metadata=about(Role.MEASURED, "What the worker said."))


@frozen(kw_only=True)
class Sampled:
    """A request was measured."""

    sample: Sample = field(metadata=about(Role.MEASURED, "The request."))


@frozen(kw_only=True)
class Skipped:
    """Something turned out not to be measurable."""

    skip: Skip = field(metadata=about(Role.MEASURED, "What, and why."))


@frozen(kw_only=True)
class Ended:
    """A launch reached its end, good or bad."""

    launch: str = field(metadata=about(Role.PROVENANCE, "Name of the launch."))
    failure: Failure | None = field(
        default=None, metadata=about(Role.MEASURED, "Why it ended early, if it did.")
    )
    usage: Usage | None = field(
        default=None, metadata=about(Role.MEASURED, "The engine's own memory figures.")
    )


Record = Opened | Launched | Ready | Sampled | Skipped | Ended

_KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind for kind in (Opened, Launched, Ready, Sampled, Skipped, Ended)
}


@frozen
class _Envelope:
    kind: str
    body: Mapping[str, Any]


def to_line(record: Record) -> bytes:
    """Return a record as one line."""
    return b'{"kind":"%b","body":%b}\n' % (type(record).__name__.encode(), to_json(record))


def from_line(line: bytes, where: str) -> Record:
    """Return the record in one line.

    Raises:
        ResultsError: beginning with ``where``.
    """
    try:
        return _body(structure(from_json(line), _Envelope))
    except StructureError as error:
        raise ResultsError("\n".join(f"{where}: {p}" for p in error.problems)) from None
    except ResultsError as error:
        raise ResultsError(f"{where}: {error}") from None
    except ValueError as error:
        raise ResultsError(f"{where}: not valid JSON: {error}") from None


def _body(envelope: _Envelope) -> Record:
    kind = _KINDS.get(envelope.kind)
    if kind is None:
        raise ResultsError(f"no journal record is named {envelope.kind!r}")
    if kind is Opened:
        check_schema(envelope.body, SCHEMA)
    return cast(Record, structure(envelope.body, kind, strict=False))


def check_schema(data: Any, expected: str) -> None:
    """Refuse data of another format or of a version from the future.

    Raises:
        ResultsError: naming both.
    """
    found = data.get("schema") if isinstance(data, dict) else None
    if found == expected:
        return
    name, _, version = expected.rpartition("/")
    if isinstance(found, str) and found.rpartition("/")[0] == name:
        raise ResultsError(
            f"this is {found}, and this Inferometer reads {name} up to version {version}: "
            "install a newer one"
        )
    raise ResultsError(f"expected schema {expected!r}, found {found!r}")
