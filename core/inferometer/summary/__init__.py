"""From raw samples to one value per subject, workload, condition and metric.

Nothing here is stored: it is recomputed whenever results are read. For every row, the rounds
that gave a value and the rounds that gave none, by reason, make up the rounds asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attrs import field, frozen

from inferometer import judge, stats
from inferometer.fields import Role, about
from inferometer.metrics import REGISTRY
from inferometer.results import Results
from inferometer.summary.groups import Group, groups
from inferometer.summary.loading import load_rows
from inferometer.summary.requests import request_rows
from inferometer.summary.rows import MetricSummary

__all__ = ["FLAGS", "SCHEMA", "Group", "MetricSummary", "Summary", "groups", "summarize"]

SCHEMA = "inferometer.summary/1"

FLAGS: Mapping[str, str] = {
    **judge.FLAGS,
    **stats.FLAGS,
    "machine_busy": "others kept the processors busy when a launch began, 20 % of the time or more",
    "identity_differs": "the launches did not all load the same engine, build and options",
    "file_cache_warm": "the model's file was in the OS file cache before loading",
    "file_cache_cold": "the model's file was not in the OS file cache before loading",
    "file_cache_mixed": "the model's file was in the OS file cache in part, or not every time",
    "file_cache_unknown": "whether the model's file was in the OS file cache is not known",
}
"""Every flag of a row, with what it says; ``excluded:reason`` aside."""


@frozen(kw_only=True)
class Summary:
    """What ``show --json`` prints."""

    schema: str = field(
        default=SCHEMA, metadata=about(Role.PROVENANCE, "Name and version of this format.")
    )
    metrics: tuple[MetricSummary, ...] = field(
        metadata=about(Role.MEASURED, "One row per subject, workload, condition and metric.")
    )


def summarize(
    results: Results,
    *,
    judged: Sequence[Group] | None = None,
    only: Collection[str] = REGISTRY.keys(),
) -> Summary:
    """Return every metric of a run, those without a value included, with the reason.

    Args:
        results: the run.
        judged: its ``groups``, from a caller who has them: judging a large run takes a while.
        only: ids of the metrics that are wanted.
    """
    found = groups(results) if judged is None else judged
    rows = [
        row
        for record in results.subjects
        for row in (
            *load_rows(results, record, only),
            *request_rows([group for group in found if group.record is record], only),
        )
    ]
    return Summary(metrics=tuple(rows))
