"""Metrics of a launch: from nothing to the first token."""

from __future__ import annotations

from collections.abc import Callable

from inferometer.metrics.definition import NS_PER_S, Direction, LaunchMetric, Undefined
from inferometer.metrics.seen import e2e_ns
from inferometer.results import Launch, Sample


def _reached(phase_ns: int | None) -> int:
    if phase_ns is None:
        raise Undefined("phase_not_reached")
    return phase_ns


def _first_request(launch: Launch, first: Sample | None) -> float:
    del launch
    return _first_request_ns(first) / NS_PER_S


def _first_request_ns(first: Sample | None) -> int:
    return _reached(e2e_ns(first) if first else None)


def _ready(launch: Launch, first: Sample | None) -> float:
    phases = launch.phases
    spent = (phases.spawn_ns, phases.import_ns, phases.prepare_ns, phases.load_ns)
    return (sum(_reached(phase) for phase in spent) + _first_request_ns(first)) / NS_PER_S


def _phase_metric(name: str, doc: str, compute: Callable[[Launch], int | None]) -> LaunchMetric:
    return LaunchMetric(
        id=f"load.{name}",
        unit="s",
        direction=Direction.LOWER,
        formula=doc,
        undefined_when="the launch did not get that far",
        doc=f"Loading: {doc}.",
        compute=lambda launch, _: _reached(compute(launch)) / NS_PER_S,
    )


LAUNCH_METRICS: tuple[LaunchMetric, ...] = (
    _phase_metric(
        "spawn", "start of the process until it speaks", lambda launch: launch.phases.spawn_ns
    ),
    _phase_metric(
        "import",
        "importing the runtime and creating the engine",
        lambda launch: launch.phases.import_ns,
    ),
    _phase_metric(
        "prepare", "resolving and verifying files", lambda launch: launch.phases.prepare_ns
    ),
    _phase_metric(
        "load", "from files to ready for a request", lambda launch: launch.phases.load_ns
    ),
    LaunchMetric(
        id="load.first_request",
        unit="s",
        direction=Direction.LOWER,
        formula="e2e of the first request: the shortest workload's prompt, one output token",
        undefined_when="the launch did not get that far, or that request does not count",
        doc="Loading: the first request, which pays for what the engine put off.",
        of_request_alone=True,
        of_first_request=True,
        compute=_first_request,
    ),
    LaunchMetric(
        id="load.ready",
        unit="s",
        direction=Direction.LOWER,
        formula="sum of the phases above",
        undefined_when="any of them is missing",
        doc="From nothing to the first token of the first request.",
        of_first_request=True,
        compute=_ready,
    ),
)
