"""Who watches a run. It is told between requests, never during one."""

from __future__ import annotations

from typing import Protocol

from inferometer.failures import Failure
from inferometer.plan import PlannedLaunch
from inferometer.results import Sample


class Observer(Protocol):
    """Is told what goes on, always between requests."""

    def launch_begins(self, launch: PlannedLaunch, number: int, total: int) -> None: ...
    def stage_begins(self, stage: str, workload: str | None) -> None: ...
    def request_ended(self, sample: Sample) -> None: ...
    def launch_ended(self, launch: PlannedLaunch, failure: Failure | None) -> None: ...


class Unobserved:
    """An observer that looks away."""

    def launch_begins(self, launch: PlannedLaunch, number: int, total: int) -> None: ...
    def stage_begins(self, stage: str, workload: str | None) -> None: ...
    def request_ended(self, sample: Sample) -> None: ...
    def launch_ended(self, launch: PlannedLaunch, failure: Failure | None) -> None: ...
