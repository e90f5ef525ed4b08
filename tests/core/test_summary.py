"""From raw samples to rows: what counts, what is missing, and why."""

from __future__ import annotations

import typing

import attrs
import pytest
from attrs import evolve

from inferometer import EngineIdentity, FinishReason, Placement
from inferometer.codec import to_json
from inferometer.failures import Failure
from inferometer.fields import about_of
from inferometer.load import parse_results
from inferometer.metrics import LAUNCH_METRICS, REGISTRY, ROUND_METRICS, SAMPLE_METRICS, Vantage
from inferometer.results import Launch, LoadPhases, Results
from inferometer.schema import SCHEMAS
from inferometer.suite import Condition
from inferometer.summary import FLAGS, MetricSummary, Summary, groups, summarize
from support.samples import (
    arrivals,
    ending,
    failed,
    launch,
    record,
    results,
    sample,
    skip,
    suite,
    timed,
    timings,
    workload,
)

EOS = FinishReason.STOP_EOS
ALL = tuple(Condition)
REQUESTS = (Condition.COLD, Condition.REUSE, Condition.CONTROL)


def row(
    run: Results,
    metric: str,
    condition: Condition = Condition.COLD,
    subject: str = "alpha",
    of: str | None = "p128",
) -> MetricSummary:
    key = (subject, None if condition is Condition.LOAD else of, condition, metric)
    (found,) = (
        row
        for row in summarize(run).metrics
        if (row.subject, row.workload, row.condition, row.metric) == key
    )
    return found


def rounds(*first_ms: float, **changes) -> list:
    return [timed(at, round=number, **changes) for number, at in enumerate(first_ms, 1)]


# --- one row -------------------------------------------------------------------------------


def test_a_row_is_the_median_and_range_over_rounds():
    found = row(results(rounds(130, 100, 110)), "ttft")
    assert (found.n, found.median, found.min, found.max) == (3, 0.11, 0.1, 0.13)
    assert (found.unit, found.version, found.undefined, found.missing) == ("s", 1, None, {})
    assert (found.p90, found.p99) == (None, None)


def test_percentiles_appear_with_the_rounds_that_can_carry_them():
    found = row(results(rounds(*range(1, 65))), "ttft")
    assert (found.n, found.p90, found.p99) == (64, 0.058, None)


def test_there_is_one_row_per_subject_workload_condition_and_metric():
    run = results(
        asked=suite(workload("p128"), workload("p512"), conditions=ALL),
        subjects=[record("alpha"), record("beta")],
    )
    rows = summarize(run).metrics
    keys = {(r.subject, r.workload, r.condition, r.metric) for r in rows}
    assert len(keys) == len(rows)
    requests = len(SAMPLE_METRICS) * len(REQUESTS) + len(ROUND_METRICS)
    assert len(rows) == 2 * (len(LAUNCH_METRICS) + 2 * requests)
    assert {r.metric for r in rows} == REGISTRY.keys()


def test_a_suite_without_loading_has_no_rows_of_it():
    run = results(rounds(100))
    assert {r.condition for r in summarize(run).metrics} == {Condition.COLD}


def test_rows_without_a_value_say_why_and_nothing_else():
    for found in summarize(results()).metrics:
        assert (found.n, found.median, found.min, found.max) == (0, None, None, None)
        assert found.undefined == "not_measured"
        assert found.missing == {"not_measured": 3}


@pytest.mark.parametrize(
    "run",
    [
        results(rounds(100, 120, 90)),
        results([timed(100), failed(round=2), timed(100, round=4)], rounds=5),
        results([timed(1, round=2, ending=ending(cached_prompt_tokens=1))], rounds=3),
        results(
            [timed(100, condition=c, round=n) for c in ALL for n in (1, 3)],
            asked=suite(conditions=ALL),
        ),
    ],
)
def test_rounds_with_and_without_a_value_are_all_the_rounds(run):
    for found in summarize(run).metrics:
        assert found.n + sum(found.missing.values()) == run.rounds
        assert (found.undefined is None) == (found.n > 0)


# --- what never counts ---------------------------------------------------------------------


def test_medians_are_made_of_good_answers_only_and_the_others_are_counted():
    empty = sample(
        round=4,
        arrivals=arrivals(4, kinds="e", counts=[0]),
        output_ids=(),
        ending=ending(1, reason=EOS),
    )
    cut = failed("stream_truncated", round=5, arrivals=arrivals(10, counts=[1]))
    run = results([*rounds(100, 110, 140), empty, cut])
    ttft, itl = row(run, "ttft"), row(run, "itl")
    assert (ttft.median, ttft.n) == (0.11, 3)
    assert (itl.median, itl.n) == (0.02, 3)
    assert ttft.missing == {"empty_output": 1, "failed: stream_truncated": 1}
    assert {"excluded:empty_output", "excluded:failed: stream_truncated"} <= {*ttft.flags}


def test_warm_ups_are_kept_and_never_counted():
    series = {"p1": (1537, 58, 57, 60, 58), "p2": (910, 104, 103, 105, 104)}
    samples = [
        timed(at, workload=name, round=number, warmup=warmup)
        for name, (first, *rest) in series.items()
        for number, at in enumerate(rest, 1)
        for warmup, at in ((True, first), (False, at))
    ]
    run = results(samples, asked=suite(workload("p1"), workload("p2")))
    assert row(run, "ttft", of="p1").median == 0.058
    assert row(run, "ttft", of="p2").median == 0.104
    assert row(run, "ttft", of="p1").flags == ()


def test_a_warm_second_answer_does_not_pass_for_a_cold_one():
    warm = timed(40, round=2, ending=ending(cached_prompt_tokens=112))
    found = row(results([timed(300), warm]), "ttft")
    assert (found.n, found.median) == (1, 0.3)
    assert found.missing == {"cached_in_cold": 1}
    assert "excluded:cached_in_cold" in found.flags


def test_where_nothing_counts_the_commonest_reason_is_told():
    bad = [timed(1, round=n, ending=ending(prompt_tokens=129)) for n in (1, 2)]
    found = row(results([*bad, failed(round=3)]), "ttft")
    assert found.undefined == "prompt_count_differs"
    assert found.missing == {"prompt_count_differs": 2, "failed: connection_lost": 1}


def test_a_short_answer_counts_where_its_length_does_not_matter():
    short = timed(60, ending=ending(4, reason=EOS))
    short = evolve(short, arrivals=arrivals(60, 80, 100, 120, counts=[1] * 4), output_ids=(65,) * 4)
    run = results([short])
    assert row(run, "ttft").median == 0.06
    for metric in ("decode_rate", "tpot", "itl", "e2e"):
        assert row(run, metric).undefined == "ignore_eos_not_honoured"
    assert {"ignore_eos_not_honoured", "short_output"} <= {*row(run, "ttft").flags}


def test_a_free_length_has_its_rate_however_long_it_was():
    free = evolve(timed(40), ignore_eos=False, max_output_tokens=50, ending=ending(8, reason=EOS))
    assert row(results([free]), "decode_rate").median == 50.0


def test_an_unknown_cache_in_cold_counts_and_is_told():
    found = row(results([timed(1, ending=ending(cached_prompt_tokens=None))]), "ttft")
    assert found.n == 1
    assert "cache_unverified" in found.flags


def test_several_samples_of_a_round_count_once():
    again = [timed(at, request_id=f"again{at}") for at in (100, 300)]
    found = row(results([*again, timed(600, round=2)]), "ttft")
    assert (found.n, found.min, found.max) == (2, 0.2, 0.6)


def test_flags_of_the_rounds_are_told_per_metric():
    run = results(rounds(100, 100, 130))
    assert "spread" in row(run, "ttft").flags
    assert "spread" not in row(run, "decode_rate").flags


def test_the_floor_is_judged_by_the_cost_of_the_launch_it_was_measured_in():
    run = results(
        rounds(100, 100), [launch(1, harness_overhead_ns=1), launch(2, harness_overhead_ns=10**6)]
    )
    (group,) = groups(run)
    assert ["overhead_floor" in verdict.flags for _, verdict in group.judged] == [False, True]


# --- vantage -------------------------------------------------------------------------------


def test_two_vantages_never_share_a_row():
    told = ending(timings=evolve(timings(queue=5, prefill=80), prefill_tokens=128))
    run = results(
        [timed(100, ending=told), timed(120, subject="beta", ending=told)],
        subjects=[record("alpha"), record("beta", Placement.SERVER)],
    )
    assert row(run, "ttft").vantage is Vantage.IN_PROCESS
    assert row(run, "ttft", subject="beta").vantage is Vantage.HTTP
    for subject in ("alpha", "beta"):
        assert row(run, "prefill_rate", subject=subject).vantage is Vantage.ENGINE
        assert row(run, "prefill_rate", subject=subject).median == 1600.0
    assert row(run, "serving_overhead", subject="beta").median == 0.035


def test_what_is_not_served_has_no_serving_overhead():
    told = ending(timings=timings(queue=5, prefill=80))
    assert row(results([timed(100, ending=told)]), "serving_overhead").undefined == "not_served"


# --- reuse ---------------------------------------------------------------------------------


def family(number: int, cold: float, reuse: float, control: float, **of) -> list:
    told = {Condition.REUSE: ending(cached_prompt_tokens=112)}
    return [
        timed(at, condition=condition, round=number, ending=told.get(condition, ending()), **of)
        for condition, at in zip(REQUESTS, (cold, reuse, control), strict=True)
    ]


def gains(*samples, **changes) -> MetricSummary:
    run = results(samples, asked=suite(conditions=REQUESTS, **changes))
    return row(run, "cache_speedup", Condition.REUSE)


def test_a_gain_is_told_of_reuse_once_per_round():
    found = gains(*family(1, 300, 40, 310), *family(2, 300, 50, 290))
    assert (found.n, found.median, found.min, found.max) == (2, 6.75, 6.0, 7.5)
    assert "prefix_cache_hit" in found.flags


def test_a_round_whose_control_differs_has_no_gain():
    found = gains(*family(1, 300, 40, 300), *family(2, 300, 40, 60))
    assert (found.n, found.median) == (1, 7.5)
    assert found.missing == {"control_differs": 1}


@pytest.mark.parametrize(
    ("left_out", "reason"), [(Condition.COLD, "no_cold"), (Condition.CONTROL, "control_missing")]
)
def test_a_gain_needs_its_other_conditions(left_out, reason):
    some = [one for one in family(1, 300, 40, 300) if one.condition is not left_out]
    assert gains(*some).undefined == reason


def test_without_reuse_itself_the_reason_is_why_it_was_not_measured():
    some = [one for one in family(1, 300, 40, 300) if one.condition is not Condition.REUSE]
    assert gains(*some).undefined == "not_measured"


def test_a_gain_over_a_cold_request_that_does_not_count_says_why_that_does_not():
    cold, reuse, control = family(1, 300, 40, 300)
    spoiled = evolve(cold, ending=ending(cached_prompt_tokens=5))
    assert gains(spoiled, reuse, control).undefined == "cached_in_cold"


def test_a_gain_is_never_told_across_two_processes_of_one_round():
    cold, *_ = family(1, 300, 40, 300)
    _, reuse, control = family(1, 300, 40, 300, launch="r1-alpha+1")
    assert gains(cold, reuse, control).undefined == "no_cold"


def test_a_control_that_was_left_for_another_process_proves_nothing():
    cold, reuse, _ = family(1, 300, 40, 300)
    _, _, control = family(1, 300, 40, 300, launch="r1-alpha+1")
    assert gains(cold, reuse, control).undefined == "no_reuse"


# --- why something was not measured --------------------------------------------------------


def test_a_skipped_workload_says_skipped_with_its_code():
    run = results(rounds=2, skips=(skip(),))
    assert row(run, "ttft").undefined == "skipped: context_exceeded"
    assert row(run, "ttft").missing == {"skipped: context_exceeded": 2}


def test_a_skip_of_another_subject_or_workload_explains_nothing():
    others = (skip(subject="beta"), skip(workload="p512"))
    assert row(results(skips=others), "ttft").undefined == "not_measured"


def test_a_skipped_condition_leaves_the_others_alone():
    left_out = skip(condition=Condition.REUSE, code="unsupported", reason="it cannot")
    run = results(rounds(100), asked=suite(conditions=REQUESTS), skips=(left_out,))
    assert row(run, "ttft", Condition.REUSE).undefined == "skipped: unsupported"
    assert row(run, "ttft", Condition.CONTROL).undefined == "not_measured"


def test_a_failed_launch_says_failed_with_its_kind():
    killed = launch(2, failure=Failure(kind="killed", message="gone"), phases=LoadPhases())
    run = results([timed(100)], [launch(1), killed], rounds=2, asked=suite(conditions=(*ALL[:2],)))
    assert row(run, "ttft").missing == {"failed: killed": 1}
    assert row(run, "load.load", Condition.LOAD).missing == {"failed: killed": 1}
    assert row(run, "load.load", Condition.LOAD).median == 0.6


def test_a_planned_skip_comes_before_a_failure_and_a_failure_before_what_turned_up():
    killed = [launch(1, failure=Failure(kind="killed", message="gone"))]
    found_out = skip(condition=Condition.COLD, code="earlier_request_failed")
    planned = row(results(launches=killed, skips=(skip(), found_out), rounds=1), "ttft")
    assert planned.undefined == "skipped: context_exceeded"
    died = row(results(launches=killed, skips=(found_out,), rounds=1), "ttft")
    assert died.undefined == "failed: killed"


# --- loading -------------------------------------------------------------------------------


def loading(*pairs: tuple[Launch, float], **changes) -> Results:
    samples = [
        timed(at, 0, condition=Condition.LOAD, round=begun.round, launch=begun.id)
        for begun, at in pairs
    ]
    return results(samples, [begun for begun, _ in pairs], **changes)


def test_loading_is_told_once_per_launch_and_belongs_to_no_workload():
    run = loading((launch(1), 50), (launch(2), 60), (launch(3), 70))
    ready = row(run, "load.ready", Condition.LOAD)
    assert (ready.workload, ready.n, ready.median) == (None, 3, 1.005)
    assert row(run, "load.first_request", Condition.LOAD).median == 0.06


def test_a_first_request_that_does_not_count_makes_nothing_ready():
    bad = sample(condition=Condition.LOAD, ending=ending(prompt_tokens=129))
    run = results([bad])
    for metric in ("load.first_request", "load.ready"):
        found = row(run, metric, Condition.LOAD)
        assert found.undefined == "prompt_count_differs"
        assert "excluded:prompt_count_differs" in found.flags
    load = row(run, "load.load", Condition.LOAD)
    assert (load.median, load.flags) == (0.6, ("file_cache_warm",))


def test_a_first_request_that_failed_makes_nothing_ready():
    run = results([failed(condition=Condition.LOAD)])
    assert row(run, "load.ready", Condition.LOAD).undefined == "failed: connection_lost"


def test_loading_that_was_never_begun_says_so():
    asked = suite(conditions=(Condition.LOAD,))
    found = row(results(asked=asked), "load.load", Condition.LOAD)
    assert (found.undefined, found.flags) == ("not_measured", ())


def test_loading_is_skipped_only_when_everything_is():
    asked = suite(workload("p128"), workload("p512"), conditions=(Condition.LOAD,))
    one, other = skip(), skip(workload="p512")
    partly = row(results(asked=asked, skips=(one,)), "load.load", Condition.LOAD)
    assert partly.undefined == "not_measured"
    wholly = row(results(asked=asked, skips=(one, other)), "load.load", Condition.LOAD)
    assert wholly.undefined == "skipped: context_exceeded"
    found_out = evolve(other, condition=Condition.COLD)
    for elsewhere in (found_out, evolve(other, subject="beta")):
        run = results(asked=asked, skips=(one, elsewhere))
        assert row(run, "load.load", Condition.LOAD).undefined == "not_measured"


def test_a_phase_that_an_unfinished_launch_did_not_reach_is_told():
    begun = launch(1, phases=LoadPhases(spawn_ns=5), ended=False)
    run = results(launches=[begun], rounds=1, asked=suite(conditions=(Condition.LOAD,)))
    assert row(run, "load.load", Condition.LOAD).undefined == "phase_not_reached"
    assert row(run, "load.spawn", Condition.LOAD).n == 1


@pytest.mark.parametrize(
    ("ratios", "flag"),
    [
        ((0.9, 1.0), "file_cache_warm"),
        ((0.0, 0.1), "file_cache_cold"),
        ((0.0, 1.0), "file_cache_mixed"),
        ((0.5, 0.5), "file_cache_mixed"),
        ((0.89, 0.9), "file_cache_mixed"),
        ((1.0, None), "file_cache_unknown"),
    ],
)
def test_whether_files_were_cached_is_told_of_loading(ratios, flag):
    pairs = [(launch(n, file_cache_ratio=ratio), 50) for n, ratio in enumerate(ratios, 1)]
    assert row(loading(*pairs), "load.load", Condition.LOAD).flags == (flag,)


# --- the subject ---------------------------------------------------------------------------


def test_launches_of_different_builds_are_told_on_everything_made_of_them():
    other = EngineIdentity(engine="scripted", version="1.1", backend="cpu")
    run = results(rounds(100, 100), [launch(1), launch(2, identity=other)])
    assert "identity_differs" in row(run, "ttft").flags
    same = results(rounds(100, 100), [launch(1), launch(2, identity=None)])
    assert "identity_differs" not in row(same, "ttft").flags


def test_finish_reasons_are_counted_over_everything_that_ended():
    stopped = timed(100, round=2, ending=ending(reason=EOS))
    (group,) = groups(results([timed(100), stopped, failed(round=3)]))
    assert group.finish_reasons == {"length": 1, "stop_eos": 1}
    assert group.excluded == {"failed: connection_lost": 1}
    assert [one.round for one, _ in group.counted] == [1, 2]


# --- formats -------------------------------------------------------------------------------


def test_every_flag_that_can_be_raised_has_a_sentence():
    everything = [
        loading((launch(1), 50), (launch(2, file_cache_ratio=0.0), 50), (launch(3), 500)),
        results([timed(100), failed(round=2)]),
        results(rounds(100, 110, 120, 130)),
    ]
    raised = {flag for run in everything for r in summarize(run).metrics for flag in r.flags}
    assert {flag for flag in raised if not flag.startswith("excluded:")} <= FLAGS.keys()


def full() -> Results:
    """A run in which everything that can be told is told."""
    told = ending(
        raw_reason="limit",
        reasoning_tokens=0,
        timings=evolve(timings(queue=1, prefill=2, decode=3), prefill_tokens=128, source="x"),
        raw={"prompt_ms": 2.5, "list": [1, None, {"deep": True}], "ünï": "↯ [bold]x[/]"},
    )
    trouble = Failure(
        kind="killed", message="it\nis gone", exit_code=-9, signal="SIGKILL", log_tail=("a", "b")
    )
    return results(
        [
            timed(100, ending=told),
            failed(round=2),
            sample(round=2, output_ids=None, arrivals=arrivals()),
        ],
        [launch(1), launch(2, failure=trouble, harness_overhead_ns=None)],
        asked=suite(workload(), workload("free", ignore_eos=False), conditions=ALL),
        skips=(skip(), skip(condition=Condition.REUSE)),
        complete=False,
    )


def test_results_read_back_are_equal_to_what_was_written():
    run = full()
    back = parse_results(to_json(run), where="memory")
    assert back == run
    assert summarize(back) == summarize(run)
    assert to_json(back) == to_json(run)


def test_a_summary_can_be_written_as_json():
    assert b'"schema":"inferometer.summary/1"' in to_json(summarize(full()))


# --- units ---------------------------------------------------------------------------------

FORMATS = [kind for _, kinds in SCHEMAS.values() for kind in kinds]
DURATION_WORDS = {"time", "duration", "elapsed", "latency", "spawn", "import", "load", "queue"}
SIZE_WORDS = {"size", "memory", "swap", "peak"}
NEITHER = {"vocab_size", "load_1m", "unified_memory"}
"""Counted in entries and in tasks; and no number at all."""


def numbers(*roots: type) -> dict[str, object]:
    """Every recorded number by name, wherever in a format it is, with its type."""
    found: dict[type, None] = {}
    pending = list(roots)
    while pending:
        kind = pending.pop()
        if attrs.has(kind) and kind not in found:
            found[kind] = None
            pending += [field.type for field in attrs.fields(attrs.resolve_types(kind))]
        pending += getattr(kind, "__args__", ())
    fields = [field for kind in found for field in attrs.fields(kind)]
    return {f.name: f.type for f in fields if {int, float} & {f.type, *typing.get_args(f.type)}}


def test_recorded_durations_are_whole_nanoseconds_and_sizes_are_whole_bytes():
    recorded = numbers(*FORMATS)
    assert {"offsets_ns", "prefill_ns", "size_bytes", "swap_used_bytes"} <= recorded.keys()
    for name, kind in recorded.items():
        words = {*name.split("_")} if name not in NEITHER else set()
        assert not words & DURATION_WORDS or name.endswith("_ns"), name
        assert not words & SIZE_WORDS or name.endswith("_bytes"), name
        if name.endswith(("_ns", "_bytes")):
            assert float not in {kind, *typing.get_args(kind)}, name


def test_no_recorded_number_is_in_a_unit_of_another_size():
    others = ("_s", "_ms", "_us", "_kb", "_mb", "_gb", "_kib", "_mib", "_gib")
    assert [name for name in numbers(*FORMATS) if name.endswith(others)] == []


@pytest.mark.parametrize("kind", [Summary, MetricSummary])
def test_every_field_of_a_summary_says_what_it_means(kind):
    for field in attrs.fields(kind):
        said = about_of(field)
        assert said is not None, field.name
        assert said.doc.endswith("."), field.name
