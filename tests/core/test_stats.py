"""Median, range and flags over rounds, at their exact thresholds."""

from __future__ import annotations

from math import comb

import pytest

from inferometer.stats import (
    DRIFT_RATIO,
    FIRST_ROUND_RATIO,
    FLAGS,
    PERCENTILE_FLOORS,
    SPREAD_RATIO,
    flags,
    per_round,
    percentile,
    spread,
)

A_BIT = 1e-6


def of(*values: float) -> tuple[str, ...]:
    """The flags of values measured in rounds 1, 2, 3 ..."""
    return flags(dict(enumerate(values, 1)))


# --- rounds --------------------------------------------------------------------------------


def test_several_samples_of_one_round_count_as_one_their_median():
    values = [(2, 10.0), (1, 1.0), (1, 3.0), (1, 100.0), (2, 20.0)]
    assert per_round(values) == {1: 3.0, 2: 15.0}


def test_rounds_come_in_order():
    assert list(per_round([(3, 1.0), (1, 1.0), (2, 1.0)])) == [1, 2, 3]


def test_no_values_are_no_rounds_and_no_spread():
    assert per_round([]) == {}
    assert spread([]) is None
    assert of() == ()


def test_a_spread_is_median_and_range_with_n():
    found = spread([3.0, 1.0, 2.0, 10.0])
    assert found is not None
    assert (found.n, found.median, found.min, found.max) == (4, 2.5, 1.0, 10.0)


# --- percentiles ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "floor", "expected"), [(90, 64, 58), (99, 662, 656)])
def test_a_percentile_needs_enough_values(rank, floor, expected):
    assert PERCENTILE_FLOORS[rank] == floor
    values = [float(n) for n in range(floor, 0, -1)]
    assert percentile(values, rank) == expected
    assert percentile(values[1:], rank) is None
    assert percentile([], rank) is None


@pytest.mark.parametrize(("rank", "floor"), PERCENTILE_FLOORS.items())
def test_from_its_floor_on_a_percentile_does_not_hang_on_one_value(rank, floor):
    def chance_that_at_most_one_lies_above(n: int) -> float:
        below = rank / 100
        return sum(comb(n, above) * below ** (n - above) * (1 - below) ** above for above in (0, 1))

    assert chance_that_at_most_one_lies_above(floor) <= 0.01
    assert chance_that_at_most_one_lies_above(floor - 1) > 0.01


# --- spread --------------------------------------------------------------------------------


def test_a_spread_is_told_above_its_ratio_not_at_it():
    assert of(1.0, SPREAD_RATIO) == ()
    assert of(1.0, SPREAD_RATIO + A_BIT) == ("spread",)
    assert of(SPREAD_RATIO + A_BIT, 1.0) == ("spread",)
    assert of(0.1, 0.12) == ()


def test_nothing_and_something_are_infinitely_far_apart():
    assert of(0.0, 127.0) == ("spread",)
    assert of(0.0, 0.0) == ()


def test_differences_below_zero_have_a_spread_as_well():
    assert of(-1.0, -1.2) == ()
    assert of(-1.0, -1.3) == ("spread",)
    assert of(-0.001, 0.001) == ("spread",)


def test_one_round_has_nothing_to_differ_from():
    assert of(5.0) == ()


# --- the first round -----------------------------------------------------------------------


def test_a_first_round_far_from_the_others_is_told():
    limit = FIRST_ROUND_RATIO
    assert "first_round_differs" not in of(limit, 1.0, 1.0)
    assert "first_round_differs" in of(limit + A_BIT, 1.0, 1.0)
    assert "first_round_differs" in of(1.0, limit + A_BIT, limit + A_BIT)


def test_the_others_are_the_median_of_the_rest():
    assert "first_round_differs" not in of(1.0, 1.0, 50.0, 1.0)


def test_two_rounds_do_not_say_which_of_them_is_odd():
    assert of(10.0, 1.0) == ("spread",)


def test_the_first_round_is_round_one_not_the_first_that_has_a_value():
    assert "first_round_differs" in flags({1: 9.0, 2: 1.0, 3: 1.0})
    assert "first_round_differs" not in flags({2: 9.0, 3: 1.0, 4: 1.0})


def test_a_compilation_in_the_first_round_is_told_and_hardly_moves_the_median():
    series = (1537.0, 58.0, 57.0, 60.0, 58.0)
    found = spread(series)
    assert found is not None
    assert found.median == 58.0
    assert of(*series) == ("spread", "first_round_differs")


# --- drift ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [1, -1])
def test_rounds_that_went_one_way_are_told(way):
    series = [1.0, 1.05, 1.1, 1.15][::way]
    assert of(*series) == ("drift",)


def test_a_drift_is_told_above_its_ratio_not_at_it():
    assert of(1.0, 1.01, 1.02, DRIFT_RATIO) == ()
    assert of(1.0, 1.01, 1.02, DRIFT_RATIO + A_BIT) == ("drift",)


def test_three_rounds_go_one_way_by_chance():
    assert of(1.0, 1.1, 1.2) == ()


@pytest.mark.parametrize("series", [(1.0, 1.1, 1.05, 1.2), (1.0, 1.05, 1.1, 1.2, 1.15)])
def test_a_step_back_among_few_rounds_is_no_drift(series):
    assert "drift" not in of(*series)


def test_a_step_back_among_many_rounds_does_not_hide_a_drift():
    assert of(1.0, 1.02, 1.04, 1.03, 1.06, 1.08, 1.12) == ("drift",)


@pytest.mark.parametrize("series", [(1.0, 1.0, 1.1, 1.2), (1.2, 1.1, 1.0, 1.0)])
def test_a_tie_is_no_step(series):
    assert of(*series) == ()


def test_equal_rounds_do_not_drift():
    assert of(1.0, 1.0, 1.0, 1.0, 1.0) == ()


def test_every_flag_has_a_sentence_with_its_threshold():
    assert set(FLAGS) == {"spread", "first_round_differs", "drift"}
    assert "1.25" in FLAGS["spread"]
    assert "1.5" in FLAGS["first_round_differs"]
    assert "over 10 %" in FLAGS["drift"]
