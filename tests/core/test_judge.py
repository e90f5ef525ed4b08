"""Which samples count, which do not, and what a reader is told of both."""

from __future__ import annotations

import pytest

from inferometer import Chunk, Finished, FinishReason
from inferometer.engine import CacheMode, TokenPrompt
from inferometer.judge import (
    EXCLUSIONS,
    FLAGS,
    OVERHEAD_FACTOR,
    SHORTCOMINGS,
    content_arrivals,
    judge,
    one_token_each,
    output_tokens,
)
from inferometer.suite import Condition
from inferometer.testing import Pause
from support.samples import arrivals, ending, failed, finished, recorded, request, sample, watched

EOS = FinishReason.STOP_EOS


def cut(count: int, **changes):
    """A sample of which only ``count`` tokens came, each in its own arrival."""
    told = changes.pop("ending", ending(count))
    at = range(100, 100 + 20 * count, 20)
    return sample(
        arrivals=arrivals(*at, counts=[1] * count),
        output_ids=(65,) * count,
        ending=told,
        **changes,
    )


def uncounted(*at: float, told: int | None = None, **changes):
    """A sample of text whose tokens nobody counted as they came."""
    said = ending(told, **{"prompt_tokens": 128, **changes.pop("said", {})})
    return sample(arrivals=arrivals(*at), output_ids=None, ending=said, **changes)


def test_a_good_sample_counts_and_has_nothing_to_tell():
    verdict = judge(sample())
    assert (verdict.excluded, verdict.short, verdict.flags) == (None, None, ())


# --- what may not count --------------------------------------------------------------------


def test_a_failed_sample_says_how_it_failed():
    assert judge(failed("context_overflow")).excluded == "failed: context_overflow"


def test_a_failure_cannot_pass_for_one_of_our_reasons():
    assert judge(failed("short_output")).excluded == "failed: short_output"


def test_a_sample_without_an_end_does_not_count():
    assert judge(sample(ending=None)).excluded == "no_ending"


@pytest.mark.parametrize("reason", ["error", "cancelled", "timeout"])
def test_an_answer_that_was_broken_off_does_not_count(reason):
    assert judge(sample(ending=ending(reason=FinishReason(reason)))).excluded == reason


def test_an_empty_answer_does_not_count_even_when_its_end_token_was_counted():
    role_only = watched(Pause(4), Chunk(tokens=0), Pause(86), finished(1, reason=EOS))
    verdict = judge(recorded(role_only, output_ids=()))
    assert verdict.excluded == "empty_output"


@pytest.mark.parametrize(("counted", "what"), [(129, "a doubled BOS"), (50, "a silent cut")])
def test_another_prompt_than_was_sent_does_not_count(counted, what):
    told = ending(prompt_tokens=counted)
    assert judge(sample(ending=told)).excluded == "prompt_count_differs", what


@pytest.mark.parametrize("condition", [Condition.COLD, Condition.CONTROL, Condition.LOAD])
def test_a_cached_token_spoils_every_request_that_was_to_be_cold(condition):
    told = ending(cached_prompt_tokens=1)
    assert judge(sample(condition=condition, ending=told)).excluded == "cached_in_cold"


def test_a_cached_token_is_what_reuse_is_for():
    reused = sample(condition=Condition.REUSE, ending=ending(cached_prompt_tokens=127))
    verdict = judge(reused)
    assert verdict.excluded is None
    assert verdict.flags == ("prefix_cache_hit",)


def test_a_prompt_may_be_cached_to_its_last_token_but_no_further():
    whole = sample(condition=Condition.REUSE, ending=ending(cached_prompt_tokens=128))
    assert judge(whole).excluded is None
    reused = sample(condition=Condition.REUSE, ending=ending(cached_prompt_tokens=129))
    assert judge(reused).excluded == "counts_disagree"


@pytest.mark.parametrize("told", [7, 9])
def test_a_total_that_is_not_what_was_streamed_does_not_count(told):
    assert judge(sample(ending=ending(told), max_output_tokens=9)).excluded == "counts_disagree"


def test_text_without_a_token_is_a_contradiction():
    assert judge(uncounted(100, 120, told=0)).excluded == "counts_disagree"


def test_an_answer_longer_than_asked_for_does_not_count():
    assert judge(sample(max_output_tokens=7)).excluded == "longer_than_asked"


# --- the end token -------------------------------------------------------------------------


def test_an_end_token_that_is_counted_but_not_streamed_is_no_contradiction():
    natural = cut(6, ending=ending(7, reason=EOS), ignore_eos=False)
    verdict = judge(natural)
    assert verdict.excluded is None
    assert verdict.flags == ("end_token_not_streamed",)


def test_two_missing_tokens_are_not_an_end_token():
    assert judge(cut(6, ending=ending(8, reason=EOS), ignore_eos=False)).excluded == (
        "counts_disagree"
    )


def test_an_answer_cut_at_its_limit_has_no_end_token_to_miss():
    assert judge(cut(7, ending=ending(8))).excluded == "counts_disagree"


# --- short answers -------------------------------------------------------------------------


def test_an_end_token_that_was_to_be_ignored_is_told_and_rates_are_not_made():
    short = cut(4, ending=ending(5, reason=EOS))
    verdict = judge(short)
    assert verdict.excluded is None
    assert verdict.short == "ignore_eos_not_honoured"
    assert {"ignore_eos_not_honoured", "short_output"} <= {*verdict.flags}


def test_a_fixed_length_that_was_not_reached_is_short_whatever_the_engine_says():
    verdict = judge(cut(5))
    assert verdict.short == "short_output"
    assert verdict.flags == ("short_output", "finish_reason_suspect")


def test_where_the_model_may_stop_a_stop_is_an_answer():
    verdict = judge(cut(5, ending=ending(5, reason=EOS), ignore_eos=False))
    assert (verdict.excluded, verdict.short, verdict.flags) == (None, None, ())


def test_a_limit_that_was_not_reached_is_told_but_leaves_the_rate_of_a_free_length():
    verdict = judge(cut(5, ignore_eos=False))
    assert verdict.short is None
    assert verdict.flags == ("short_output", "finish_reason_suspect")


def test_a_stop_at_the_very_limit_is_suspect_and_counts():
    verdict = judge(sample(ending=ending(reason=EOS)))
    assert (verdict.excluded, verdict.short) == (None, None)
    assert verdict.flags == ("finish_reason_suspect", "limit_reached")


def test_a_full_context_is_short_only_if_something_is_missing():
    full = FinishReason.CONTEXT_FULL
    assert judge(cut(5, ending=ending(5, reason=full))).short == "context_full"
    assert judge(sample(ending=ending(reason=full))).flags == ()
    assert judge(cut(5, ending=ending(5, reason=full), ignore_eos=False)).short is None


def test_a_length_that_nobody_knows_is_not_the_length_that_was_fixed():
    verdict = judge(uncounted(80, 110, 140))
    assert verdict.short == "output_count_unknown"
    assert "output_count_unknown" in verdict.flags
    assert judge(uncounted(80, 110, 140, ignore_eos=False)).short is None


# --- what else a reader must know ----------------------------------------------------------


@pytest.mark.parametrize("mode", CacheMode)
def test_a_cache_that_nobody_reports_is_not_verified(mode):
    told = ending(cached_prompt_tokens=None)
    assert judge(sample(cache_mode=mode, ending=told)).flags == ("cache_unverified",)


def test_reuse_that_reused_nothing_says_so():
    assert judge(sample(condition=Condition.REUSE)).flags == ("nothing_reused",)


def test_a_prompt_whose_length_nobody_confirms_is_not_verified():
    assert judge(sample(ending=ending(prompt_tokens=None))).flags == ("prompt_unverified",)


def test_a_prefill_count_that_holds_cached_tokens_is_suspect():
    from inferometer import Timings

    told = ending(cached_prompt_tokens=96, timings=Timings(prefill_tokens=128))
    assert "prefill_count_suspect" in judge(sample(condition=Condition.REUSE, ending=told)).flags
    right = ending(cached_prompt_tokens=96, timings=Timings(prefill_tokens=32))
    assert "prefill_count_suspect" not in judge(sample(ending=right)).flags


def test_more_reasoning_than_output_is_suspect():
    assert judge(sample(ending=ending(reasoning_tokens=9))).flags == ("reasoning_count_suspect",)
    assert judge(sample(ending=ending(reasoning_tokens=8))).flags == ()


def test_several_tokens_in_an_arrival_are_told():
    burst = sample(arrivals=arrivals(*range(100, 240, 20), counts=[1, 2, 1, 1, 1, 1, 1]))
    assert judge(burst).flags == ("several_tokens_per_arrival",)


def test_withheld_ids_are_told():
    assert judge(sample(output_ids=None)).flags == ("ids_withheld",)


def test_counts_that_are_assumed_are_told():
    flags = judge(uncounted(100, 120, 140, told=3, max_output_tokens=3)).flags
    assert flags == ("one_token_each_assumed", "ids_withheld")
    assert "one_token_each_assumed" in judge(uncounted(1, 2, told=2, max_output_tokens=2)).flags
    assert judge(uncounted(100, told=1, max_output_tokens=1)).flags == ("ids_withheld",)


@pytest.mark.parametrize(
    ("overhead_ns", "flags"),
    [(20_000_000 // OVERHEAD_FACTOR, ()), (20_000_000 // OVERHEAD_FACTOR + 1, ("overhead_floor",))],
)
def test_gaps_under_a_hundred_times_our_own_cost_are_told(overhead_ns, flags):
    assert judge(sample(), overhead_ns=overhead_ns).flags == flags


def test_one_long_pause_does_not_lift_the_gaps_over_the_floor():
    hasty = sample(
        arrivals=arrivals(100, 100.1, 100.2, 100.3, 9_000, counts=[1] * 5), ending=ending(5)
    )
    assert "overhead_floor" in judge(hasty, overhead_ns=2_000).flags


@pytest.mark.parametrize("overhead_ns", [None, 0])
def test_without_a_known_cost_there_is_no_floor(overhead_ns):
    instant = sample(arrivals=arrivals(*[100] * 8, counts=[1] * 8))
    assert judge(instant, overhead_ns=overhead_ns).flags == ()


def test_one_arrival_has_no_gap_to_be_too_short():
    once = sample(arrivals=arrivals(100, counts=[8]))
    assert judge(once, overhead_ns=10**12).flags == ("several_tokens_per_arrival",)


# --- counts --------------------------------------------------------------------------------


def test_the_engines_total_comes_before_its_counts_and_its_ids():
    assert output_tokens(sample(ending=ending(7))) == 7
    assert output_tokens(sample(ending=ending(None), output_ids=(1, 2))) == 8
    assert output_tokens(sample(ending=None, output_ids=None)) == 8
    assert output_tokens(sample(ending=None, arrivals=arrivals(1), output_ids=(1, 2))) == 2
    assert output_tokens(sample(ending=ending(None), arrivals=arrivals(1), output_ids=None)) is None


def test_the_number_of_arrivals_is_never_a_token_count():
    assert output_tokens(uncounted(100, 120, 140)) is None


def test_bare_events_are_not_content():
    mixed = sample(arrivals=arrivals(1, 2, 3, 4, 5, kinds="erate"))
    assert content_arrivals(mixed) == [1, 2, 3]


@pytest.mark.parametrize(
    ("told", "reason", "assumed"),
    [
        (3, FinishReason.LENGTH, True),
        (4, FinishReason.LENGTH, False),
        (2, FinishReason.LENGTH, False),
        (4, EOS, True),
        (5, EOS, False),
        (None, EOS, False),
        (0, EOS, False),
    ],
)
def test_arrivals_hold_one_token_each_only_if_there_are_as_many(told, reason, assumed):
    seen = uncounted(100, 120, 140, told=told, said={"reason": reason})
    assert one_token_each(seen) is assumed


def test_where_arrivals_are_counted_nothing_is_assumed():
    assert one_token_each(sample()) is False


# --- words ---------------------------------------------------------------------------------


def test_every_shortcoming_is_a_flag_and_every_code_has_a_sentence():
    assert SHORTCOMINGS.keys() <= FLAGS.keys()
    for code, sentence in {**EXCLUSIONS, **FLAGS}.items():
        assert code.replace("_", "").isalnum()
        assert sentence
        assert not sentence.endswith(".")


def test_a_stream_of_the_engine_is_judged_as_it_was_seen():
    asked = request(prompt=TokenPrompt((1, 2, 3)), max_output_tokens=2)
    end = Finished(
        reason=FinishReason.LENGTH, prompt_tokens=4, output_tokens=2, cached_prompt_tokens=0
    )
    seen = watched(Chunk(token_ids=(5,)), Chunk(token_ids=(6,)), end, asked=asked)
    assert judge(recorded(seen, max_output_tokens=2)).excluded == "prompt_count_differs"
