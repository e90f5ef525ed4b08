"""A run on disk: its folder, opened once and opened again to be resumed."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import field, frozen

from inferometer import journal
from inferometer._version import __version__
from inferometer.codec import to_json
from inferometer.engine import LogEvidence
from inferometer.errors import ResultsError, SuiteError
from inferometer.host import Host, read_host
from inferometer.launcher import Limits
from inferometer.plan import Plan, make_plan
from inferometer.prompts import PINNED_DATE, corpus_version
from inferometer.results import SubjectRecord
from inferometer.suite import Subject, Suite


@frozen(kw_only=True)
class Run:
    """A run on disk: its folder, what it will do, and of whom.

    The folder holds the journal, the results, the suite and the plan as they were, and a log
    per launch.
    """

    folder: Path
    subjects: Mapping[str, Subject]
    plan: Plan
    evidence: Mapping[str, Sequence[LogEvidence]] = field(factory=dict)
    """Words of each subject's engine log that tell why it died."""
    limits: Limits = field(factory=Limits)
    seed: int = 1

    @property
    def journal_path(self) -> Path:
        return self.folder / journal.NAME


def new_order_seed() -> int:
    """Return a fresh seed for the order of launches."""
    return secrets.randbelow(2**31)


def create(
    folder: Path,
    suite: Suite,
    subjects: Sequence[SubjectRecord],
    *,
    rounds: int,
    order_seed: int,
    evidence: Mapping[str, Sequence[LogEvidence]],
    limits: Limits,
) -> Run:
    """Plan a run and open its folder.

    Raises:
        SuiteError: nothing can be measured, with the reason of every skip.
        ResultsError: the folder holds a run already, or cannot be written.
    """
    plan = make_plan(suite, subjects, rounds=rounds, order_seed=order_seed)
    if not plan.launches:
        reasons = "\n".join(f"  {s.subject} {s.workload}: {s.reason}" for s in plan.skips)
        raise SuiteError(f"nothing to measure: every cell is skipped\n{reasons}")
    opened = journal.Opened(
        run_id=_run_id(folder),
        tool_version=__version__,
        started_at=now(),
        suite=suite,
        host=read_host(),
        subjects=tuple(subjects),
        plan=plan,
        corpus_version=corpus_version(),
        prompt_date=PINNED_DATE,
    )
    _write_folder(folder, opened)
    return _run_of(folder, opened, evidence, limits)


def reopen(
    folder: Path,
    *,
    evidence: Mapping[str, Sequence[LogEvidence]],
    limits: Limits,
    subjects: Sequence[SubjectRecord] = (),
) -> Run:
    """Return a run whose folder exists, to resume it.

    Args:
        folder: of the run.
        evidence: words of each subject's engine log that tell why it died.
        limits: how long a launch may take.
        subjects: as they are found now; what has changed since is not measured under one name.

    Raises:
        ResultsError: there is no readable journal in it, or what it measured is no more.
    """
    records = list(journal.read(folder / journal.NAME))
    journal.fold(records, where=str(folder / journal.NAME))
    opened = records[0]
    assert isinstance(opened, journal.Opened)
    strangers = {la.subject for la in opened.plan.launches} - {
        record.subject.name for record in opened.subjects
    }
    if strangers:
        raise ResultsError(f"{folder}: the plan names unknown subjects: {', '.join(strangers)}")
    changes = [*_changed_here(opened), *_changed_subjects(opened.subjects, subjects)]
    if changes:
        listed = "".join(f"\n  {change}" for change in changes)
        raise ResultsError(f"{folder} cannot be resumed, start a new run:{listed}")
    return _run_of(folder, opened, evidence, limits)


def now() -> str:
    """Return the wall-clock time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _run_id(folder: Path) -> str:
    return folder.resolve().name.encode("utf-8", "replace").decode()


def _changed_here(opened: journal.Opened) -> Iterator[str]:
    facts = (
        ("Inferometer", opened.tool_version, __version__),
        ("the prompts' text", opened.corpus_version, corpus_version()),
        ("the date that templates are told", opened.prompt_date, PINNED_DATE),
        ("the machine", _machine(opened.host), _machine(read_host())),
    )
    for what, then, today in facts:
        if then != today:
            yield f"{what} was {then}, now it is {today}"


def _machine(host: Host) -> str:
    return f"{host.chip or host.machine}, {host.os_name}"


def _changed_subjects(
    then: Sequence[SubjectRecord], today: Sequence[SubjectRecord]
) -> Iterator[str]:
    found = {record.subject.name: record for record in today}
    for record in then:
        other = found.get(record.subject.name, record)
        if other.artifact != record.artifact:
            yield f"subject {record.subject.name}: the model has changed"
        if other.adapter_distribution != record.adapter_distribution:
            yield (
                f"subject {record.subject.name}: the adapter was from "
                f"{record.adapter_distribution}, now it is from {other.adapter_distribution}"
            )


def _run_of(
    folder: Path,
    opened: journal.Opened,
    evidence: Mapping[str, Sequence[LogEvidence]],
    limits: Limits,
) -> Run:
    return Run(
        folder=folder,
        subjects={record.subject.name: record.subject for record in opened.subjects},
        plan=opened.plan,
        evidence=evidence,
        limits=limits,
        seed=opened.suite.seed,
    )


def _write_folder(folder: Path, opened: journal.Opened) -> None:
    path = folder / journal.NAME
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        # An empty journal is one that could not be begun: the disk was full, for example.
        if path.exists() and path.stat().st_size:
            raise ResultsError(
                f"{folder} holds a run already: choose another --out, "
                f"or use --resume {shlex.quote(str(folder))}"
            )
        (folder / "suite.json").write_bytes(to_json(opened.suite, pretty=True) + b"\n")
        (folder / "plan.json").write_bytes(to_json(opened.plan, pretty=True) + b"\n")
    except OSError as error:
        raise ResultsError(f"cannot write {folder}: {error.strerror}") from None
    book = journal.Journal(path)
    try:
        book.append(opened)
    finally:
        book.close()
