"""What one network read brings is one arrival, stamped before it is parsed."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import EngineError
from inferometer.serving import (
    Endpoint,
    EventStream,
    Reply,
    free_port,
    get_json,
    post_events,
    post_json,
)
from inferometer.serving.framing import Response
from support.http_server import (
    CHUNKED,
    EVENT_STREAM,
    LAST_CHUNK,
    RESET,
    WAIT_FOR_CLIENT_TO_LEAVE,
    ScriptedServer,
    Steps,
    chunk,
    head,
    streamed,
    whole,
)


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server


def ask(server, **options) -> EventStream | Reply:
    return post_events(server.endpoint, "/say", {"n": 1}, **{"timeout_s": 5.0, **options})


def arrivals_of(server, **options):
    stream = ask(server, **options)
    assert isinstance(stream, EventStream)
    return [(a.received_ns, [event.data for event in a.events]) for a in stream]


def fault_of(server, **options) -> EngineError:
    with pytest.raises(EngineError) as caught:
        arrivals_of(server, **options)
    return caught.value


# --- arrivals and stamps -------------------------------------------------------------------


def test_each_read_is_one_arrival_with_its_own_stamp(server):
    clock = Steps()
    opening = head(EVENT_STREAM, CHUNKED)
    server.play(
        "/say", *clock.between(opening, chunk(b"data: a\n\n"), chunk(b"data: b\n\n") + LAST_CHUNK)
    )
    # The clock was read before the request (1) and after each of three reads (2, 3, 4).
    assert arrivals_of(server, clock=clock) == [(3, ["a"]), (4, ["b"])]


def test_events_that_come_in_one_read_are_one_arrival(server):
    server.play("/say", b"".join(streamed(b"data: a\n\n", b"data: b\n\n", b"data: c\n\n")))
    clock = Steps()
    assert arrivals_of(server, clock=clock) == [(2, ["a", "b", "c"])]


def test_events_that_come_with_the_head_count(server):
    clock = Steps()
    first, *rest = streamed(b"data: a\n\n", b"data: b\n\n")
    server.play("/say", *clock.between(first + rest[0], rest[1], rest[2]))
    assert arrivals_of(server, clock=clock) == [(2, ["a"]), (3, ["b"])]


def test_an_event_in_three_reads_arrives_with_the_last(server):
    clock = Steps()
    server.play(
        "/say",
        *clock.between(
            head(EVENT_STREAM, CHUNKED),
            chunk(b'data: {"a":'),
            chunk("🦙".encode()[:2]),
            chunk("🦙".encode()[2:] + b"}\n\n"),
            LAST_CHUNK,
        ),
    )
    assert arrivals_of(server, clock=clock) == [(5, ['{"a":🦙}'])]


def test_comments_and_empty_frames_make_no_arrival(server):
    clock = Steps()
    server.play(
        "/say",
        *clock.between(
            head(EVENT_STREAM), b": 100/200\n\n", b":\n\n", b"data:\n\n", b"data: a\n\n"
        ),
    )
    assert arrivals_of(server, clock=clock) == [(6, ["a"])]


def test_the_request_is_stamped_before_its_first_byte_leaves(server):
    heard = threading.Event()
    server.play("/say", heard.set, *streamed(b"data: a\n\n"))
    seen = []

    def clock() -> int:
        seen.append((heard.is_set(), len(server.asked)))
        return len(seen)

    stream = ask(server, clock=clock)
    assert seen[0] == (False, 0)
    assert stream.sent_ns == 1
    stream.close()


def test_the_last_event_may_lack_its_blank_line(server):
    server.play("/say", head(EVENT_STREAM, "Content-Length: 21") + b"data: a\n\ndata: [DONE]")
    assert arrivals_of(server, clock=lambda: 0) == [(0, ["a", "[DONE]"])]


def test_an_unterminated_event_keeps_the_stamp_of_its_bytes(server):
    clock = Steps()
    server.play("/say", *clock.between(head(EVENT_STREAM), b"data: a"))
    assert arrivals_of(server, clock=clock) == [(3, ["a"])]


# --- framing -------------------------------------------------------------------------------

BODY = b"data: a\n\ndata: b\n\n"
FRAMINGS = {
    "length": head(EVENT_STREAM, f"content-length: {len(BODY)}") + BODY,
    "chunked": b"".join(streamed(BODY[:5], BODY[5:])),
    "closing": head(EVENT_STREAM) + BODY,
    "old closing": b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + BODY,
    "chunk extensions and trailers": head(EVENT_STREAM, CHUNKED)
    + b"12;x=1\r\n"
    + BODY
    + b"\r\n0\r\nTrailer: 1\r\n\r\n",
}


@pytest.mark.parametrize("answer", FRAMINGS.values(), ids=FRAMINGS.keys())
def test_every_framing_gives_the_same_events(server, answer):
    server.play("/say", answer)
    assert arrivals_of(server, clock=lambda: 0) == [(0, ["a", "b"])]


@given(st.sampled_from(sorted(FRAMINGS)), st.data())
def test_any_split_of_a_response_gives_the_same_body(name, data):
    answer = FRAMINGS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    response = Response()
    body = b"".join(
        response.feed(answer[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)
    )
    response.close()
    assert body == BODY
    assert response.complete == ("closing" not in name)


def test_bytes_after_the_body_are_not_body():
    response = Response()
    assert response.feed(head("Content-Length: 2") + b"okHTTP/1.1 200 OK") == b"ok"
    assert response.complete


# --- what goes wrong -----------------------------------------------------------------------


def test_a_stream_cut_before_its_last_chunk_is_truncated(server):
    server.play("/say", head(EVENT_STREAM, CHUNKED), chunk(b"data: a\n\n"))
    assert fault_of(server).kind == "stream_truncated"


def test_a_body_shorter_than_its_length_is_truncated(server):
    server.play("/say", head(EVENT_STREAM, "Content-Length: 99"), b"data: a\n\n")
    assert fault_of(server).kind == "stream_truncated"


def test_a_connection_closed_before_any_answer_is_truncated(server):
    server.play("/say")
    assert fault_of(server).kind == "stream_truncated"


def test_what_came_before_the_cut_is_still_delivered(server):
    server.play("/say", head(EVENT_STREAM, CHUNKED), chunk(b"data: a\n\n"))
    reader = iter(ask(server))
    assert [event.data for event in next(reader).events] == ["a"]
    with pytest.raises(EngineError):
        next(reader)


def test_a_reset_connection_is_lost(server):
    clock = Steps()
    server.play("/say", *clock.between(head(EVENT_STREAM, CHUNKED), chunk(b"data: a\n\n"), RESET))
    fault = fault_of(server, clock=clock)
    assert (fault.kind, fault.fatal) == ("connection_lost", False)


def test_nobody_listening_is_a_lost_connection():
    nowhere = Endpoint(free_port())
    with pytest.raises(EngineError, match=f"the server at {nowhere} failed") as caught:
        post_events(nowhere, "/say", {}, timeout_s=5.0)
    assert caught.value.kind == "connection_lost"


def test_silence_is_a_stall_with_its_limit_in_the_message(server):
    server.play("/say", head(EVENT_STREAM, CHUNKED), WAIT_FOR_CLIENT_TO_LEAVE)
    fault = fault_of(server, timeout_s=0.05)
    assert fault.kind == "stalled"
    assert "sent nothing for 0.05 s" in str(fault)


@pytest.mark.parametrize("cut", [(), (head(EVENT_STREAM, CHUNKED),)])
def test_a_caller_may_call_a_lost_connection_fatal(server, cut):
    server.play("/say", *cut)
    assert fault_of(server, fatal=True).fatal


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "begins with 'SSH-2.0"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "begins with"),
        (head(EVENT_STREAM, "Content-Length: many"), "Content-Length is 'many'"),
        (head(EVENT_STREAM, CHUNKED) + b"zz\r\n", "has the size b'zz'"),
        (head(EVENT_STREAM, CHUNKED) + b"1\r\nab\r\n", "followed by b'b'"),
        (head(EVENT_STREAM, CHUNKED) + b"1" * 5000, "has no size"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "longer than 65536 bytes"),
    ],
)
def test_what_is_no_http_is_a_bad_response(server, answer, what):
    server.play("/say", answer)
    fault = fault_of(server)
    assert fault.kind == "bad_response"
    assert what in str(fault)


def test_a_success_that_is_no_event_stream_is_refused(server):
    server.play("/say", whole({"content": "all at once"}))
    fault = fault_of(server)
    assert fault.kind == "not_streamed"
    assert f"{server.endpoint}/say answered with application/json" in str(fault)


def test_a_refusal_is_returned_with_its_status_and_parsed_body(server):
    server.play("/say", whole({"error": {"code": 400}}, status="400 Bad Request"))
    assert ask(server) == Reply(400, {"error": {"code": 400}})


def test_a_refusal_in_plain_words_is_returned_as_text(server):
    server.play("/say", head("Content-Type: text/plain", status="500 Oops") + b"it broke")
    reply = ask(server)
    assert (reply.ok, reply.body) == (False, "it broke")


# --- leaving early -------------------------------------------------------------------------


def endless(server) -> None:
    server.play("/say", *streamed(b"data: a\n\n")[:2], WAIT_FOR_CLIENT_TO_LEAVE)


def test_closing_the_iterator_closes_the_connection(server):
    endless(server)
    reader = iter(ask(server))
    next(reader)
    reader.close()
    assert server.client_left.wait(5.0)


def test_leaving_the_with_block_closes_the_connection(server):
    endless(server)
    with ask(server):
        pass
    assert server.client_left.wait(5.0)


def test_closing_twice_is_allowed(server):
    endless(server)
    stream = ask(server)
    stream.close()
    stream.close()


# --- whole answers -------------------------------------------------------------------------


def test_get_returns_status_and_json(server):
    server.play("/health", whole({"status": "ok"}))
    assert get_json(server.endpoint, "/health") == Reply(200, {"status": "ok"})
    assert server.asked[0].method == "GET"


def test_an_unready_status_is_an_answer_not_an_error(server):
    server.play("/health", whole({"error": "loading"}, status="503 Service Unavailable"))
    assert get_json(server.endpoint, "/health").status == 503


def test_post_sends_json_and_returns_json(server):
    server.play("/tokenize", whole({"tokens": [1, 2]}))
    reply = post_json(server.endpoint, "/tokenize", {"content": "señor"})
    assert reply.body == {"tokens": [1, 2]}
    assert server.asked[0].json == {"content": "señor"}
    assert server.asked[0].headers["content-type"] == "application/json"


def test_a_whole_answer_cut_short_is_an_error(server):
    server.play("/health", head("Content-Length: 50") + b"{")
    with pytest.raises(EngineError) as caught:
        get_json(server.endpoint, "/health")
    assert caught.value.kind == "stream_truncated"


def test_a_whole_answer_that_never_comes_is_a_stall(server):
    server.play("/health", WAIT_FOR_CLIENT_TO_LEAVE)
    with pytest.raises(EngineError) as caught:
        get_json(server.endpoint, "/health", timeout_s=0.05)
    assert caught.value.kind == "stalled"


def test_proxies_are_never_used(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.play("/health", whole({}))
    server.play("/say", *streamed(b"data: a\n\n"))
    assert get_json(server.endpoint, "/health").ok
    assert arrivals_of(server, clock=lambda: 0) == [(0, ["a"])]
