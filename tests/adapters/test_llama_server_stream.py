"""The live engine against a server that plays bytes: whatever comes, it is told right."""

from __future__ import annotations

import json
import threading

import pytest

from inferometer import (
    CacheMode,
    ChatPrompt,
    Chunk,
    Context,
    EngineError,
    Finished,
    FinishReason,
    Refused,
    Request,
    Sampling,
    TokenPrompt,
    Unsupported,
)
from inferometer_llama_cpp.server import ServerOptions, create
from inferometer_llama_cpp.server_client import Client
from support.http_server import (
    CHUNKED,
    EVENT_STREAM,
    RESET,
    WAIT_FOR_CLIENT_TO_LEAVE,
    ScriptedServer,
    chunk,
    event,
    head,
    streamed,
    whole,
)


def token(total: int, text: str, *ids: int) -> bytes:
    return event({"content": text, "tokens": ids, "stop": False, "tokens_predicted": total})


def stop(total: int, **more) -> bytes:
    return event(
        {
            "content": "",
            "tokens": [],
            "stop": True,
            "tokens_predicted": total,
            "tokens_evaluated": 24,
            "stop_type": "limit",
            **more,
        }
    )


REED, LAKE = token(1, "reed", 11), token(2, " lake", 12)


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def engine(server, tmp_path):
    context = Context(context_tokens=64, log_path=tmp_path / "log", cache_dir=tmp_path)
    engine = create(ServerOptions(), context)
    engine._client = Client(server.endpoint)
    return engine


def request(**more) -> Request:
    return Request(
        **{
            "request_id": "r",
            "prompt": TokenPrompt((5, 6, 7)),
            "max_output_tokens": 2,
            **more,
        }
    )


def answer_of(server, engine, *steps) -> list[Chunk | Finished]:
    server.play("/completion", *steps)
    return list(engine.generate(request()))


def fault_of(server, engine, *steps) -> EngineError:
    with pytest.raises(EngineError) as caught:
        answer_of(server, engine, *steps)
    return caught.value


def text_of(events: list[Chunk | Finished]) -> str:
    return "".join(event.answer for event in events if isinstance(event, Chunk))


def total_of(events: list[Chunk | Finished]) -> int:
    return sum(event.tokens for event in events if isinstance(event, Chunk))


# --- what is asked -------------------------------------------------------------------------


def asked(server, engine, **more):
    server.play("/completion", *streamed(stop(0)))
    list(engine.generate(request(**more)))
    return server.asked[-1].json


def test_the_prompt_goes_out_as_given(server, engine):
    body = asked(server, engine, prompt=TokenPrompt((1, 1, 900)), max_output_tokens=33)
    assert (body["prompt"], body["n_predict"]) == ([1, 1, 900], 33)
    assert (body["stream"], body["return_tokens"], body["id_slot"]) == (True, True, 0)


def test_greedy_is_greedy_in_every_version_and_nothing_else_interferes(server, engine):
    body = asked(server, engine)
    assert (body["samplers"], body["top_k"], body["temperature"]) == (
        ["top_k", "temperature"],
        1,
        0.0,
    )
    assert (body["top_p"], body["min_p"], body["repeat_penalty"]) == (1.0, 0.0, 1.0)


def test_sampling_draws_from_every_token_with_the_asked_seed(server, engine):
    body = asked(server, engine, sampling=Sampling(temperature=0.8, seed=7))
    assert (body["samplers"], body["top_k"]) == (["temperature"], 0)
    assert (body["temperature"], body["seed"]) == (0.8, 7)


@pytest.mark.parametrize(("mode", "cached"), [(CacheMode.COLD, False), (CacheMode.REUSE, True)])
def test_only_reuse_lets_the_server_keep_the_prompt(server, engine, mode, cached):
    assert asked(server, engine, cache_mode=mode)["cache_prompt"] is cached


@pytest.mark.parametrize("ignore", [True, False])
def test_the_end_token_is_ignored_when_asked(server, engine, ignore):
    assert asked(server, engine, ignore_eos=ignore)["ignore_eos"] is ignore


def test_the_prompt_is_not_sent_back_at_the_end(server, engine):
    assert "prompt" not in asked(server, engine)["response_fields"]


def test_messages_are_unsupported_before_anything_is_sent(server, engine):
    chat = request(prompt=ChatPrompt(({"role": "user", "content": "hi"},)))
    with pytest.raises(Unsupported):
        list(engine.generate(chat))
    assert server.asked == []


# --- how it is framed ----------------------------------------------------------------------


def test_reused_and_processed_prompt_tokens_are_told_apart(server, engine):
    timings = {"cache_n": 20, "prompt_n": 4, "prompt_ms": 8.0, "predicted_n": 2, "predicted_ms": 9}
    end = answer_of(server, engine, *streamed(REED, LAKE, stop(2, timings=timings)))[-1]
    assert (end.prompt_tokens, end.cached_prompt_tokens) == (24, 20)
    assert (end.timings.prefill_tokens, end.timings.prefill_ns) == (4, 8_000_000)


def test_data_without_blank_and_with_ids_and_names_is_read(server, engine):
    bare = b"event: message\nid: 3\ndata:" + REED.removeprefix(b"data: ")
    assert text_of(answer_of(server, engine, *streamed(bare, LAKE, stop(2)))) == "reed lake"


def test_pings_and_empty_frames_are_no_tokens(server, engine):
    opening = head(EVENT_STREAM).replace(b"HTTP/1.1", b"HTTP/1.0")
    events = answer_of(
        server, engine, opening, b":\n\n", b": 1/2\n\ndata:\n\n", REED, LAKE, stop(2)
    )
    assert (total_of(events), text_of(events)) == (2, "reed lake")


def test_a_character_cut_in_two_comes_out_whole(server, engine):
    pieces = streamed(token(1, "señor 🌾", 9), stop(1))
    body = b"".join(pieces)
    cut = body.index("🌾".encode()) + 2
    assert text_of(answer_of(server, engine, body[:cut], body[cut:])) == "señor 🌾"


def test_tokens_held_back_are_counted_although_no_event_speaks_of_them(server, engine):
    events = answer_of(server, engine, *streamed(stop(16)))
    assert [event.tokens for event in events[:-1]] == [16]
    assert events[0].token_ids is None


@pytest.mark.parametrize("ending", [b"", b"data: [DONE]", b"data: [DONE]\n\n"])
def test_the_answer_is_complete_with_its_stop_event(server, engine, ending):
    events = answer_of(server, engine, head(EVENT_STREAM), REED, LAKE, stop(2) + ending)
    assert (total_of(events), events[-1].reason) == (2, FinishReason.LENGTH)


def test_no_more_bytes_are_waited_for_after_the_stop_event(server, engine):
    body = (head(EVENT_STREAM, CHUNKED), chunk(REED + stop(1)), WAIT_FOR_CLIENT_TO_LEAVE)
    assert isinstance(answer_of(server, engine, *body)[-1], Finished)
    assert server.client_left.wait(5.0)


def test_an_unterminated_stop_event_counts(server, engine):
    events = answer_of(server, engine, head(EVENT_STREAM), REED, stop(1).rstrip())
    assert isinstance(events[-1], Finished)


def test_the_end_token_may_fall_on_the_limit(server, engine):
    end = answer_of(server, engine, *streamed(REED, LAKE, stop(2, stop_type="eos")))[-1]
    assert (end.reason, end.raw_reason, end.output_tokens) == (FinishReason.STOP_EOS, "eos", 2)


# --- how it fails --------------------------------------------------------------------------


def test_an_error_in_the_stream_is_no_success(server, engine):
    error = event({"error": {"code": 500, "message": "Compute error.", "type": "server_error"}})
    fault = fault_of(server, engine, *streamed(REED, LAKE, error, b"data: [DONE]\n\n"))
    assert (fault.kind, fault.fatal) == ("server_error_in_stream", False)


def test_an_error_line_of_an_older_server_is_no_success(server, engine):
    line = b'error: {"code": 500, "message": "no slot"}\n\n'
    fault = fault_of(server, engine, *streamed(REED, line))
    assert fault.kind == "server_error_in_stream"
    assert "no slot" in str(fault)


def test_a_body_that_ends_inside_an_event_is_truncated(server, engine):
    fault = fault_of(server, engine, head(EVENT_STREAM), REED, LAKE[:-20])
    assert fault.kind == "stream_truncated"


def test_a_stream_that_ends_without_a_stop_event_is_truncated(server, engine):
    fault = fault_of(server, engine, *streamed(REED, LAKE))
    assert fault.kind == "stream_truncated"


def test_a_stream_cut_by_the_network_is_truncated(server, engine):
    fault = fault_of(server, engine, head(EVENT_STREAM, CHUNKED), chunk(REED), chunk(LAKE)[:-9])
    assert fault.kind == "stream_truncated"


def test_a_reset_after_some_tokens_is_a_lost_connection(server, engine):
    read = threading.Event()
    server.play("/completion", *streamed(REED, LAKE)[:-1], read, RESET)
    stream = engine.generate(request())
    next(stream)
    read.set()
    with pytest.raises(EngineError) as caught:
        list(stream)
    assert caught.value.kind == "connection_lost"


OVERFLOW = {
    "error": {
        "code": 400,
        "message": "request (900 tokens) exceeds the available context size (512 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 900,
        "n_ctx": 512,
    }
}


@pytest.mark.parametrize(
    "steps",
    [
        (whole(OVERFLOW, status="400 Bad Request"),),
        streamed(event(OVERFLOW), b"data: [DONE]\n\n"),
        streamed(event({"error": OVERFLOW["error"] | {"type": "invalid_request_error"}})),
    ],
    ids=["refused", "in the stream", "in words only"],
)
def test_a_prompt_that_does_not_fit_is_an_overflow_with_both_numbers(server, engine, steps):
    fault = fault_of(server, engine, *steps)
    assert fault.kind == "context_overflow"
    assert (fault.detail["n_prompt_tokens"], fault.detail["n_ctx"]) == (900, 512)


def test_a_refusal_in_a_bare_string_keeps_the_servers_words(server, engine):
    body = json.dumps({"error": "prompt of 900 tokens is longer than the limit"}).encode()
    fault = fault_of(server, engine, head(status="404 Not Found") + body)
    assert fault.kind == "request_rejected"
    assert "prompt of 900 tokens" in str(fault)


def test_an_answer_that_is_not_streamed_is_refused(server, engine):
    assert fault_of(server, engine, whole({"content": "reed lake"})).kind == "not_streamed"


def test_closing_the_iterator_cancels_the_request(server, engine):
    server.play("/completion", *streamed(REED)[:-1], WAIT_FOR_CLIENT_TO_LEAVE)
    stream = engine.generate(request())
    next(stream)
    stream.close()
    assert server.client_left.wait(5.0)


# --- the cache -----------------------------------------------------------------------------

ERASE = "/slots/0?action=erase"


def test_resetting_the_cache_erases_the_slot(server, engine):
    server.play(ERASE, whole({"id_slot": 0, "n_erased": 12}))
    engine.reset_cache()
    assert [asked.path for asked in server.asked] == [ERASE]


def test_a_server_that_cannot_erase_says_so(server, engine):
    server.play(ERASE, whole({"error": {"message": "not here"}}, status="501 Not Implemented"))
    with pytest.raises(Unsupported):
        engine.reset_cache()


def test_a_server_that_will_not_erase_says_so(server, engine):
    server.play(ERASE, whole({"error": {"message": "busy"}}, status="503 Unavailable"))
    with pytest.raises(Refused, match="busy"):
        engine.reset_cache()
