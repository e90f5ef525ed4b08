"""One metric over rounds, as a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from attrs import field, frozen

from inferometer import stats
from inferometer.fields import Role, about
from inferometer.metrics import Metric, Undefined, Vantage
from inferometer.results import SubjectRecord
from inferometer.stats import per_round, percentile, spread
from inferometer.suite import Condition
from inferometer.summary.groups import commonest

T = TypeVar("T")

Gathered = tuple[dict[int, float], dict[int, str]]
"""Values by round, and reasons by round for having none."""


@frozen(kw_only=True)
class MetricSummary:
    """One metric of one subject, workload and condition, over rounds."""

    subject: str = field(metadata=about(Role.PROVENANCE, "Name of the subject."))
    workload: str | None = field(
        metadata=about(Role.WORKLOAD, "Name of the workload; null for loading, which has none.")
    )
    condition: Condition = field(metadata=about(Role.WORKLOAD, "Which condition was measured."))
    metric: str = field(metadata=about(Role.MEASURED, "Id of the metric."))
    version: int = field(metadata=about(Role.MEASURED, "Version of its definition."))
    unit: str = field(metadata=about(Role.MEASURED, "Unit of the values."))
    vantage: Vantage = field(
        metadata=about(Role.MEASURED, "Where it was seen from; two vantages never share a row.")
    )
    n: int = field(metadata=about(Role.MEASURED, "Rounds that gave a value."))
    median: float | None = field(metadata=about(Role.MEASURED, "Median over those rounds."))
    min: float | None = field(metadata=about(Role.MEASURED, "Smallest of them."))
    max: float | None = field(metadata=about(Role.MEASURED, "Largest of them."))
    p90: float | None = field(
        metadata=about(Role.MEASURED, "90th percentile; null below 64 rounds, which carry none.")
    )
    p99: float | None = field(
        metadata=about(Role.MEASURED, "99th percentile; null below 662 rounds, which carry none.")
    )
    undefined: str | None = field(
        metadata=about(Role.MEASURED, "Why there is no value at all: the commonest reason.")
    )
    missing: Mapping[str, int] = field(
        metadata=about(Role.MEASURED, "Rounds without a value, by reason; with n, all rounds.")
    )
    flags: tuple[str, ...] = field(
        metadata=about(Role.MEASURED, "What a reader should know about the values.")
    )


def gathered(items: Iterable[tuple[int, T]], compute: Callable[[T], float | str]) -> Gathered:
    """Return one value per round; a round without one has the reason that was computed last."""
    values: list[tuple[int, float]] = []
    reasons: dict[int, str] = {}
    for number, item in items:
        try:
            found = compute(item)
        except Undefined as undefined:
            found = undefined.reason
        if isinstance(found, str):
            reasons[number] = found
        else:
            values.append((number, found))
    return per_round(values), reasons


def row(
    metric: Metric,
    record: SubjectRecord,
    *,
    workload: str | None,
    condition: Condition,
    values: Mapping[int, float],
    reasons: Mapping[int, str],
    flags: Iterable[str],
) -> MetricSummary:
    """Return a row; ``reasons`` of rounds that have a value are left out."""
    numbers = list(values.values())
    found = spread(numbers)
    missing = Counter(reason for number, reason in reasons.items() if number not in values)
    return MetricSummary(
        subject=record.subject.name,
        workload=workload,
        condition=condition,
        metric=metric.id,
        version=metric.version,
        unit=metric.unit,
        vantage=metric.vantage(record.placement),
        n=len(numbers),
        median=found.median if found else None,
        min=found.min if found else None,
        max=found.max if found else None,
        p90=percentile(numbers, 90),
        p99=percentile(numbers, 99),
        undefined=None if found else commonest(missing.elements()) or "not_measured",
        missing=dict(missing.most_common()),
        flags=tuple(sorted({*flags, *stats.flags(values)})),
    )
