"""Every metric has an exact value on a clock that stands still, or a reason for having none."""

from __future__ import annotations

import pytest
from attrs import evolve

from inferometer import Chunk, FinishReason, Placement
from inferometer.metrics import (
    CONTROL_TOLERANCE,
    LAUNCH_METRICS,
    REASONS,
    REGISTRY,
    ROUND_METRICS,
    SAMPLE_METRICS,
    Direction,
    Undefined,
    Vantage,
)
from inferometer.results import LoadPhases
from inferometer.suite import Condition
from inferometer.testing import Pause
from support.samples import (
    arrivals,
    ending,
    finished,
    launch,
    ns,
    recorded,
    sample,
    timed,
    timings,
    tokens,
    watched,
)

EOS = FinishReason.STOP_EOS


def value(metric: str, measured) -> float:
    return REGISTRY[metric].compute(measured)


def undefined(metric: str, measured) -> str:
    with pytest.raises(Undefined) as caught:
        REGISTRY[metric].compute(measured)
    assert str(caught.value) == REASONS[caught.value.reason]
    return caught.value.reason


def seen(*steps, **changes):
    return recorded(watched(*steps), **changes)


def uncounted(*at: float, told: int | None, kinds: str | None = None, **said):
    return sample(arrivals=arrivals(*at, kinds=kinds), output_ids=None, ending=ending(told, **said))


def served():
    """A request to a server that tells everything: 32 of 128 tokens prefilled, in 160 ms."""
    told = ending(
        10,
        cached_prompt_tokens=96,
        timings=evolve(
            timings(queue=5, prefill=160, decode=450), prefill_tokens=32, decode_steps=9
        ),
    )
    return sample(
        condition=Condition.REUSE,
        max_output_tokens=10,
        arrivals=arrivals(2, *range(175, 626, 50), counts=[0] + [1] * 10, kinds="e" + "a" * 10),
        output_ids=(65,) * 10,
        ending=told,
    )


# --- exact values --------------------------------------------------------------------------

SERVED = {
    "ttft": 0.175,
    "ttfa": 0.175,
    "ttfe": 0.002,
    "e2e": 0.625,
    "decode_rate": 20.0,
    "tpot": 0.05,
    "itl": 0.05,
    "inter_arrival": 0.05,
    "prefill_rate": 200.0,
    "prefill_rate_bound": 32e9 / 175e6,
    "queue_time": 0.005,
    "engine_prefill_time": 0.16,
    "engine_decode_time": 0.45,
    "engine_decode_rate": 20.0,
    "serving_overhead": 0.01,
    "ttft_outside_prefill": 0.015,
    "cached_tokens": 96,
    "cache_hit_ratio": 0.75,
    "generated_tokens": 10,
}


@pytest.mark.parametrize(("metric", "expected"), SERVED.items())
def test_what_the_server_says_and_what_its_client_saw_are_different_metrics(metric, expected):
    assert value(metric, served()) == expected


def test_every_metric_of_a_request_has_its_exact_value_above():
    assert SERVED.keys() == {metric.id for metric in SAMPLE_METRICS}


LOADED = {
    "load.spawn": 0.3,
    "load.import": 0.04,
    "load.prepare": 0.005,
    "load.load": 0.6,
    "load.first_request": 0.24,
    "load.ready": 1.185,
}


@pytest.mark.parametrize(("metric", "expected"), LOADED.items())
def test_loading_is_told_phase_by_phase_and_as_a_sum(metric, expected):
    assert REGISTRY[metric].compute(launch(), sample(condition=Condition.LOAD)) == expected


def test_every_metric_of_loading_has_its_exact_value_above():
    assert LOADED.keys() == {metric.id for metric in LAUNCH_METRICS}


# --- the first token -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "ttfa"),
    [
        (Chunk(tokens=1, reasoning="x"), 0.19),
        (Chunk(tokens=1, tool_call="x"), 0.19),
        (Chunk(tokens=1, answer="x"), 0.09),
    ],
)
def test_the_first_token_is_the_first_content_of_any_kind_and_the_first_answer_apart(first, ttfa):
    measured = seen(Pause(90), first, Pause(100), Chunk(tokens=1, answer="y"), finished(2))
    assert value("ttft", measured) == 0.09
    assert value("ttfa", measured) == ttfa


def test_tokens_without_text_are_the_first_token_and_may_or_may_not_be_an_answer():
    measured = seen(Pause(90), Chunk(tokens=1), Pause(100), Chunk(tokens=1), finished(2))
    assert value("ttft", measured) == 0.09
    assert undefined("ttfa", measured) == "kind_unknown"


def test_a_role_a_keep_alive_and_an_empty_event_are_neither_token_nor_interval():
    bare = Chunk()
    measured = seen(
        Pause(5), bare, Pause(209), *tokens(0)[1:], Pause(10), bare, Pause(10), *tokens(0)[1:],
        Pause(3), bare, finished(2),
    )  # fmt: skip
    assert value("ttfe", measured) == 0.005
    assert value("ttft", measured) == 0.214
    assert value("e2e", measured) == 0.234
    assert value("decode_rate", measured) == 50.0
    assert value("itl", measured) == 0.02
    assert value("generated_tokens", measured) == 2


def test_an_answer_made_of_tool_calls_has_a_first_token_and_no_first_answer():
    measured = uncounted(108, 110, 130, 150, told=12, kinds="ettt")
    assert value("ttft", measured) == 0.11
    assert undefined("ttfa", measured) == "no_answer"
    assert undefined("decode_rate", measured) == "first_count_unknown"
    assert value("generated_tokens", measured) == 12


def test_a_limit_reached_while_reasoning_leaves_no_first_answer():
    measured = uncounted(60, 80, 100, told=3, kinds="rrr")
    assert value("ttft", measured) == 0.06
    assert undefined("ttfa", measured) == "no_answer"
    assert value("decode_rate", measured) == 50.0


def test_the_end_of_the_stream_is_not_the_end_of_the_answer():
    measured = seen(*tokens(100, 200), Pause(50), finished(2), Pause(1_000))
    assert value("e2e", measured) == 0.2


# --- the rate after it ---------------------------------------------------------------------


def test_several_tokens_in_the_first_arrival_are_not_charged_to_the_time_after_it():
    measured = sample(
        arrivals=arrivals(150, 350, 550, 750, 950, 1150, counts=[5, 4, 6, 5, 3, 5]),
        ending=ending(28),
    )
    assert value("decode_rate", measured) == (28 - 5) / 1.0
    assert value("tpot", measured) == 1.0 / 23
    assert value("inter_arrival", measured) == 0.2
    assert undefined("itl", measured) == "several_per_arrival"


def test_one_output_token_has_a_first_time_and_no_rate():
    measured = seen(Chunk(tokens=0), *tokens(90), finished(1))
    assert value("ttft", measured) == 0.09
    for metric in ("decode_rate", "tpot", "itl", "inter_arrival"):
        assert undefined(metric, measured) == "one_token"


def test_one_output_token_of_an_uncounted_stream_has_no_rate_either():
    assert undefined("decode_rate", uncounted(90, told=1)) == "one_token"
    assert undefined("decode_rate", uncounted(90, 95, told=1)) == "one_token"


def test_one_token_and_an_end_token_that_never_came_have_no_rate():
    measured = uncounted(90, told=2, reason=EOS)
    assert undefined("decode_rate", measured) == "one_token"


@pytest.mark.parametrize("counts", [[8], None])
def test_an_answer_in_one_arrival_has_no_rate(counts):
    measured = sample(arrivals=arrivals(620, counts=counts))
    for metric in ("decode_rate", "tpot", "itl", "inter_arrival"):
        assert undefined(metric, measured) == "one_arrival"
    assert value("e2e", measured) == 0.62


def test_text_after_all_tokens_came_at_once_makes_no_rate():
    measured = sample(arrivals=arrivals(100, 200, counts=[8, 0]))
    assert undefined("decode_rate", measured) == "one_arrival"


def test_unknown_counts_give_no_rate_that_would_be_read_as_exact():
    measured = uncounted(80, 110, 140, 170, 200, told=None)
    for metric in ("decode_rate", "tpot", "itl", "generated_tokens"):
        assert undefined(metric, measured) == "output_count_unknown"
    assert value("ttft", measured) == 0.08
    assert value("inter_arrival", measured) == 0.03


def test_a_total_without_its_distribution_gives_a_rate_only_if_each_arrival_held_one():
    assert value("decode_rate", uncounted(50, 70, 90, told=3)) == 50.0
    assert value("itl", uncounted(50, 70, 90, told=3)) == 0.02
    spread_out = uncounted(50, 70, 90, told=5)
    assert undefined("decode_rate", spread_out) == "first_count_unknown"
    assert undefined("itl", spread_out) == "several_per_arrival"


def test_an_end_token_that_never_arrived_is_in_no_rate():
    counted = seen(*tokens(160, 180, 200, 220, 240, 260), finished(7, reason=EOS))
    uncounted_ = uncounted(160, 180, 200, 220, 240, 260, told=7, reason=EOS)
    for measured in (counted, uncounted_):
        assert value("decode_rate", measured) == 50.0
        assert value("generated_tokens", measured) == 7


def test_arrivals_at_the_same_moment_have_no_time_between_them():
    measured = sample(arrivals=arrivals(100, 100, counts=[4, 4]))
    assert undefined("decode_rate", measured) == "no_time_passed"
    assert undefined("tpot", measured) == "no_time_passed"


def test_tpot_is_the_inverse_of_the_rate_wherever_there_is_one():
    measured = timed(100, 25)
    assert value("decode_rate", measured) == 40.0
    assert value("tpot", measured) == 0.025


def test_the_typical_gap_is_the_median_and_knows_no_first_token():
    measured = sample(arrivals=arrivals(900, 910, 920, 990, counts=[1] * 4), ending=ending(4))
    assert value("itl", measured) == 0.01


# --- nothing there -------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["ttft", "e2e", "decode_rate", "tpot", "itl", "inter_arrival"])
def test_without_content_there_is_no_time(metric):
    empty = sample(arrivals=arrivals(5, kinds="e", counts=[0]), ending=ending(1))
    assert undefined(metric, empty) == "no_content"


def test_without_any_event_there_is_not_even_a_first_event():
    assert undefined("ttfe", sample(arrivals=arrivals())) == "no_events"


# --- prefill -------------------------------------------------------------------------------


def test_the_bound_of_the_prefill_rate_counts_only_what_was_new():
    measured = timed(200, ending=ending(cached_prompt_tokens=28))
    assert value("prefill_rate_bound", measured) == 500.0
    last = timed(200, ending=ending(cached_prompt_tokens=127))
    assert value("prefill_rate_bound", last) == 5.0


def test_without_a_word_about_the_cache_nobody_knows_what_was_new():
    measured = timed(200, ending=ending(cached_prompt_tokens=None))
    assert undefined("prefill_rate_bound", measured) == "prompt_count_unknown"


def test_a_prompt_that_was_all_cached_has_no_prefill_rate():
    measured = timed(200, ending=ending(cached_prompt_tokens=128))
    assert undefined("prefill_rate_bound", measured) == "nothing_prefilled"


def prefilled(count: int | None, milliseconds: float | None, cached: int | None = 0):
    told = timings() if milliseconds is None else timings(prefill=milliseconds)
    told = evolve(told, prefill_tokens=count)
    return sample(ending=ending(cached_prompt_tokens=cached, timings=told))


def test_a_prefill_rate_needs_both_figures_of_the_engine():
    assert value("prefill_rate", prefilled(128, 64)) == 2000.0
    assert undefined("prefill_rate", prefilled(None, 64)) == "not_reported"
    assert undefined("prefill_rate", prefilled(128, None)) == "not_reported"


def test_cached_tokens_are_never_prefilled_ones():
    assert undefined("prefill_rate", prefilled(128, 160, 96)) == "prefill_count_contradicted"
    assert value("prefill_rate", prefilled(32, 160, 96)) == 200.0


def test_the_last_token_is_computed_whatever_is_cached():
    assert value("prefill_rate", prefilled(1, 10, 128)) == 100.0
    assert undefined("prefill_rate", prefilled(2, 10, 128)) == "prefill_count_contradicted"


def test_where_nobody_speaks_of_the_cache_the_engines_figures_stand():
    assert value("prefill_rate", prefilled(128, 64, None)) == 2000.0


def test_nothing_prefilled_and_no_time_are_reasons_not_zeros():
    assert undefined("prefill_rate", prefilled(0, 64)) == "nothing_prefilled"
    assert undefined("prefill_rate", prefilled(128, 0)) == "no_time_passed"


# --- what is not reported ------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric",
    [
        "queue_time",
        "engine_prefill_time",
        "engine_decode_time",
        "engine_decode_rate",
        "prefill_rate",
        "serving_overhead",
        "ttft_outside_prefill",
    ],
)
def test_what_the_engine_does_not_report_has_no_value(metric):
    assert undefined(metric, sample()) == "not_reported"
    assert undefined(metric, sample(ending=None)) == "not_reported"


@pytest.mark.parametrize("metric", ["cached_tokens", "cache_hit_ratio"])
def test_a_cache_that_nobody_reports_is_not_an_empty_cache(metric):
    assert undefined(metric, sample(ending=ending(cached_prompt_tokens=None))) == "not_reported"
    assert value(metric, sample()) == 0


def test_an_empty_prompt_has_no_share_of_anything():
    assert undefined("cache_hit_ratio", sample(prompt_tokens=0)) == "prompt_count_unknown"


def test_two_tokens_take_one_decode_step():
    told = evolve(timings(decode=5), decode_steps=1)
    assert value("engine_decode_rate", sample(ending=ending(timings=told))) == 200.0


def test_one_token_takes_no_decode_step():
    told = evolve(timings(decode=5), decode_steps=0)
    assert undefined("engine_decode_rate", sample(ending=ending(timings=told))) == "one_token"


def test_serving_needs_queue_and_prefill_and_may_come_out_negative():
    told = timings(queue=0, prefill=120)
    assert value("serving_overhead", timed(100, ending=ending(timings=told))) == -0.02
    partly = timings(prefill=120)
    assert undefined("serving_overhead", timed(100, ending=ending(timings=partly))) == (
        "not_reported"
    )


# --- loading -------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["spawn", "import", "prepare", "load"])
def test_a_phase_that_was_not_reached_is_missing_from_the_sum_as_well(phase):
    begun = launch()
    cut_short = evolve(begun, phases=evolve(begun.phases, **{f"{phase}_ns": None}))
    first = sample(condition=Condition.LOAD)
    for metric in (f"load.{phase}", "load.ready"):
        with pytest.raises(Undefined) as caught:
            REGISTRY[metric].compute(cut_short, first)
        assert caught.value.reason == "phase_not_reached"


@pytest.mark.parametrize("metric", ["load.first_request", "load.ready"])
def test_without_a_first_request_nothing_was_ever_ready(metric):
    with pytest.raises(Undefined) as caught:
        REGISTRY[metric].compute(launch(), None)
    assert caught.value.reason == "phase_not_reached"


def test_a_phase_that_took_no_time_is_a_zero_and_not_missing():
    instant = launch(phases=LoadPhases(spawn_ns=0, import_ns=0, prepare_ns=0, load_ns=0))
    assert REGISTRY["load.load"].compute(instant, None) == 0


# --- reuse ---------------------------------------------------------------------------------


def gain(cold: float, reuse: float, control: float, cached: int | None = 127):
    return {
        Condition.COLD: timed(cold),
        Condition.REUSE: timed(
            reuse, condition=Condition.REUSE, ending=ending(cached_prompt_tokens=cached)
        ),
        Condition.CONTROL: timed(control, condition=Condition.CONTROL),
    }


@pytest.mark.parametrize("cached", [127, None])
def test_a_gain_is_reuse_when_the_control_costs_what_cold_cost(cached):
    assert value("cache_speedup", gain(300, 40, 310, cached)) == 7.5


@pytest.mark.parametrize("control", [120, 80])
def test_a_control_at_the_very_tolerance_still_passes(control):
    assert CONTROL_TOLERANCE == 0.2
    assert value("cache_speedup", gain(100, 50, control)) == 2.0


@pytest.mark.parametrize("control", [120.001, 79.999])
def test_a_gain_that_the_control_has_as_well_is_not_reuse(control):
    assert undefined("cache_speedup", gain(100, 50, control)) == "control_differs"


def test_where_nothing_was_reused_there_is_no_gain_to_tell():
    assert undefined("cache_speedup", gain(100, 50, 100, cached=0)) == "nothing_reused"


def test_a_reuse_without_time_has_no_ratio():
    assert undefined("cache_speedup", gain(100, 0, 100)) == "no_time_passed"


def test_every_condition_of_a_gain_has_its_own_reason_when_it_is_missing():
    (metric,) = ROUND_METRICS
    assert dict(metric.needs) == {
        Condition.COLD: "no_cold",
        Condition.REUSE: "no_reuse",
        Condition.CONTROL: "control_missing",
    }


# --- reasons -------------------------------------------------------------------------------

WHY = {
    "no_content": ("ttft", sample(arrivals=arrivals(5, kinds="e"))),
    "no_answer": ("ttfa", uncounted(5, told=1, kinds="r")),
    "kind_unknown": ("ttfa", uncounted(5, 6, told=2, kinds="ga")),
    "no_events": ("ttfe", sample(arrivals=arrivals())),
    "one_token": ("decode_rate", uncounted(5, told=1)),
    "one_arrival": ("decode_rate", uncounted(5, told=8)),
    "output_count_unknown": ("decode_rate", uncounted(5, 6, told=None)),
    "first_count_unknown": ("decode_rate", uncounted(5, 6, told=8)),
    "several_per_arrival": ("itl", uncounted(5, 6, told=8)),
    "prompt_count_unknown": (
        "prefill_rate_bound",
        sample(ending=ending(cached_prompt_tokens=None)),
    ),
    "prefill_count_contradicted": ("prefill_rate", prefilled(128, 160, 96)),
    "nothing_prefilled": ("prefill_rate", prefilled(0, 160)),
    "no_time_passed": ("prefill_rate", prefilled(128, 0)),
    "not_reported": ("queue_time", sample()),
    "control_differs": ("cache_speedup", gain(100, 50, 50)),
    "nothing_reused": ("cache_speedup", gain(100, 50, 100, cached=0)),
}
ELSEWHERE = {
    "phase_not_reached": "loading, above",
    "not_served": "the summary, which knows where an engine runs",
    "no_cold": "the summary, which knows what was measured",
    "no_reuse": "the summary, which knows what was measured",
    "control_missing": "the summary, which knows what was measured",
}


@pytest.mark.parametrize("reason", WHY)
def test_every_reason_can_be_reached(reason):
    assert undefined(*WHY[reason]) == reason


def test_there_is_no_reason_that_cannot():
    assert REASONS.keys() == WHY.keys() | ELSEWHERE.keys()


# --- the registry --------------------------------------------------------------------------


def test_every_metric_is_in_the_registry_once_and_fully_described():
    everything = [*LAUNCH_METRICS, *SAMPLE_METRICS, *ROUND_METRICS]
    assert list(REGISTRY) == [metric.id for metric in everything]
    assert len(REGISTRY) == len(everything)
    for metric in everything:
        assert metric.unit in {"s", "tokens", "tokens/s", "ratio"}
        assert metric.formula
        assert metric.undefined_when
        assert metric.doc.endswith(".")
        assert metric.version >= 1


def test_rates_are_better_high_and_times_are_better_low():
    for metric in REGISTRY.values():
        if metric.unit == "tokens/s":
            assert metric.direction is Direction.HIGHER
        if metric.unit == "s" and metric.direction is not Direction.NEITHER:
            assert metric.direction is Direction.LOWER


def test_what_the_engine_reports_is_seen_from_the_engine_wherever_it_runs():
    by_engine = {metric.id for metric in REGISTRY.values() if metric.by_engine}
    assert by_engine == {
        "prefill_rate",
        "queue_time",
        "engine_prefill_time",
        "engine_decode_time",
        "engine_decode_rate",
        "cached_tokens",
        "cache_hit_ratio",
        "generated_tokens",
    }
    launched = {f"load.{phase}" for phase in ("spawn", "import", "prepare", "load", "ready")}
    for name, metric in REGISTRY.items():
        for placement, seen_from in (
            (Placement.IN_PROCESS, Vantage.IN_PROCESS),
            (Placement.SERVER, Vantage.HTTP),
        ):
            expected = Vantage.ENGINE if name in by_engine else seen_from
            expected = Vantage.LAUNCHER if name in launched else expected
            assert metric.vantage(placement) is expected


def test_only_what_depends_on_the_length_needs_all_of_the_output():
    assert {metric.id for metric in SAMPLE_METRICS if metric.needs_full_output} == {
        "e2e",
        "decode_rate",
        "tpot",
        "itl",
        "inter_arrival",
        "engine_decode_time",
        "engine_decode_rate",
    }


def test_serving_has_a_cost_only_where_there_is_a_server():
    assert [m.id for m in REGISTRY.values() if m.only_at] == ["serving_overhead"]
    assert REGISTRY["serving_overhead"].only_at is Placement.SERVER


def test_durations_are_whole_nanoseconds_until_the_last_division():
    measured = sample(
        arrivals=evolve(arrivals(1, 2, counts=[1, 1]), offsets_ns=(ns(0.1), ns(0.3))),
        ending=ending(2),
    )
    assert value("decode_rate", measured) == 5_000.0
