"""From the records of a journal to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import evolve

from inferometer.errors import ResultsError
from inferometer.journal.records import Ended, Launched, Opened, Ready, Record, Sampled, Skipped
from inferometer.results import Launch, Results, Sample, SubjectRecord


def fold(records: Iterable[Record], *, where: str = "the journal") -> Results:
    """Return the results that a journal amounts to.

    Raises:
        ResultsError: its records do not make up a run; ``where`` says whose.
    """
    try:
        return _folded(iter(records))
    except _Disorder as disorder:
        raise ResultsError(f"{where}: {disorder}") from None


def _folded(records: Iterator[Record]) -> Results:
    opened = next(records, None)
    if opened is None:
        raise _Disorder("empty: the run ended before anything was measured")
    if not isinstance(opened, Opened):
        raise _Disorder("does not begin with its opening record")
    state = _Fold(opened)
    for record in records:
        state.add(record)
    try:
        return state.results()
    except ValueError as error:  # what results may not be, records must not make them
        raise _Disorder(str(error)) from None


def planned_id(launch: str) -> str:
    """Return the planned launch that a launch carries out: a second attempt is ``name+1``."""
    return launch.partition("+")[0]


class _Disorder(Exception):  # noqa: N818 - a finding on its way to where the file is known
    """Records that do not make up a run."""


class _Fold:
    """Results so far."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._launches: dict[str, Launch] = {}
        self._samples: list[Sample] = []
        self._skips = list(opened.plan.skips)

    def add(self, record: Record) -> None:
        match record:
            case Launched(launch=launch):
                self._launches[launch.id] = launch
            case Sampled(sample=sample):
                self._update(sample.launch)
                self._samples.append(sample)
            case Skipped(skip=skip):
                self._skips.append(skip)
            case Ready():
                self._update(record.launch, **_ready(record))
            case Ended():
                self._update(record.launch, failure=record.failure, usage=record.usage, ended=True)
            case Opened():
                raise _Disorder("has two opening records: two runs wrote into it")

    def _update(self, launch: str, **changes: Any) -> None:
        if launch not in self._launches:
            raise _Disorder(f"speaks of launch {launch!r} before it began")
        self._launches[launch] = evolve(self._launches[launch], **changes)

    def results(self) -> Results:
        opened = self.opened
        ended = {planned_id(launch.id) for launch in self._launches.values() if launch.ended}
        return Results(
            run_id=opened.run_id,
            tool_version=opened.tool_version,
            started_at=opened.started_at,
            suite=opened.suite,
            suite_digest=opened.suite.digest,
            rounds=opened.plan.rounds,
            order_seed=opened.plan.order_seed,
            corpus_version=opened.corpus_version,
            prompt_date=opened.prompt_date,
            host=opened.host,
            subjects=tuple(_carried(record) for record in opened.subjects),
            skips=tuple(dict.fromkeys(self._skips)),
            launches=tuple(self._launches.values()),
            samples=tuple(self._samples),
            complete=ended >= {launch.id for launch in opened.plan.launches},
        )


def _carried(record: SubjectRecord) -> SubjectRecord:
    # A results file is made to be carried: it names files, never folders of this machine.
    subject = record.subject
    python = subject.python and Path(subject.python).name
    return evolve(record, subject=evolve(subject, model=Path(subject.model.name), python=python))


def _ready(record: Ready) -> dict[str, Any]:
    loaded = record.loaded
    return {
        "python": loaded.python,
        "phases": evolve(loaded.phases, spawn_ns=record.spawn_ns),
        "identity": loaded.identity,
        "harness_overhead_ns": loaded.harness_overhead_ns,
    }
