"""What llama.cpp's counters mean; no engine is needed to know that."""

from __future__ import annotations

import pytest

from inferometer_llama_cpp.perf import Counters, raw, timings

IDLE = {"t_p_eval_ms": 0.0, "t_eval_ms": 0.0, "n_p_eval": 1, "n_eval": 1, "n_reused": 0}
"""What a context shows that has done nothing: both counts are floored at 1."""


def counters(**changes):
    return Counters(**{**IDLE, **changes})


def test_an_idle_context_has_evaluated_nothing_although_it_shows_one_and_one():
    assert counters().tokens == 0
    assert counters().elapsed_ns == 0


def test_prompt_and_steps_are_told_apart_by_the_reading_at_the_end_of_prefill():
    prefilled = counters(t_p_eval_ms=120.5, n_p_eval=256)
    ended = counters(t_p_eval_ms=120.5, n_p_eval=256, t_eval_ms=63.0, n_eval=63)
    said = timings(prefilled, ended, computed=256, outputs=64)
    assert (said.prefill_ns, said.prefill_tokens) == (120_500_000, 256)
    assert (said.decode_ns, said.decode_steps) == (63_000_000, 63)


def test_a_remainder_of_one_prompt_token_is_prefill_although_it_is_booked_as_a_step():
    prefilled = counters(t_eval_ms=8.0, n_eval=1)
    ended = counters(t_eval_ms=36.0, n_eval=5)
    said = timings(prefilled, ended, computed=1, outputs=5)
    assert (said.prefill_ns, said.prefill_tokens) == (8_000_000, 1)
    assert (said.decode_ns, said.decode_steps) == (28_000_000, 4)


def test_a_prompt_booked_in_both_books_is_one_prefill():
    prefilled = counters(t_p_eval_ms=100.0, n_p_eval=512, t_eval_ms=1.0, n_eval=1)
    said = timings(prefilled, prefilled, computed=513, outputs=1)
    assert (said.prefill_ns, said.prefill_tokens) == (101_000_000, 513)


def test_one_output_token_has_no_decode_time_and_no_steps():
    prefilled = counters(t_p_eval_ms=10.0, n_p_eval=20)
    said = timings(prefilled, prefilled, computed=20, outputs=1)
    assert said.decode_ns is None
    assert said.decode_steps == 0


def test_a_prefill_whose_tokens_do_not_add_up_has_no_time_and_neither_has_the_decode():
    prefilled = counters(t_p_eval_ms=10.0, n_p_eval=19)
    ended = counters(t_p_eval_ms=10.0, n_p_eval=19, t_eval_ms=3.0, n_eval=3)
    said = timings(prefilled, ended, computed=20, outputs=4)
    assert said.prefill_ns is said.prefill_tokens is None
    assert said.decode_ns is said.decode_steps is None


def test_steps_that_do_not_add_up_have_no_time_but_leave_the_prefill_alone():
    prefilled = counters(t_p_eval_ms=10.0, n_p_eval=20)
    ended = counters(t_p_eval_ms=10.0, n_p_eval=20, t_eval_ms=3.0, n_eval=2)
    said = timings(prefilled, ended, computed=20, outputs=4)
    assert said.prefill_ns == 10_000_000
    assert said.decode_ns is said.decode_steps is None


def test_counters_without_times_give_no_times():
    prefilled = counters(n_eval=1)
    said = timings(prefilled, counters(n_eval=4), computed=1, outputs=4)
    assert said.prefill_ns is said.decode_ns is None


@pytest.mark.parametrize("microseconds", [1, 7, 1_234_567, 98_419])
def test_times_are_whole_microseconds_in_nanoseconds(microseconds):
    assert counters(t_eval_ms=microseconds * 1e-3, n_eval=2).elapsed_ns == microseconds * 1_000


def test_the_raw_figures_are_untouched_and_name_their_units_last():
    record = raw(counters(t_p_eval_ms=1.5, n_p_eval=8), counters(t_eval_ms=2.25, n_reused=3))
    assert record["prefilled_t_p_eval_ms"] == 1.5
    assert record["prefilled_n_eval_tokens"] == 1
    assert record["ended_t_eval_ms"] == 2.25
    assert record["ended_n_reused_graphs"] == 3
    assert all(key.rpartition("_")[2] in {"ms", "tokens", "graphs"} for key in record)


def test_the_source_and_the_clock_are_named():
    said = timings(counters(), counters(), computed=1, outputs=1)
    assert "llama_perf_context" in said.source
    assert "monotonic" in said.clock
