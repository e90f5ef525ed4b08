"""Do what a run has not done yet, launch by launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from attrs import evolve

from inferometer import journal
from inferometer.errors import ResultsError
from inferometer.journal import planned_id
from inferometer.load import write_results
from inferometer.plan import Plan, PlannedLaunch
from inferometer.results import Results
from inferometer.runner.folder import Run
from inferometer.runner.launching import Launching
from inferometer.runner.observer import Observer, Unobserved
from inferometer.suite import Condition
from inferometer.wire import Cell


def execute(run: Run, observer: Observer | None = None) -> Results:
    """Do what has no end yet, and write the results; an interrupt still writes them.

    Raises:
        ResultsError: the disk refused; what was measured is kept.
        KeyboardInterrupt: after the worker was ended and the results were written.
    """
    book = journal.Journal(run.journal_path)
    try:
        _launch_all(run, book, observer or Unobserved())
    except BaseException:
        # Whoever waits must hear of what ended the run, not that results were no longer written.
        with suppress(ResultsError):
            write_results(run.folder)
        raise
    finally:
        book.close()
    return write_results(run.folder)


def remaining(run: Run) -> Iterator[PlannedLaunch]:
    """Yield the launches that have no end, cut down to what they have not dealt with."""
    return _Progress(journal.read(run.journal_path)).left_of(run.plan)


def _launch_all(run: Run, book: journal.Journal, observer: Observer) -> None:
    progress = _Progress(journal.read(run.journal_path))
    for launch_id in progress.without_end(run.plan):
        book.append(journal.Ended(launch=launch_id))
    todo = list(progress.left_of(run.plan))
    for number, launch in enumerate(todo, 1):
        observer.launch_begins(launch, number, len(todo))
        failure = Launching(run, launch, book, observer).run()
        observer.launch_ended(launch, failure)


class _Progress:
    """How far a run has got."""

    def __init__(self, records: Iterable[journal.Record]) -> None:
        self._attempts: Counter[str] = Counter()
        self._latest: dict[str, str] = {}
        self._ended: set[str] = set()
        self._dealt_with: set[tuple[str, str, Condition]] = set()
        self._current = ""
        for record in records:
            self._add(record)

    def _add(self, record: journal.Record) -> None:
        match record:
            case journal.Launched(launch=launch):
                self._attempts[planned_id(launch.id)] += 1
                self._latest[planned_id(launch.id)] = launch.id
                self._current = planned_id(launch.id)
            case journal.Sampled(sample=sample) if not sample.warmup:
                planned = planned_id(sample.launch)
                self._dealt_with.add((planned, sample.workload, sample.condition))
            case journal.Skipped(skip=skip) if skip.condition:
                # One launch at a time: it is of the one begun last.
                self._dealt_with.add((self._current, skip.workload, skip.condition))
            case journal.Ended(launch=launch_id):
                self._ended.add(planned_id(launch_id))
            case _:
                pass

    def left_of(self, plan: Plan) -> Iterator[PlannedLaunch]:
        """Yield the launches that still have requests to send, under the name of this attempt."""
        for launch in plan.launches:
            left = self._left(launch)
            if left.requests:
                attempts = self._attempts[launch.id]
                yield evolve(left, id=f"{launch.id}+{attempts}") if attempts else left

    def without_end(self, plan: Plan) -> Iterator[str]:
        """Yield the launches that were cut off between their last request and their end."""
        for launch in plan.launches:
            begun = launch.id in self._latest and launch.id not in self._ended
            if begun and not self._left(launch).requests:
                yield self._latest[launch.id]

    def _left(self, launch: PlannedLaunch) -> PlannedLaunch:
        if launch.id in self._ended:
            return evolve(launch, cells=(), first_request=None)
        cells = (self._left_cell(launch.id, cell) for cell in launch.cells)
        first = launch.first_request
        if first and (launch.id, first.name, Condition.LOAD) in self._dealt_with:
            first = None
        return evolve(launch, cells=tuple(c for c in cells if c.conditions), first_request=first)

    def _left_cell(self, launch: str, cell: Cell) -> Cell:
        name = cell.workload.name
        left = (c for c in cell.conditions if (launch, name, c) not in self._dealt_with)
        return evolve(cell, conditions=tuple(left))
