"""Median and range over rounds. Knows no engine and no metric.

The unit of replication is the round: requests inside one process are not independent, so
several samples of one round count as one, their median.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import median

from attrs import frozen

PERCENTILE_FLOORS = {90: 64, 99: 662}
"""Fewest values that can carry a percentile.

From there on the second largest of them lies above it with 99 % confidence: what is said about
the tail no longer hangs on a single value.
"""

SPREAD_RATIO = 1.25
FIRST_ROUND_RATIO = 1.5
DRIFT_RATIO = 1.1
_DRIFT_ROUNDS = 4
_DRIFT_DEVIATIONS = 2
_FIRST_ROUNDS = 3

FLAGS: Mapping[str, str] = {
    "spread": f"the largest round is over {SPREAD_RATIO:g} times the smallest",
    "first_round_differs": f"the first round is over {FIRST_ROUND_RATIO:g} times off the others",
    "drift": f"the rounds went one way, by over {100 * (DRIFT_RATIO - 1):.0f} % from first to last",
}
"""What a reader should know about the rounds of a value, by flag."""


@frozen(kw_only=True)
class Spread:
    """A median with its range."""

    n: int
    median: float
    min: float
    max: float


def per_round(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Return one value per round, in order of rounds: the median of what it measured."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for number, value in values:
        rounds[number].append(value)
    return {number: _middle(rounds[number]) for number in sorted(rounds)}


def _middle(values: Sequence[float]) -> float:
    # One value per round is the rule: sorting it would be most of the work.
    return values[0] if len(values) == 1 else median(values)


def spread(values: Sequence[float]) -> Spread | None:
    """Return median and range of one value per round, or None of none."""
    if not values:
        return None
    return Spread(n=len(values), median=median(values), min=min(values), max=max(values))


def percentile(values: Sequence[float], rank: int) -> float | None:
    """Return a percentile (nearest rank), or None where n cannot carry it."""
    if len(values) < PERCENTILE_FLOORS[rank]:
        return None
    return sorted(values)[-(-len(values) * rank // 100) - 1]


def flags(rounds: Mapping[int, float]) -> tuple[str, ...]:
    """Return what a reader should know about one value per round, by number of the round.

    ``spread``: the largest is over 1.25 times the smallest. ``first_round_differs``: round 1 is
    over 1.5 times away from the median of at least two others. ``drift``: of at least four
    rounds, later ones were larger (or smaller) more often than chance has it, and the last is
    over 1.1 times away from the first.
    """
    values = list(rounds.values())
    found = []
    if values and _apart(min(values), max(values), SPREAD_RATIO):
        found.append("spread")
    if _first_differs(rounds):
        found.append("first_round_differs")
    if len(values) >= _DRIFT_ROUNDS and _drifted(values):
        found.append("drift")
    return tuple(found)


def _first_differs(rounds: Mapping[int, float]) -> bool:
    others = [value for number, value in rounds.items() if number != 1]
    measured = 1 in rounds and len(rounds) >= _FIRST_ROUNDS
    return measured and _apart(rounds[1], median(others), FIRST_ROUND_RATIO)


def _apart(one: float, other: float, ratio: float) -> bool:
    if one * other <= 0:  # no ratio tells how far zero is
        return one != other
    low, high = sorted((abs(one), abs(other)))
    return high > ratio * low


def _drifted(values: Sequence[float]) -> bool:
    # Kendall's trend: unlike "every step went the same way" it grows no blinder with more rounds.
    n = len(values)
    trend = _rises_over_falls(values)
    deviation = sqrt(n * (n - 1) * (2 * n + 5) / 18)
    by_chance = abs(trend) <= _DRIFT_DEVIATIONS * deviation
    return not by_chance and _apart(values[0], values[-1], DRIFT_RATIO)


def _rises_over_falls(values: Sequence[float]) -> int:
    """Return how many more pairs rise than fall, among all pairs, earlier before later."""
    balance, earlier = 0, list[float]()
    for value in values:
        smaller, larger = bisect_left(earlier, value), len(earlier) - bisect_right(earlier, value)
        balance += smaller - larger
        insort(earlier, value)
    return balance
