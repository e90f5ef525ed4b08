"""Rows of what requests were measured for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from inferometer.metrics import (
    ROUND_METRICS,
    SAMPLE_METRICS,
    Metric,
    RoundMetric,
    SampleMetric,
)
from inferometer.suite import Condition
from inferometer.summary.groups import Group, Judged
from inferometer.summary.rows import Gathered, MetricSummary, gathered, row

M = TypeVar("M", bound=Metric)


def request_rows(judged: Iterable[Group], only: Collection[str]) -> Iterator[MetricSummary]:
    """Yield one row per workload, condition and metric of one subject, in the suite's order."""
    by_workload: dict[str, list[Group]] = defaultdict(list)
    for group in judged:
        by_workload[group.workload].append(group)
        for metric in _wanted(SAMPLE_METRICS, only):
            yield _row(metric, group, _values(group, metric))
    for family in by_workload.values():
        reuse = next((group for group in family if group.condition is Condition.REUSE), None)
        if reuse:
            for round_metric in _wanted(ROUND_METRICS, only):
                yield _row(round_metric, reuse, _round_values(family, round_metric))


def _wanted(metrics: Iterable[M], only: Collection[str]) -> list[M]:
    return [metric for metric in metrics if metric.id in only]


def _values(group: Group, metric: SampleMetric) -> Gathered:
    def compute(judged: Judged) -> float | str:
        sample, verdict = judged
        short = verdict.short if metric.needs_full_output else None
        return verdict.excluded or short or metric.compute(sample)

    if metric.only_at not in (None, group.record.placement):
        return {}, {sample.round: "not_served" for sample, _ in group.judged}
    return gathered(((judged[0].round, judged) for judged in group.judged), compute)


def _round_values(family: Sequence[Group], metric: RoundMetric) -> Gathered:
    # By process, not by round: in a resumed run a round has two, and a gain is between requests
    # to the same one.
    processes: dict[tuple[int, str], dict[Condition, Judged]] = defaultdict(dict)
    for group in family:
        for sample, verdict in group.judged:
            processes[sample.round, sample.launch][group.condition] = (sample, verdict)

    def compute(judged: Mapping[Condition, Judged]) -> float | str:
        for condition, without in metric.needs.items():
            if condition not in judged:
                return without
            if excluded := judged[condition][1].excluded:
                return excluded
        return metric.compute({condition: sample for condition, (sample, _) in judged.items()})

    return gathered(((number, judged) for (number, _), judged in processes.items()), compute)


def _row(metric: Metric, group: Group, gathered: Gathered) -> MetricSummary:
    values, reasons = gathered
    return row(
        metric,
        group.record,
        workload=group.workload,
        condition=group.condition,
        values=values,
        reasons={**reasons, **group.absences},
        flags=group.flags,
    )
