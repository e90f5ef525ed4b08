"""The one registry of metrics: what each is, from what, and when it is undefined.

Events of one request, on the core's monotonic clock::

    t_send   the request is handed over (in process) or its first byte is written (HTTP)
    t_any    first arrival of any kind
    t_1      first arrival with generated content of any kind
    t_1a     first arrival with answer content
    t_L      last arrival with generated content
    n_in     prompt tokens, template included;  n_cached of them reused;  n_new = n_in - n_cached
    n_out    generated tokens;  n_1 of them in the first content arrival; an end token that the
             engine counts but that never arrived is in no rate

A metric that cannot be computed raises ``Undefined`` with a reason code: it is never 0 and
never a guess. What the engine says and what the caller saw are different metrics, and the
vantage says which.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferometer.metrics.definition import (
    REASONS,
    Direction,
    LaunchMetric,
    Metric,
    RoundMetric,
    SampleMetric,
    Undefined,
    Vantage,
)
from inferometer.metrics.loading import LAUNCH_METRICS
from inferometer.metrics.requests import SAMPLE_METRICS
from inferometer.metrics.reuse import CONTROL_TOLERANCE, ROUND_METRICS

__all__ = [
    "CONTROL_TOLERANCE",
    "LAUNCH_METRICS",
    "REASONS",
    "REGISTRY",
    "ROUND_METRICS",
    "SAMPLE_METRICS",
    "Direction",
    "LaunchMetric",
    "Metric",
    "RoundMetric",
    "SampleMetric",
    "Undefined",
    "Vantage",
]

REGISTRY: Mapping[str, Metric] = {
    metric.id: metric for metric in (*LAUNCH_METRICS, *SAMPLE_METRICS, *ROUND_METRICS)
}
"""Every metric by id, in the order of the report."""
