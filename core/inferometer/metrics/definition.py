"""What a metric is, and every reason for having none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from attrs import frozen

from inferometer.engine import Placement
from inferometer.results import Launch, Sample
from inferometer.suite import Condition

NS_PER_S = 1e9


class Undefined(Exception):  # noqa: N818 - a value that is missing for a reason, not a fault
    """The metric has no value here; ``reason`` is a key of ``REASONS``."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason


REASONS: Mapping[str, str] = {
    "no_content": "nothing generated arrived",
    "no_answer": "no answer content arrived",
    "kind_unknown": "tokens came without text: whether they are an answer is not told",
    "no_events": "nothing arrived",
    "one_token": "one output token: there is no time between tokens",
    "one_arrival": "first and last token came in the same arrival",
    "output_count_unknown": "neither the engine nor its ids say how many tokens there were",
    "first_count_unknown": "how many tokens came in the first arrival is not known",
    "several_per_arrival": "an arrival did not hold exactly one token, so gaps are something else",
    "prompt_count_unknown": "the engine did not say how much of the prompt it processed",
    "prefill_count_contradicted": "the engine counts more prefilled tokens than were not cached",
    "nothing_prefilled": "no prompt token was processed",
    "no_time_passed": "no time passed on that clock",
    "not_reported": "the engine does not report it",
    "not_served": "nothing is served: the engine runs in the caller's own process",
    "phase_not_reached": "the launch did not get that far",
    "no_cold": "cold was not measured in that process",
    "no_reuse": "reuse was not measured in that process",
    "control_missing": "no control prompt was measured in that process: a gain could be warm-up",
    "control_differs": "the control prompt did not cost what cold cost, so the gain is not reuse",
    "nothing_reused": "the engine reused nothing of the prompt, so there is no gain to tell",
}
"""Why a metric has no value, by reason code."""


class Vantage(StrEnum):
    """Where a quantity was seen from. Two vantages never share a column."""

    ENGINE = "engine"
    IN_PROCESS = "in_process"
    HTTP = "http"
    LAUNCHER = "launcher"
    """Whoever started the engine's process and waited until it was ready."""


class Direction(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@frozen(kw_only=True)
class Metric:
    """A definition. ``compute`` takes what ``of`` says: a sample or a launch."""

    id: str
    version: int = 1
    unit: str
    direction: Direction
    formula: str
    undefined_when: str
    doc: str
    by_engine: bool = False
    """Reported by the engine; otherwise seen by the caller, from where the clock stood."""
    needs_full_output: bool = False
    """Depends on the output's length: where that was fixed, a short output gives no value."""
    only_at: Placement | None = None
    """Has a meaning only for engines that run there."""

    def vantage(self, placement: Placement) -> Vantage:
        """Return where its value is seen from."""
        if self.by_engine:
            return Vantage.ENGINE
        return Vantage.IN_PROCESS if placement is Placement.IN_PROCESS else Vantage.HTTP


@frozen(kw_only=True)
class SampleMetric(Metric):
    """A metric of one request."""

    compute: Callable[[Sample], float]


@frozen(kw_only=True)
class LaunchMetric(Metric):
    """A metric of one launch; it is also given the request that ended its loading, if any."""

    compute: Callable[[Launch, Sample | None], float]
    of_first_request: bool = False
    """Depends on that request: when it does not count, neither does this."""
    of_request_alone: bool = False
    """Seen like any request; otherwise by whoever started the process."""

    def vantage(self, placement: Placement) -> Vantage:
        """Return the launcher, except for what is seen of the request itself."""
        return super().vantage(placement) if self.of_request_alone else Vantage.LAUNCHER


@frozen(kw_only=True)
class RoundMetric(Metric):
    """A metric of one process's samples of a workload, by condition."""

    needs: Mapping[Condition, str]
    """The conditions it is made of, each with the reason for having no value without it."""
    compute: Callable[[Mapping[Condition, Sample]], float]
