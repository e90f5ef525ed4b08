"""llama-server's stream in the contract's words: pure text in, events out."""

from __future__ import annotations

import json

import pytest

from inferometer import Chunk, EngineError, Finished, FinishReason, Timings
from inferometer.serving import Event
from inferometer_llama_cpp.events import Translator, finished, rejection


def token(total: int, text: str, *ids: int, **more) -> str:
    return json.dumps(
        {"content": text, "tokens": list(ids), "stop": False, "tokens_predicted": total, **more}
    )


def stop(total: int, stop_type: str = "limit", **more) -> str:
    return json.dumps(
        {
            "content": "",
            "tokens": [],
            "stop": True,
            "tokens_predicted": total,
            "tokens_evaluated": 40,
            "stop_type": stop_type,
            "truncated": False,
            **more,
        }
    )


def streamed(texts: list[str | Event]) -> list[Event]:
    return [Event(data=text) if isinstance(text, str) else text for text in texts]


def translated(*arrivals: list[str | Event], asked: int = 8) -> list[Chunk | Finished]:
    translator = Translator(asked, sent_ns=5)
    seen = []
    for stamp, texts in enumerate(arrivals):
        seen += translator.arrival(stamp, streamed(texts))
    translator.close()
    return seen


def chunks(*arrivals: list[str], asked: int = 8) -> list[Chunk]:
    *seen, end = translated(*arrivals, asked=asked)
    assert isinstance(end, Finished)
    return seen


def fault_of(*arrivals: list[str]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        translated(*arrivals)
    return caught.value


# --- tokens --------------------------------------------------------------------------------


def test_one_event_per_read_is_one_token_per_chunk():
    assert chunks([token(1, "moss", 71)], [token(2, " fern", 72)], [stop(2)]) == [
        Chunk(tokens=1, token_ids=(71,), answer="moss", received_ns=0),
        Chunk(tokens=1, token_ids=(72,), answer=" fern", received_ns=1),
    ]


def test_events_of_one_read_are_one_chunk():
    assert chunks([token(1, "moss", 71), token(2, " fern", 72), token(3, "!", 4)], [stop(3)]) == [
        Chunk(tokens=3, token_ids=(71, 72, 4), answer="moss fern!", received_ns=0)
    ]


def test_a_stop_event_in_the_read_of_the_last_token_is_no_second_chunk():
    seen = translated([token(1, "moss", 71), stop(1)])
    assert [type(event) for event in seen] == [Chunk, Finished]


def test_ids_of_tokens_held_back_are_unknown_not_guessed():
    # A character of three tokens: two are held back, the third event brings only its own id.
    assert chunks([token(3, "🌵", 243)], [stop(3)]) == [
        Chunk(tokens=3, token_ids=None, answer="🌵", received_ns=0)
    ]


def test_sixteen_lone_lead_bytes_arrive_with_the_last_event():
    assert chunks([stop(16)], asked=16) == [Chunk(tokens=16, token_ids=None, received_ns=0)]


def test_tokens_without_text_are_tokens():
    assert chunks([token(1, "", 2)], [stop(1, "eos")]) == [
        Chunk(tokens=1, token_ids=(2,), answer="", received_ns=0)
    ]


def test_progress_is_a_bare_event_and_its_token_a_fiction():
    progress = token(0, "", 0, prompt_progress={"total": 40, "processed": 20})
    assert chunks([progress], [token(1, "moss", 71)], [stop(1)]) == [
        Chunk(tokens=0, received_ns=0),
        Chunk(tokens=1, token_ids=(71,), answer="moss", received_ns=1),
    ]


def test_progress_in_the_read_of_the_first_token_adds_nothing():
    progress = token(0, "", 0, prompt_progress={"total": 40, "processed": 40})
    assert chunks([progress, token(1, "moss", 71)], [stop(1)]) == [
        Chunk(tokens=1, token_ids=(71,), answer="moss", received_ns=0)
    ]


def test_a_server_that_counts_nothing_leaves_count_and_ids_unknown():
    told = json.dumps({"content": "moss", "tokens": [71], "stop": False})
    assert chunks([told], [stop(1)])[0] == Chunk(answer="moss", received_ns=0)


def test_an_end_marker_is_neither_needed_nor_in_the_way():
    assert len(translated([token(1, "moss", 71)], [stop(1)], ["[DONE]"])) == 2
    assert len(translated(["[DONE]"], [stop(0)])) == 1


# --- the end -------------------------------------------------------------------------------

TIMINGS = {
    "cache_n": 30,
    "prompt_n": 10,
    "prompt_ms": 25.5,
    "prompt_per_second": 392.2,
    "predicted_n": 8,
    "predicted_ms": 140.25,
}


def ending(total: int = 8, *, asked: int = 8, **more) -> Finished:
    return finished(json.loads(stop(total, **more)), asked, sent_ns=5)


def test_the_prompt_is_whole_also_when_part_of_it_came_from_the_cache():
    end = ending(timings=TIMINGS, tokens_cached=47)
    assert (end.prompt_tokens, end.cached_prompt_tokens) == (40, 30)


def test_a_prompt_count_that_is_missing_is_put_together_from_the_timings():
    event = {"stop": True, "tokens_predicted": 8, "stop_type": "limit", "timings": TIMINGS}
    assert finished(event, 8).prompt_tokens == 40
    assert finished({**event, "timings": {}}, 8).prompt_tokens is None


def test_timings_are_the_servers_own_in_nanoseconds():
    assert ending(timings=TIMINGS).timings == Timings(
        prefill_ns=25_500_000,
        decode_ns=140_250_000,
        prefill_tokens=10,
        decode_steps=7,
        source="llama-server timings; decode steps: predicted_n - 1",
        clock="the server's monotonic clock (ggml_time_us)",
    )


def test_one_token_has_no_decode_time_although_the_server_writes_one():
    told = {**TIMINGS, "predicted_n": 1, "predicted_ms": 0.001}
    timings = ending(1, asked=1, timings=told).timings
    assert (timings.decode_ns, timings.decode_steps) == (None, 0)


def test_a_server_without_timings_leaves_them_unknown():
    end = ending()
    assert (end.timings, end.cached_prompt_tokens) == (Timings(), None)


def test_raw_keeps_the_figures_untouched():
    assert ending(timings=TIMINGS, tokens_cached=47, generation_settings={"n": 1}).raw == {
        "tokens_predicted": 8,
        "tokens_evaluated": 40,
        "tokens_cached": 47,
        "truncated": False,
        "stop_type": "limit",
        "timings": TIMINGS,
    }


def test_the_end_carries_when_the_request_was_sent():
    assert translated([token(8, "moss", 71)], [stop(8)])[-1].sent_ns == 5


@pytest.mark.parametrize(
    ("stop_type", "total", "truncated", "reason"),
    [
        ("eos", 5, False, FinishReason.STOP_EOS),
        ("eos", 8, False, FinishReason.STOP_EOS),
        ("word", 5, False, FinishReason.STOP_STRING),
        ("limit", 8, False, FinishReason.LENGTH),
        ("limit", 5, False, FinishReason.LENGTH),
        ("limit", 5, True, FinishReason.CONTEXT_FULL),
        # A window filled to its last token by a complete answer.
        ("limit", 8, True, FinishReason.LENGTH),
        ("none", 5, False, FinishReason.UNKNOWN),
    ],
)
def test_reasons_are_named_once_for_all_engines(stop_type, total, truncated, reason):
    end = ending(total, stop_type=stop_type, truncated=truncated)
    assert (end.reason, end.raw_reason, end.output_tokens) == (reason, stop_type, total)


def test_a_reason_that_is_not_given_is_unknown():
    assert finished({"stop": True, "tokens_predicted": 1}, 1).reason is FinishReason.UNKNOWN


def test_a_stream_without_a_stop_event_is_truncated():
    fault = fault_of([token(1, "moss", 71)], [token(2, " fern", 72)])
    assert fault.kind == "stream_truncated"
    assert "after 2 of 8 tokens" in str(fault)


# --- failures ------------------------------------------------------------------------------


def test_an_error_in_the_stream_is_no_answer():
    error = json.dumps(
        {"error": {"code": 500, "message": "Compute error.", "type": "server_error"}}
    )
    fault = fault_of([token(1, "moss", 71)], [error])
    assert fault.kind == "server_error_in_stream"
    assert "Compute error." in str(fault)
    assert fault.detail["code"] == 500


def test_tokens_in_the_read_of_an_error_come_before_it():
    error = json.dumps({"error": {"code": 500, "message": "Compute error."}})
    stream = Translator(8).arrival(3, streamed([token(1, "moss", 71), error]))
    assert next(stream) == Chunk(tokens=1, token_ids=(71,), answer="moss", received_ns=3)
    with pytest.raises(EngineError):
        next(stream)


OVERFLOW = {
    "code": 400,
    "message": "request (700 tokens) exceeds the available context size (512 tokens)",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 700,
    "n_ctx": 512,
}


def test_an_overflow_refused_at_once_names_both_numbers():
    fault = rejection(400, {"error": OVERFLOW})
    assert fault.kind == "context_overflow"
    assert (fault.detail["n_prompt_tokens"], fault.detail["n_ctx"]) == (700, 512)


def test_an_overflow_inside_a_stream_names_both_numbers():
    fault = fault_of([json.dumps({"error": OVERFLOW})])
    assert fault.kind == "context_overflow"
    assert (fault.detail["n_prompt_tokens"], fault.detail["n_ctx"]) == (700, 512)


def test_an_overflow_told_only_in_words_is_an_overflow():
    words = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
    assert fault_of([json.dumps({"error": words})]).kind == "context_overflow"


def test_a_bare_string_is_a_refusal_in_the_servers_words():
    fault = rejection(404, {"error": "a prompt of 700 tokens is too long"})
    assert fault.kind == "request_rejected"
    assert "status 404: a prompt of 700 tokens is too long" in str(fault)


@pytest.mark.parametrize("body", ["Not here", {"message": "Not here"}])
def test_any_other_body_is_shown_as_it_is(body):
    assert "Not here" in str(rejection(404, body))


def test_a_failing_server_is_not_a_refusing_one():
    assert rejection(503, {"error": {"message": "Loading model"}}).kind == "server_error"


@pytest.mark.parametrize("text", ["{broken", "7", "null"])
def test_what_is_no_object_cannot_be_read(text):
    assert fault_of([text]).kind == "bad_response"


# --- what builds differ in -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "steps", "rule"),
    [
        ({"predicted_per_second": 20.0}, 10, "predicted_n, as in predicted_per_second"),
        ({"predicted_per_second": 18.0}, 9, "predicted_n - 1, as in predicted_per_second"),
        ({}, 9, "predicted_n - 1"),
        ({"predicted_per_second": None}, 9, "predicted_n - 1"),
        ({"predicted_per_second": 40.0}, None, "fits neither predicted_n nor one less"),
    ],
)
def test_decode_steps_are_those_the_servers_own_rate_is_made_of(told, steps, rule):
    timings = ending(10, timings={"predicted_n": 10, "predicted_ms": 500, **told}).timings
    assert timings.decode_steps == steps
    assert timings.decode_ns == (500_000_000 if steps else None)
    assert timings.source.endswith(rule)


def test_of_two_near_rates_the_nearer_one_names_the_steps():
    told = {"predicted_n": 200, "predicted_ms": 10_000}
    for rate, steps in ((20.0, 200), (19.9, 199)):
        end = ending(200, timings={**told, "predicted_per_second": rate})
        assert end.timings.decode_steps == steps


def test_the_prefill_rate_is_of_the_tokens_processed_not_of_those_reused():
    told = {"cache_n": 96, "prompt_n": 32, "prompt_ms": 160}
    end = ending(tokens_evaluated=128, timings=told)
    assert (end.prompt_tokens, end.cached_prompt_tokens) == (128, 96)
    assert end.timings.prefill_tokens / (end.timings.prefill_ns / 1e9) == 200.0


FULL = {"type": "exceed_context_size_error", "n_prompt_tokens": 6009, "n_ctx": 4096}


@pytest.mark.parametrize(
    "fault",
    [
        rejection(400, {"error": {**FULL, "message": "the request is too big"}}),
        rejection(400, {"error": FULL}),
    ],
)
def test_the_message_of_a_refused_overflow_carries_both_numbers(fault):
    assert fault.kind == "context_overflow"
    assert "prompt 6009 tokens, context 4096" in str(fault)


def test_the_message_of_an_overflow_in_a_stream_carries_both_numbers():
    fault = fault_of([json.dumps({"error": {**FULL, "message": "too big"}})])
    assert "too big (prompt 6009 tokens, context 4096)" in str(fault)


@pytest.mark.parametrize(
    "words",
    [
        "the prompt is too long for the context",
        "input is larger than n_ctx",
        "the request exceeds n_ctx",
        "the prompt does not fit into the context",
    ],
)
def test_an_overflow_without_a_type_is_known_by_its_words(words):
    assert rejection(400, {"error": {"message": words}}).kind == "context_overflow"
    assert fault_of([json.dumps({"error": words})]).kind == "context_overflow"


def test_a_length_without_a_context_is_no_overflow():
    fault = rejection(404, {"error": "prompt of 6009 tokens is longer than the limit"})
    assert fault.kind == "request_rejected"
    assert "prompt of 6009 tokens is longer than the limit" in str(fault)


@pytest.mark.parametrize("data", ['{"code": 500, "message": "no slot"}', "no slot"])
def test_an_event_named_error_is_a_failure_with_its_message(data):
    fault = fault_of([token(1, "moss", 71)], [Event(data=data, name="error")])
    assert fault.kind == "server_error_in_stream"
    assert "no slot" in str(fault)


def test_an_error_that_is_null_is_none():
    assert text_of_good_events(error=None) == "moss"


def text_of_good_events(**more) -> str:
    return "".join(seen.answer for seen in chunks([token(1, "moss", 71, **more)], [stop(1)]))


def test_an_event_cut_by_the_end_of_the_body_is_a_truncated_stream():
    cut = Event(data='{"content": " fe', whole=False)
    fault = fault_of([token(1, "moss", 71), cut])
    assert fault.kind == "stream_truncated"
    assert "after 1 of 8 tokens" in str(fault)


@pytest.mark.parametrize(
    "more",
    [
        {"tokens_predicted": "1"},
        {"tokens_predicted": -1},
        {"tokens_predicted": True},
        {"content": 7},
        {"tokens": ["x"]},
        {"tokens": 7},
        {"tokens_evaluated": -40},
        {"stop_type": 3},
        {"timings": [1]},
        {"timings": {"prompt_ms": float("nan")}},
        {"timings": {"prompt_ms": "fast"}},
        {"timings": {"prompt_n": 1.5}},
        {"timings": {"predicted_n": 2, "predicted_ms": 5, "predicted_per_second": "x"}},
        {"timings": {"cache_n": -1}},
    ],
)
def test_a_value_of_the_wrong_type_cannot_be_read_and_is_named(more):
    fault = fault_of([json.dumps({**json.loads(stop(1)), **more})])
    assert fault.kind == "bad_response"
    name = next(iter(more))
    inner = more[name] if isinstance(more[name], dict) else {}
    assert any(told in str(fault) for told in (f"{name} =", *(f"{key} =" for key in inner)))


def test_a_total_that_goes_backwards_cannot_be_read():
    fault = fault_of([token(3, "moss", 71)], [token(2, " fern", 72)])
    assert fault.kind == "bad_response"
    assert "it was 3 before" in str(fault)
