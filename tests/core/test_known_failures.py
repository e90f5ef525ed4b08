"""Failures that others reported in public come out right here, with the numbers they reported."""

from __future__ import annotations

import math
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from inferometer import Context, EngineError, FinishReason, Tokenizer
from inferometer.codec import digest
from inferometer.engine import CacheMode, Capabilities
from inferometer.errors import PromptError
from inferometer.failures import Failure, describe_exit, exit_kind, refined
from inferometer.judge import judge, output_tokens
from inferometer.plan import make_plan
from inferometer.prompts import (
    PromptSource,
    PromptSpec,
    build_prompt,
    has_doubled_bos,
)
from inferometer.serving import Endpoint, EventParser, ServerProcess
from inferometer.session.recorded import failure_of
from inferometer.suite import Condition
from inferometer.summary import groups
from inferometer.testing.scripted import byte_tokens
from inferometer_llama_cpp import server_engine
from inferometer_llama_cpp.events import Translator, finished, rejection
from inferometer_llama_cpp.server import ServerOptions, create
from inferometer_llama_cpp.server_client import Client
from support.http_server import ScriptedServer, event, whole
from support.known import EOS, answer, evidence_of, row, steps, streamed, value
from support.samples import (
    arrivals,
    failed,
    launch,
    record,
    recorded,
    results,
    sample,
    suite,
    timed,
    timings,
    watched,
    workload,
)

COLD, REUSE, CONTROL = Condition.COLD, Condition.REUSE, Condition.CONTROL
OF_LENGTH = ("decode_rate", "tpot", "itl", "e2e")
RATES = ("decode_rate", "tpot", "prefill_rate", "prefill_rate_bound", "engine_decode_rate")
ADAPTERS = ("llama-cpp", "llama-server")


# --- S12: reused and processed prompt tokens are two counts --------------------------------
# ggml-org/llama.cpp (tools/server/server-task.cpp); Mintplex-Labs/anything-llm#4981

TIMINGS = {
    "cache_n": 96,
    "prompt_n": 32,
    "prompt_ms": 160.0,
    "prompt_per_second": 200.0,
    "predicted_n": 10,
    "predicted_ms": 500.0,
    "predicted_per_second": 20.0,
}


def stop_event(total: int = 10, **more) -> dict:
    told = {"stop": True, "content": "", "tokens": [], "stop_type": "limit", "truncated": False}
    return {**told, "tokens_predicted": total, "tokens_evaluated": 128, **more}


def reused_prompt(**changes):
    events = [
        {"content": "x", "tokens": [70 + n], "stop": False, "tokens_predicted": n}
        for n in range(1, 11)
    ]
    timeline = [*zip(steps(175, 10, 50), events, strict=True)]
    end = (627, stop_event(timings=TIMINGS))
    told = {"prompt_tokens": 128, "cache_mode": CacheMode.REUSE, "condition": REUSE}
    return streamed([*timeline, end], asked=10, **{**told, **changes})


def test_s12_prefill_is_what_was_processed_over_its_own_time():
    seen = reused_prompt()
    assert judge(seen).excluded is None
    assert seen.ending.prompt_tokens == 128
    assert seen.ending.timings.prefill_tokens == 32
    assert value(seen, "cached_tokens") == 96
    assert value(seen, "cache_hit_ratio") == 0.75
    assert value(seen, "prefill_rate") == 200.0
    assert value(seen, "engine_prefill_time") == 0.16


def test_s12_the_servers_decode_rate_is_the_one_it_tells():
    assert value(reused_prompt(), "engine_decode_rate") == pytest.approx(20.0)
    assert value(reused_prompt(), "engine_decode_time") == 0.5


def test_s12_the_callers_figures_have_names_of_their_own():
    seen = reused_prompt()
    assert value(seen, "ttft") == 0.175
    assert value(seen, "decode_rate") == pytest.approx(20.0)
    assert value(seen, "ttft_outside_prefill") == pytest.approx(0.015)
    assert value(seen, "prefill_rate_bound") == pytest.approx(32 / 0.175)
    assert output_tokens(seen) == 10


def test_s12_a_reused_part_spoils_a_request_that_was_to_be_cold():
    seen = reused_prompt(cache_mode=CacheMode.COLD, condition=COLD)
    assert judge(seen).excluded == "cached_in_cold"
    assert "prefix_cache_hit" in judge(reused_prompt()).flags


@pytest.mark.parametrize(
    ("told", "rate"),
    [
        ({"predicted_n": 10, "predicted_ms": 500.0, "predicted_per_second": 20.0}, 20.0),
        ({"predicted_n": 10, "predicted_ms": 450.0, "predicted_per_second": 10 / 0.45}, 10 / 0.45),
        ({"predicted_n": 9, "predicted_ms": 450.0, "predicted_per_second": 20.0}, 20.0),
    ],
)
def test_s12_the_rate_is_steps_over_their_time_however_the_server_counts_them(told, rate):
    end = finished(stop_event(timings={**TIMINGS, **told}), 10)
    steps_done, took = end.timings.decode_steps, end.timings.decode_ns
    assert steps_done * 1e9 / took == pytest.approx(rate)


def test_s12_a_prompt_without_a_total_is_its_two_parts():
    told = stop_event(timings=TIMINGS)
    del told["tokens_evaluated"]
    assert finished(told, 10).prompt_tokens == 96 + 32


def test_s12_a_prefill_count_that_holds_the_reused_part_makes_no_rate():
    wrong = evolve(timings(prefill=160), prefill_tokens=128)
    seen = reused_prompt()
    seen = evolve(seen, ending=evolve(seen.ending, timings=wrong))
    assert value(seen, "prefill_rate") == "prefill_count_contradicted"  # never 800 tokens/s
    assert "prefill_count_suspect" in judge(seen).flags


# --- T01: the begin-of-sequence token, twice -----------------------------------------------
# abetlen/llama-cpp-python#1501; vllm-project/vllm#16976

TWICE = (1, 1, 518, 1792, 29962, 12199)
ONCE = TWICE[1:]


def test_t01_the_second_token_is_noticed_and_makes_another_prompt():
    assert has_doubled_bos(TWICE, 1)
    assert not has_doubled_bos(ONCE, 1)
    assert digest(TWICE) != digest(ONCE)


@pytest.mark.parametrize(("ids", "bos"), [((128000, 128000, 9906), 128000), ((0, 0), 0)])
def test_t01_any_id_can_be_the_token(ids, bos):
    assert has_doubled_bos(ids, bos)
    assert not has_doubled_bos(ids[1:], bos)


@pytest.mark.parametrize(
    ("ids", "bos"), [(TWICE, None), ((1,), 1), ((), 1), ((518, 1, 1), 1), ((518, 518), 1)]
)
def test_t01_what_only_looks_like_it_is_left_alone(ids, bos):
    assert not has_doubled_bos(ids, bos)


class Bytes:
    """A tokenizer that reads the begin-of-sequence text where control tokens are read."""

    def tokenize(self, text: str, *, special: bool = False):
        if special and text.startswith("<s>"):
            return (1, *byte_tokens(text.removeprefix("<s>")))
        return byte_tokens(text)


FACTS = Tokenizer(vocab_size=32_000, bos_id=1, bos_text="<s>", eos_text="</s>", adds_bos=True)


def built(spec: PromptSpec, template: str | None = None, salt: str = "a"):
    return build_prompt(spec, tokenizer=Bytes(), facts=FACTS, chat_template=template, salt=salt)


def test_t01_given_ids_that_start_twice_are_never_sent():
    with pytest.raises(PromptError, match=r"two begin-of-sequence tokens \(id 1\)"):
        built(PromptSpec(source=PromptSource.IDS, tokens=len(TWICE), ids=TWICE))
    assert built(PromptSpec(source=PromptSource.IDS, tokens=len(ONCE), ids=ONCE)).ids == ONCE


@pytest.mark.parametrize("start", ["{{ bos_token }}", ""])
def test_t01_template_and_tokenizer_together_write_it_once(start):
    template = start + "{% for m in messages %}[ask]{{ m.content }}[end]{% endfor %}"
    ids = built(PromptSpec(source=PromptSource.CHAT, tokens=96), template).ids
    assert (ids[0], ids.count(1), len(ids)) == (1, 1, 96)


def test_t01_a_template_that_writes_it_twice_is_refused():
    template = "<s><s>{% for m in messages %}{{ m.content }}{% endfor %}"

    class ReadsBoth(Bytes):
        def tokenize(self, text: str, *, special: bool = False):
            return (1, 1) if special and text == "<s><s>" else super().tokenize(text)

    with pytest.raises(PromptError, match="two begin-of-sequence tokens"):
        build_prompt(
            PromptSpec(source=PromptSource.CHAT, tokens=96),
            tokenizer=ReadsBoth(),
            facts=FACTS,
            chat_template=template,
            salt="a",
        )


@pytest.mark.parametrize("counted", [6, 4])
def test_t01_a_prompt_one_token_off_is_no_comparison(counted):
    seen = answer(90, 110, prompt=5, asked=2, prompt_counted=counted)
    assert judge(seen).excluded == "prompt_count_differs"
    assert judge(answer(90, 110, prompt=5, asked=2)).excluded is None


# --- C01: the second run of the same prompt ------------------------------------------------
# vllm-project/vllm#54227; vllm-project/vllm#52884


def cold(**changes):
    return answer(*steps(300, 5), prompt=1024, asked=5, cached=0, **changes)


def warm(**changes):
    return answer(*steps(40, 5), prompt=1024, asked=5, cached=1008, **changes)


def test_c01_a_cold_cell_accepts_only_the_first():
    found = row(results([cold(), warm(round=2)]), "ttft")
    assert (found.n, found.median) == (1, 0.3)
    assert found.missing == {"cached_in_cold": 1}
    assert "excluded:cached_in_cold" in found.flags


def test_c01_a_single_cached_token_or_the_whole_prompt_spoils_cold_as_well():
    for cached in (1, 16, 1023, 1024):
        seen = answer(*steps(40, 5), prompt=1024, asked=5, cached=cached)
        assert judge(seen).excluded == "cached_in_cold"


def test_c01_a_cold_run_whose_every_round_was_warm_has_no_value():
    found = row(results([warm(), warm(round=2)]), "ttft")
    assert (found.n, found.median, found.undefined) == (0, None, "cached_in_cold")


def reuse_run(control_ms: float = 310):
    reused = warm(condition=REUSE, cache_mode=CacheMode.REUSE)
    control = answer(*steps(control_ms, 5), prompt=1024, asked=5, cached=0, condition=CONTROL)
    return results(
        [cold(), reused, control], asked=suite(conditions=(COLD, REUSE, CONTROL), rounds=1)
    )


def test_c01_a_reuse_cell_reports_what_was_cached_and_both_times():
    run = reuse_run()
    assert row(run, "cached_tokens", REUSE).median == 1008
    assert row(run, "cache_hit_ratio", REUSE).median == 0.984375
    assert round(row(run, "cache_hit_ratio", REUSE).median, 3) == 0.984
    assert row(run, "ttft", COLD).median == 0.3
    assert row(run, "ttft", REUSE).median == 0.04
    assert row(run, "cache_speedup", REUSE).median == 7.5
    assert "prefix_cache_hit" in row(run, "ttft", REUSE).flags


def test_c01_a_gain_that_an_unseen_prompt_has_too_is_no_reuse():
    assert row(reuse_run(control_ms=45), "cache_speedup", REUSE).undefined == "control_differs"


def test_c01_a_cache_nobody_reports_is_told_and_is_not_taken_for_none():
    seen = answer(*steps(40, 5), prompt=1024, asked=5, cached=None)
    assert judge(seen).excluded is None
    assert "cache_unverified" in judge(seen).flags
    assert value(seen, "cache_hit_ratio") == "not_reported"
    assert value(seen, "prefill_rate_bound") == "prompt_count_unknown"


def test_c01_the_same_seed_in_another_round_makes_another_prompt_from_its_first_words_on():
    spec = PromptSpec(source=PromptSource.RAW, tokens=1024)
    prompts = [built(spec, salt=f"7-{number}-p1024-seen").ids for number in range(1, 13)]
    for position, one in enumerate(prompts):
        for other in prompts[:position]:
            alike = next(
                n for n, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1
            )
            assert alike < 16  # the smallest block that engines keep, in tokens


# --- M01: one output token -----------------------------------------------------------------
# openshift-psap/llm-load-test#93; ray-project/llmperf#55


def one_token(**changes):
    return answer(90, prompt=256, asked=1, **changes)


def test_m01_one_token_has_a_first_time_and_no_rate():
    run = results([one_token()])
    assert row(run, "ttft").median == 0.09
    for metric in ("decode_rate", "tpot", "itl", "inter_arrival"):
        found = row(run, metric)
        assert (found.n, found.median, found.undefined) == (0, None, "one_token")


def test_m01_prefill_is_still_valid():
    told = evolve(timings(prefill=80), prefill_tokens=256)
    seen = one_token()
    seen = evolve(seen, ending=evolve(seen.ending, timings=told))
    assert value(seen, "prefill_rate") == 3200.0
    assert value(seen, "ttft_outside_prefill") == pytest.approx(0.01)


def test_m01_no_metric_of_it_is_zero_or_without_end():
    for found in (row(results([one_token()]), metric) for metric in RATES):
        assert found.median is None or (math.isfinite(found.median) and found.median > 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"role_ms": None},
        {"arrivals": arrivals(90, counts=[1])},
        {"arrivals": arrivals(2, 90, 91, counts=[0, 1, 0], kinds="eae")},
        {"arrivals": arrivals(90, kinds="r")},
        {"counted": 2, "reason": EOS, "asked": 8},
    ],
)
def test_m01_one_token_is_one_however_it_arrives(changes):
    seen = answer(90, **{"prompt": 256, "asked": 1, **changes})
    assert judge(seen).excluded is None
    assert value(seen, "ttft") == 0.09
    assert value(seen, "decode_rate") == "one_token"


def test_m01_a_servers_own_thousandth_of_a_millisecond_makes_no_rate():
    told = {"cache_n": 0, "prompt_n": 256, "prompt_ms": 80.0}
    one = {"predicted_n": 1, "predicted_ms": 0.001, "predicted_per_second": 1_000_000.0}
    event = stop_event(1, tokens_evaluated=256, timings={**told, **one})
    first = {"content": "x", "tokens": [7], "stop": False, "tokens_predicted": 1}
    seen = streamed([(90, first), (91, event)], asked=1, prompt_tokens=256)
    assert judge(seen).excluded is None
    assert value(seen, "engine_decode_rate") in {"one_token", "not_reported"}
    assert value(seen, "prefill_rate") == 3200.0


def test_m01_several_tokens_at_once_have_no_rate_either():
    seen = sample(arrivals=arrivals(90, counts=[8]))
    assert value(seen, "decode_rate") == "one_arrival"
    same_moment = sample(arrivals=arrivals(*[90] * 8, counts=[1] * 8))
    assert value(same_moment, "decode_rate") == "no_time_passed"


# --- M02: empty answers are not zeros ------------------------------------------------------
# vllm-project/vllm#5895; vllm-project/vllm#7242


def short_answer(*at_ms: float, number: int, **changes):
    return answer(*at_ms, prompt=33, asked=8, reason=EOS, round=number, **changes)


EMPTY = {"reason": EOS, "counted": 1}


def five_requests():
    cut = Failure(kind="stream_truncated", message="it ended early")
    return results(
        [
            short_answer(100, 120, 140, number=1),
            short_answer(110, 130, 150, 170, number=2),
            short_answer(140, 161, number=3),
            short_answer(number=4, counted=1, role_ms=4),
            short_answer(10, number=5, failure=cut),
        ]
    )


def test_m02_medians_are_made_of_the_three_good_answers():
    ttft, gap = row(five_requests(), "ttft"), row(five_requests(), "itl")
    assert (ttft.median, ttft.n) == (0.11, 3)
    assert gap.median == pytest.approx(0.02)
    assert gap.n == 3


def test_m02_what_was_left_out_is_counted():
    (group,) = groups(five_requests())
    assert group.excluded == {"empty_output": 1, "failed: stream_truncated": 1}
    for metric in ("ttft", "itl", "decode_rate"):
        assert row(five_requests(), metric).missing == dict(group.excluded)


@pytest.mark.parametrize(
    "changes",
    [
        {"role_ms": 4},
        {"role_ms": None},
        {"counted": 0},
        {"arrivals": arrivals(4, 90, kinds="ee", counts=[0, 0])},
        {"reason": FinishReason.LENGTH},
        {"reason": FinishReason.UNKNOWN},
    ],
)
def test_m02_an_empty_answer_has_no_first_token_and_no_rate(changes):
    seen = answer(**{"prompt": 33, "asked": 8, **EMPTY, **changes})
    assert judge(seen).excluded == "empty_output"
    for metric in ("ttft", "decode_rate", "itl", "e2e"):
        assert value(seen, metric) == "no_content"


def test_m02_only_empty_answers_make_no_row_of_zeros():
    found = row(results([short_answer(number=n, counted=1) for n in (1, 2, 3)]), "ttft")
    assert (found.n, found.median, found.undefined) == (0, None, "empty_output")
    assert found.missing == {"empty_output": 3}


def test_m02_a_first_time_is_never_among_the_gaps():
    seen = short_answer(1000, 1020, 1040, number=1)
    assert value(seen, "itl") == value(seen, "inter_arrival") == pytest.approx(0.02)


# --- M03: the first request of a shape -----------------------------------------------------
# vllm-project/vllm#39790; vllm-project/vllm-ascend#7193

SERIES = {"p1024": (1537, 58, 57, 60, 58), "p2048": (910, 104, 103, 105)}


def shapes_run():
    samples = [
        timed(at, workload=name, round=max(number, 1), warmup=number == 0)
        for name, series in SERIES.items()
        for number, at in enumerate(series)
    ]
    return results(samples, asked=suite(*map(workload, SERIES)))


def test_m03_warm_ups_are_kept_and_not_counted():
    run = shapes_run()
    assert row(run, "ttft", of="p1024").median == 0.058
    assert row(run, "ttft", of="p2048").median == 0.104
    assert (row(run, "ttft", of="p1024").n, row(run, "ttft", of="p2048").n) == (4, 3)
    kept = [value(one, "ttft") for one in run.samples if one.warmup]
    assert kept == [1.537, 0.91]


def test_m03_warm_ups_do_not_widen_the_range():
    found = row(shapes_run(), "ttft", of="p1024")
    assert (found.min, found.max) == (0.057, 0.06)
    assert found.flags == ()


@pytest.mark.parametrize("series", [(1537, 58, 57, 60, 58), (910, 104, 103, 105), (200, 58, 58)])
def test_m03_a_first_value_far_from_the_others_is_told_even_after_a_warm_up(series):
    warming = timed(1600, warmup=True)
    counted = [timed(at, round=number) for number, at in enumerate(series, 1)]
    found = row(results([warming, *counted]), "ttft")
    assert "first_round_differs" in found.flags
    assert found.n == len(series)


def test_m03_one_slow_first_round_leaves_the_median_where_it_is():
    counted = [timed(at, round=number) for number, at in enumerate(SERIES["p1024"], 1)]
    assert row(results(counted), "ttft").median == 0.058  # the mean would be 0.354


def test_m03_every_shape_is_warmed_up_for_itself_in_every_process():
    shapes = suite(workload("p1024", warmup=1), workload("p2048", warmup=1), rounds=2)
    subject = evolve(record(), capabilities=Capabilities(token_ids_in=True))
    plan = make_plan(shapes, [subject], rounds=2, order_seed=7)
    assert [launch.requests for launch in plan.launches] == [4, 4]
    assert all(cell.workload.warmup == 1 for launch in plan.launches for cell in launch.cells)


# --- E01: an end token that was to be ignored ----------------------------------------------
# kubernetes-sigs/inference-perf#655; vllm-project/vllm#9349


def ended_early(**changes):
    told = {"prompt": 128, "asked": 64, "counted": 10, "reason": EOS, "ignore_eos": True}
    return answer(*steps(60, 9), **{**told, **changes})


def test_e01_ten_of_sixty_four_make_no_decode_rate():
    run = results([ended_early()])
    assert output_tokens(run.samples[0]) == 10
    assert row(run, "ttft").median == 0.06
    for metric in OF_LENGTH:
        found = row(run, metric)
        assert (found.n, found.undefined) == (0, "ignore_eos_not_honoured")
        assert {"short_output", "ignore_eos_not_honoured"} <= {*found.flags}


def test_e01_a_short_answer_is_never_averaged_in():
    full = answer(*steps(60, 64, 40), prompt=128, asked=64, ignore_eos=True, round=2)
    found = row(results([ended_early(), full]), "decode_rate")
    assert (found.n, found.median) == (1, pytest.approx(25.0))
    assert found.missing == {"ignore_eos_not_honoured": 1}


@pytest.mark.parametrize(
    "reason",
    [FinishReason.LENGTH, FinishReason.UNKNOWN, FinishReason.STOP_TOKEN, FinishReason.STOP_STRING],
)
def test_e01_a_length_that_was_not_reached_is_short_by_any_name(reason):
    verdict = judge(ended_early(counted=9, reason=reason))
    assert verdict.short is not None
    assert "short_output" in verdict.flags


@pytest.mark.parametrize(("counted", "short"), [(63, True), (64, False)])
def test_e01_one_missing_token_is_short_and_none_is_not(counted, short):
    seen = ended_early(arrivals=arrivals(*steps(60, counted)), counted=counted)
    assert bool(judge(seen).short) is short
    assert ("ignore_eos_not_honoured" in judge(seen).flags) is short


def test_e01_where_the_model_may_stop_a_stop_is_an_answer():
    verdict = judge(ended_early(ignore_eos=False))
    assert verdict.short is None
    assert not {"short_output", "ignore_eos_not_honoured"} & {*verdict.flags}


def test_e01_llama_servers_own_words_for_it():
    events = [
        {"content": "x", "tokens": [n], "stop": False, "tokens_predicted": n} for n in range(1, 10)
    ]
    timeline = [*zip(steps(60, 9), events, strict=True), (241, stop_event(10, stop_type="eos"))]
    verdict = judge(streamed(timeline, asked=64, prompt_tokens=128))
    assert verdict.short == "ignore_eos_not_honoured"
    assert {"short_output", "ignore_eos_not_honoured"} <= {*verdict.flags}


# --- E02: a finish reason that contradicts the count ---------------------------------------
# Blaizzy/mlx-vlm#1215; huggingface/text-generation-inference#2466


def test_e02_a_stop_at_the_limit_is_suspect_and_counts():
    run = results([answer(*steps(40, 8), prompt=16, asked=8, reason=EOS)])
    assert row(run, "decode_rate").median == pytest.approx(50.0)
    assert row(run, "ttft").median == 0.04
    assert {"finish_reason_suspect", "limit_reached"} <= {*row(run, "decode_rate").flags}
    assert "short_output" not in row(run, "decode_rate").flags
    assert run.samples[0].ending.reason is EOS


@pytest.mark.parametrize("ignore_eos", [True, False])
@pytest.mark.parametrize("reason", [EOS, FinishReason.STOP_STRING, FinishReason.STOP_TOKEN])
def test_e02_a_stop_at_the_limit_is_no_early_end(reason, ignore_eos):
    verdict = judge(answer(*steps(40, 8), prompt=16, asked=8, reason=reason, ignore_eos=ignore_eos))
    assert (verdict.excluded, verdict.short) == (None, None)
    assert "finish_reason_suspect" in verdict.flags


def test_e02_a_limit_that_was_not_reached_is_suspect_and_short():
    seen = answer(*steps(40, 5), prompt=16, asked=8)
    assert judge(seen).excluded is None
    assert {"finish_reason_suspect", "short_output"} <= {*judge(seen).flags}
    assert "limit_reached" not in judge(seen).flags
    assert value(seen, "decode_rate") == pytest.approx(50.0)


def test_e02_a_fixed_length_that_was_not_reached_has_no_rate():
    run = results([answer(*steps(40, 5), prompt=16, asked=8, ignore_eos=True)])
    found = row(run, "decode_rate")
    assert (found.n, found.undefined) == (0, "short_output")
    assert {"finish_reason_suspect", "short_output"} <= {*found.flags}


def test_e02_a_reason_that_fits_the_count_is_not_suspect():
    for seen in (
        answer(*steps(40, 8), prompt=16, asked=8),
        answer(*steps(40, 5), prompt=16, asked=8, reason=EOS),
    ):
        assert "finish_reason_suspect" not in judge(seen).flags


def test_e02_more_than_the_limit_does_not_count():
    seen = answer(*steps(40, 9), prompt=16, asked=8)
    assert judge(seen).excluded == "longer_than_asked"


# --- X01: a prompt that was cut in silence -------------------------------------------------
# ollama/ollama#17889; ollama/ollama#3839


def cut_prompt(sent: int = 7900, counted: int = 2050, **changes):
    return answer(*steps(200, 4), prompt=sent, asked=4, prompt_counted=counted, **changes)


def test_x01_a_cut_prompt_does_not_count_and_both_numbers_are_kept():
    seen = cut_prompt()
    assert judge(seen).excluded == "prompt_count_differs"
    assert (seen.prompt_tokens, seen.ending.prompt_tokens) == (7900, 2050)


@pytest.mark.parametrize("metric", ["ttft", "e2e", *RATES])
def test_x01_a_cut_prompt_makes_no_number(metric):
    told = evolve(timings(prefill=190, decode=60), prefill_tokens=2050, decode_steps=3)
    seen = cut_prompt(cached=0)
    seen = evolve(seen, ending=evolve(seen.ending, timings=told))
    found = row(results([seen]), metric)
    assert (found.n, found.median, found.undefined) == (0, None, "prompt_count_differs")
    assert "excluded:prompt_count_differs" in found.flags


@pytest.mark.parametrize(
    ("sent", "counted"), [(60_000, 16_386), (2051, 2050), (7900, 0), (2050, 7900)]
)
def test_x01_any_other_count_is_another_prompt(sent, counted):
    assert judge(cut_prompt(sent, counted)).excluded == "prompt_count_differs"


def test_x01_reuse_does_not_excuse_a_cut():
    seen = cut_prompt(cached=2048, condition=REUSE, cache_mode=CacheMode.REUSE)
    assert judge(seen).excluded == "prompt_count_differs"


def test_x01_a_length_nobody_confirms_is_told():
    seen = cut_prompt()
    seen = evolve(seen, ending=evolve(seen.ending, prompt_tokens=None))
    assert judge(seen).excluded is None
    assert "prompt_unverified" in judge(seen).flags


def test_x01_what_cannot_fit_is_never_sent():
    long = suite(workload("p7900", prompt_tokens=7900, output_tokens=4))
    plan = make_plan(long, [record(context_tokens=4096)], rounds=1, order_seed=7)
    assert plan.launches == ()
    assert plan.skips[0].code == "context_exceeded"
    assert "7900" in plan.skips[0].reason
    assert "4096" in plan.skips[0].reason


# --- X02: a context overflow, told in three ways -------------------------------------------
# ggml-org/llama.cpp#15780; lemonade-sdk/lemonade#2826; ml-explore/mlx-lm (mlx_lm/server.py)

OVERFLOW = {
    "error": {
        "code": 400,
        "message": "too long for the window",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 6009,
        "n_ctx": 4096,
    }
}
BARE_STRING = {"error": "6009 tokens: longer than this server takes"}


def stream_refusal() -> EngineError:
    events = EventParser().feed(event(OVERFLOW) + b"data: [DONE]\n\n")
    with pytest.raises(EngineError) as caught:
        list(Translator(8).arrival(0, events))
    return caught.value


@pytest.mark.parametrize("refusal", [rejection(400, OVERFLOW), stream_refusal()])
def test_x02_an_overflow_is_named_with_both_numbers(refusal):
    assert refusal.kind == "context_overflow"
    assert (refusal.detail["n_prompt_tokens"], refusal.detail["n_ctx"]) == (6009, 4096)
    assert "6009" in str(refusal)
    assert "4096" in str(refusal)


def test_x02_a_bare_string_is_a_refusal_in_the_servers_words():
    refusal = rejection(404, BARE_STRING)
    assert refusal.kind == "request_rejected"
    assert BARE_STRING["error"] in str(refusal)
    assert refusal.detail["status"] == 404


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, OVERFLOW, "context_overflow"),
        (400, {"error": {"message": "it would exceed the context size"}}, "context_overflow"),
        (400, {"error": {"message": "no such field"}}, "request_rejected"),
        (404, "6009 tokens are too many", "request_rejected"),
        (503, {"error": {"message": "loading"}}, "server_error"),
    ],
)
def test_x02_other_refusals_keep_their_words(status, body, kind):
    refusal = rejection(status, body)
    assert refusal.kind == kind
    told = body["error"]["message"] if isinstance(body, dict) else body
    assert told in str(refusal)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (rejection(400, OVERFLOW), "context_overflow"),
        (stream_refusal(), "context_overflow"),
        (rejection(404, BARE_STRING), "request_rejected"),
    ],
)
def test_x02_a_refused_request_has_no_timing(refusal, kind):
    seen = recorded(watched(refusal), failure=failure_of(refusal, "cold p128"))
    assert judge(seen).excluded == f"failed: {kind}"
    for metric in ("ttft", "e2e", *RATES):
        found = row(results([seen]), metric)
        assert (found.n, found.undefined) == (0, f"failed: {kind}")
    assert "6009" in seen.failure.message


# --- X04: a prompt longer than a batch aborts the process ----------------------------------
# guidance-ai/guidance#435; netdur/llama_cpp_dart#89

BATCH_LOG = ("3784 tokens in the prompt", "ended itself: n_tokens_all <= n_batch")


@pytest.mark.parametrize("engine", ADAPTERS)
@pytest.mark.parametrize("code", [-6, 134])
def test_x04_an_abort_over_the_batch_size_is_named(engine, code):
    told = describe_exit(code, BATCH_LOG, stage="cold p3784", evidence=evidence_of(engine))
    assert told.kind == "engine_aborted"
    assert (told.exit_code, told.signal) == (code, "SIGABRT")
    assert told.log_tail == BATCH_LOG
    assert "batch" in told.message


@pytest.mark.parametrize("engine", ADAPTERS)
@pytest.mark.parametrize(
    "line",
    [
        "llama-context.cpp:1590: GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed",
        "llama.cpp:7: GGML_ASSERT: llama.cpp:7: n_tokens <= n_batch",
    ],
)
def test_x04_other_words_for_it_are_an_abort_of_the_engine_too(engine, line):
    told = describe_exit(-6, (line,), stage="cold p3784", evidence=evidence_of(engine))
    assert told.kind in {"engine_aborted", "engine_assertion"}
    assert told.log_tail == (line,)


def test_x04_only_that_cell_fails_and_what_was_measured_is_safe():
    told = describe_exit(-6, BATCH_LOG, stage="cold p3784", evidence=evidence_of("llama-cpp"))
    run = results(
        [timed(100), timed(120, round=2)],
        [launch(1), launch(2, failure=told)],
        asked=suite(workload("p128"), workload("p3784", prompt_tokens=3784), rounds=2),
    )
    assert row(run, "ttft").median == pytest.approx(0.11)
    lost = row(run, "ttft", of="p3784")
    assert (lost.n, lost.median) == (0, None)
    assert lost.missing == {"not_measured": 1, f"failed: {told.kind}": 1}


# --- K01: an open port is not a loaded model -----------------------------------------------
# ggml-org/llama.cpp (tools/server); mostlygeek/llama-swap#92


class Child:
    """A process that lives, or ends, without one."""

    def __init__(self, code: int | None = None) -> None:
        self._code = code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            raise subprocess.TimeoutExpired("server", timeout or 0)
        return self._code


def process(log: Path, child: Child) -> ServerProcess:
    log.write_text("loading the model\n")
    return ServerProcess(child, log)


LOADING = whole({"error": {"code": 503, "message": "loading"}}, status="503 Service Unavailable")


def test_k01_a_503_is_waited_for_though_models_are_listed_at_once(tmp_path):
    with ScriptedServer() as server:
        for answered in (LOADING, LOADING, whole({"status": "ok"})):
            server.play("/health", answered)
        server.play("/v1/models", whole({"data": [{"id": "moss"}]}))
        client = Client(server.endpoint)
        assert client.model()["id"] == "moss"
        process(tmp_path / "log", Child()).wait_ready(client.is_ready, 60.0)
        asked = [one.path for one in server.asked if one.path == "/health"]
    assert len(asked) == 3


def test_k01_nobody_listening_yet_is_a_wait_too(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert not Client(Endpoint(port)).is_ready()


def test_k01_the_wait_has_an_end(tmp_path):
    with pytest.raises(EngineError, match="not ready after 0 s") as caught:
        process(tmp_path / "log", Child()).wait_ready(lambda: False, 0.0)
    assert caught.value.kind == "not_ready"


def test_k01_a_death_while_loading_is_no_wait(tmp_path):
    with pytest.raises(EngineError) as caught:
        process(tmp_path / "log", Child(1)).wait_ready(lambda: False, 60.0)
    assert (caught.value.kind, caught.value.detail["exit_code"]) == ("engine_error", 1)


# --- K02: the GPU runs out of memory in the middle of a run --------------------------------
# ml-explore/mlx-lm#1015; ggml-org/llama.cpp#16274

METAL = "kIOGPUCommandBufferCallbackErrorOutOfMemory"
METAL_LOG = (
    "ready",
    "a prompt of 30000 tokens",
    f"Insufficient Memory (00000008:{METAL})",
    "abort",
)


@pytest.mark.parametrize("engine", ADAPTERS)
def test_k02_a_reset_is_explained_by_the_log(engine):
    reset = Failure(kind="connection_lost", message="the connection was reset")
    told = refined(reset, METAL_LOG, evidence_of(engine))
    assert told.kind == "gpu_out_of_memory"
    assert told.log_tail == METAL_LOG


@pytest.mark.parametrize("engine", ADAPTERS)
@pytest.mark.parametrize("code", [-6, 134, 1])
def test_k02_an_abort_is_explained_by_the_log(engine, code):
    told = describe_exit(code, METAL_LOG, stage="cold p512", evidence=evidence_of(engine))
    assert (told.kind, told.exit_code) == ("gpu_out_of_memory", code)


@pytest.mark.parametrize(
    "line",
    [
        f"[METAL] Command buffer execution failed: Insufficient Memory (00000008:{METAL})",
        f"error: insufficient memory ({METAL})",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: out of memory",
        "cudaMalloc failed: out of memory",
    ],
)
@pytest.mark.parametrize("engine", ADAPTERS)
def test_k02_other_words_for_a_full_gpu(engine, line):
    told = describe_exit(-6, (line,), stage="cold p512", evidence=evidence_of(engine))
    assert told.kind == "gpu_out_of_memory"


def test_k02_a_lost_connection_without_evidence_stays_one():
    reset = Failure(kind="connection_lost", message="the connection was reset")
    assert refined(reset, ("ready", "abort"), evidence_of("llama-server")).kind == "connection_lost"


def test_k02_three_tokens_before_it_make_no_score():
    reset = refined(Failure(kind="connection_lost", message="reset"), METAL_LOG)
    seen = failed(arrivals=arrivals(50, 70, 90, counts=[1] * 3))
    seen = evolve(seen, failure=reset)
    for metric in ("ttft", *RATES):
        found = row(results([seen]), metric)
        assert (found.n, found.undefined) == (0, "failed: gpu_out_of_memory")


def test_k02_cells_after_it_have_no_value_until_a_restart():
    told = describe_exit(-6, METAL_LOG, stage="cold p128")
    asked = suite(workload("p128"), workload("p512"), rounds=2)
    again = [timed(100, round=2), timed(110, round=2, workload="p512")]
    run = results(again, [launch(1, failure=told), launch(2)], asked=asked)
    run = evolve(run, rounds=2)
    for name, median in (("p128", 0.1), ("p512", 0.11)):
        found = row(run, "ttft", of=name)
        assert (found.n, found.median) == (1, median)
        assert found.missing == {"failed: gpu_out_of_memory": 1}


# --- K03: exit codes of a dead engine ------------------------------------------------------
# LMCache/LMCache#4759; vllm-project/vllm#24760

EXITS = {
    0: "exited_early",
    1: "engine_error",
    -6: "aborted",
    -9: "killed",
    -11: "segfault",
    134: "aborted",
    137: "killed",
    139: "segfault",
}
MORE_EXITS = {
    2: "engine_error",
    127: "engine_error",
    255: "engine_error",
    -7: "segfault",
    135: "segfault",
    -4: "illegal_instruction",
    132: "illegal_instruction",
    -15: "terminated",
    143: "terminated",
    130: "interrupted",
    -13: "ended_by_signal",
}


@pytest.mark.parametrize(("code", "kind"), [*EXITS.items(), *MORE_EXITS.items()])
def test_k03_every_exit_has_its_kind_its_code_and_its_last_lines(code, kind):
    told = describe_exit(code, ("weights found", "request 3"), stage="cold p512")
    assert (exit_kind(code), told.kind, told.exit_code) == (kind, kind, code)
    assert told.log_tail == ("weights found", "request 3")
    assert "cold p512" in told.message


@pytest.mark.parametrize("code", [-9, 137])
def test_k03_killed_points_to_memory(code):
    told = describe_exit(code, (), stage="load")
    assert told.signal == "SIGKILL"
    assert "memory" in told.message


@pytest.mark.parametrize("code", EXITS)
def test_k03_a_dead_engine_is_no_success_and_no_zero(code):
    told = describe_exit(code, (), stage="cold p128")
    found = row(results([], [launch(1, failure=told)], asked=suite(rounds=1)), "decode_rate")
    assert (found.n, found.median, found.undefined) == (0, None, f"failed: {EXITS[code]}")


# --- K04: the port belongs to an older server ----------------------------------------------
# vllm-project/perf-eval#56; sgl-project/sglang#28563

DEAF = """#!{python}
import sys, threading
sys.exit(print("--host --port")) if sys.argv[1:] == ["--help"] else threading.Event().wait()
"""


@pytest.fixture
def new_server(tmp_path):
    """An engine whose own server starts, and never answers."""
    program, model = tmp_path / "llama-server", tmp_path / "moss-1b.gguf"
    program.write_text(DEAF.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    model.write_bytes(b"GGUF and nothing else")
    engines = []

    def make(**options):
        context = Context(context_tokens=300, log_path=tmp_path / "log", cache_dir=tmp_path)
        engine = create(ServerOptions(binary=str(program), **options), context)
        engines.append(engine)
        engine.prepare(model)
        return engine

    yield make
    for engine in engines:
        engine.unload()


def test_k04_a_taken_port_is_an_error_before_the_start(new_server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as older:
        engine = new_server(port=older.getsockname()[1])
        with pytest.raises(EngineError) as caught:
            engine.load()
    assert (caught.value.kind, caught.value.fatal) == ("port_in_use", True)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("props", "found"),
    [({"model_path": "/models/fern-7b.gguf"}, "fern-7b"), ({}, "fern-7b")],
)
def test_k04_an_older_server_that_answers_is_named_beside_ours(
    new_server, monkeypatch, props, found
):
    with ScriptedServer() as older:
        monkeypatch.setattr(server_engine, "free_port", lambda: older.endpoint.port)
        older.play("/health", whole({"status": "ok"}))
        older.play("/v1/models", whole({"data": [{"id": "fern-7b"}]}))
        older.play("/props", whole(props))
        with pytest.raises(EngineError) as caught:
            new_server().load()
    assert (caught.value.kind, caught.value.fatal) == ("wrong_server", True)
    assert found in str(caught.value)
    assert "moss-1b" in str(caught.value)
    assert found in caught.value.detail["found"]


def test_k04_a_wrong_server_makes_no_score():
    wrong = Failure(kind="wrong_server", message="fern-7b answers, moss-1b was asked for")
    run = results([], [launch(1, failure=wrong)], asked=suite(rounds=1))
    for metric in ("ttft", *RATES):
        assert row(run, metric).undefined == "failed: wrong_server"
