"""Progress of a long run: drawn between requests, never during a timed one.

The runner calls an observer only while the worker waits; nothing here draws by itself, so no
thread wakes up beside a measurement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn

from inferometer.report import plain
from inferometer.runner import Observer, Run, remaining

if TYPE_CHECKING:
    from rich.console import Console

    from inferometer.failures import Failure
    from inferometer.plan import PlannedLaunch
    from inferometer.results import Sample


@contextmanager
def observer(console: Console, run: Run) -> Iterator[Observer]:
    """Yield what watches a run: a bar on a terminal, a line per launch elsewhere."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    total = sum(launch.requests for launch in remaining(run))
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} requests, {task.fields[left]}"),
    )
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        yield _Bar(progress, total, rounds=run.plan.rounds)


class _Lines:
    """One line per launch."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def _say(self, words: str) -> None:
        # An engine's words may look like markup, and a reader that has left loses only words.
        with suppress(OSError):
            self._console.print(plain(words), markup=False, soft_wrap=True)

    def launch_begins(self, launch: PlannedLaunch, number: int, total: int) -> None:
        self._say(f"launch {number} of {total}: round {launch.round}, {launch.subject}")

    def stage_begins(self, stage: str, workload: str | None) -> None: ...

    def request_ended(self, sample: Sample) -> None: ...

    def launch_ended(self, launch: PlannedLaunch, failure: Failure | None) -> None:
        if failure:
            self._say(f"  {launch.id} failed: {failure.kind}: {failure.message}")


class _Bar(_Lines):
    """Round, subject, condition and the time left, redrawn between requests."""

    def __init__(self, progress: Progress, total: int, *, rounds: int) -> None:
        super().__init__(progress.console)
        self._progress = progress
        self._rounds = rounds
        self._begun = time.monotonic()
        self._done = 0
        self._total = total
        self._where = ""
        self._task = progress.add_task("", total=total, left="")

    def launch_begins(self, launch: PlannedLaunch, number: int, total: int) -> None:
        del number, total
        self._where = f"round {launch.round}/{self._rounds} {launch.subject}"

    def stage_begins(self, stage: str, workload: str | None) -> None:
        what = f"{workload} {stage}" if workload else stage
        self._progress.update(self._task, description=f"{self._where} {what}", left=self._left())
        self._progress.refresh()

    def request_ended(self, sample: Sample) -> None:
        del sample
        self._done += 1
        self._progress.update(self._task, completed=self._done)

    def _left(self) -> str:
        if not self._done:
            return "time left unknown"
        each = (time.monotonic() - self._begun) / self._done
        minutes, seconds = divmod(round(each * (self._total - self._done)), 60)
        return f"about {minutes} min {seconds:02} s left"
