"""Rows of loading: one value per launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from inferometer.judge import Verdict
from inferometer.metrics import LAUNCH_METRICS, LaunchMetric, Undefined
from inferometer.results import Launch, Results, SubjectRecord
from inferometer.suite import Condition
from inferometer.summary.groups import (
    Judged,
    absence_of_load,
    judged_samples,
    launches_of,
    round_numbers,
    subject_flags,
    verdict_flags,
)
from inferometer.summary.rows import Gathered, MetricSummary, gathered, row

FILE_CACHE_WARM_RATIO = 0.9
FILE_CACHE_COLD_RATIO = 0.1
"""Share of a model's pages from which on, or up to which, its file counts as warm or cold."""


def load_rows(
    results: Results, record: SubjectRecord, only: Collection[str]
) -> Iterator[MetricSummary]:
    """Yield one row per metric of loading, if the suite asks for it."""
    if Condition.LOAD not in results.suite.conditions:
        return
    launches = launches_of(results, record)
    firsts = {
        sample.launch: (sample, verdict)
        for sample, verdict in judged_samples(results, record)
        if sample.condition is Condition.LOAD
    }
    flags = _file_cache_flags(launches) | subject_flags(results, record)
    of_firsts = verdict_flags(verdict for _, verdict in firsts.values())
    absences = dict.fromkeys(round_numbers(results), absence_of_load(results, record))
    for metric in (metric for metric in LAUNCH_METRICS if metric.id in only):
        values, reasons = _launch_values(launches, firsts, metric)
        yield row(
            metric,
            record,
            workload=None,
            condition=Condition.LOAD,
            values=values,
            reasons={**absences, **reasons},
            flags=flags | of_firsts if metric.of_first_request else flags,
        )


def _launch_values(
    launches: Iterable[Launch],
    firsts: Mapping[str, Judged],
    metric: LaunchMetric,
) -> Gathered:
    def compute(launch: Launch) -> float | str:
        first, verdict = firsts.get(launch.id, (None, Verdict()))
        if metric.of_first_request and verdict.excluded:
            return verdict.excluded
        try:
            return metric.compute(launch, first)
        except Undefined:
            if launch.failure:
                return f"failed: {launch.failure.kind}"
            raise

    return gathered(((launch.round, launch) for launch in launches), compute)


def _file_cache_flags(launches: Sequence[Launch]) -> set[str]:
    ratios = [launch.file_cache_ratio for launch in launches]
    known = [ratio for ratio in ratios if ratio is not None]
    if not launches or len(known) < len(ratios):
        return {"file_cache_unknown"} if launches else set()
    if min(known) >= FILE_CACHE_WARM_RATIO:
        return {"file_cache_warm"}
    return {"file_cache_cold" if max(known) <= FILE_CACHE_COLD_RATIO else "file_cache_mixed"}
