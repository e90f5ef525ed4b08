"""Metrics of one process: what its requests say only together."""

from __future__ import annotations

from collections.abc import Mapping

from inferometer.metrics.definition import Direction, RoundMetric, Undefined
from inferometer.metrics.seen import ttft_ns
from inferometer.results import Sample
from inferometer.suite import Condition

CONTROL_TOLERANCE = 0.2
"""A control prompt costs what cold cost when their times differ by no more than this share."""


def _cache_speedup(samples: Mapping[Condition, Sample]) -> float:
    reuse = samples[Condition.REUSE]
    cold, control = ttft_ns(samples[Condition.COLD]), ttft_ns(samples[Condition.CONTROL])
    if abs(control - cold) > CONTROL_TOLERANCE * cold:
        raise Undefined("control_differs")
    if reuse.ending and reuse.ending.cached_prompt_tokens == 0:
        raise Undefined("nothing_reused")
    warm = ttft_ns(reuse)
    if warm <= 0:
        raise Undefined("no_time_passed")
    return cold / warm


ROUND_METRICS: tuple[RoundMetric, ...] = (
    RoundMetric(
        id="cache_speedup",
        unit="ratio",
        direction=Direction.HIGHER,
        formula="ttft(cold) / ttft(reuse)",
        undefined_when=(
            "cold, reuse or control missing; the control did not cost what cold cost "
            "(within 20 %); nothing was reused"
        ),
        doc="What reuse of the prompt gained, when the control shows that it was reuse.",
        needs={
            Condition.REUSE: "no_reuse",
            Condition.COLD: "no_cold",
            Condition.CONTROL: "control_missing",
        },
        compute=_cache_speedup,
    ),
)
