"""Events are the same however the network cuts the bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer import EngineError
from inferometer.serving import Event, EventParser


def parsed(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def data_of(*pieces: bytes) -> list[str]:
    return [event.data for event in parsed(*pieces)]


def test_one_blank_after_the_colon_is_dropped_and_only_one():
    assert data_of(b"data:{1}\n\ndata: {2}\n\ndata:  {3} \n\n") == ["{1}", "{2}", " {3} "]


def test_comments_and_empty_data_dispatch_nothing():
    assert parsed(b": keepalive 128/512\n\n:\n\ndata:\n\ndata: \n\n\n\n") == []


def test_a_comment_inside_an_event_is_skipped():
    assert data_of(b"data: a\n: ping\ndata: b\n\n") == ["a\nb"]


def test_id_and_event_lines_describe_their_event_only():
    first, second = parsed(b"event: delta\nid: 7\ndata: x\n\ndata: y\n\n")
    assert first == Event(data="x", name="delta", id="7")
    assert second == Event(data="y")


def test_unknown_fields_and_lines_without_a_colon_are_ignored():
    assert data_of(b"retry: 3000\nnonsense\ndata: x\n\n") == ["x"]


def test_several_data_lines_are_joined_with_a_newline():
    assert data_of(b"data: {\ndata:  1\ndata: }\n\n") == ["{\n 1\n}"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_of_three_ways(end):
    assert data_of(end.join([b"data: a", b"data: b", b"", b"data: c", b"", b""])) == ["a\nb", "c"]


def test_a_line_end_split_between_two_reads_is_one_line_end():
    assert data_of(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_a_bare_cr_at_the_end_of_a_read_dispatches_at_once():
    parser = EventParser()
    assert [event.data for event in parser.feed(b"data: a\r\r")] == ["a"]


def test_the_last_event_counts_without_its_blank_line():
    assert data_of(b"data: [DONE]") == ["[DONE]"]
    assert data_of(b"data: a\n\ndata: b\n") == ["a", "b"]


def test_a_character_split_between_reads_comes_out_whole():
    body = "data: señor 你好 🦙\n\n".encode()
    pieces = [body[i : i + 1] for i in range(len(body))]
    assert data_of(*pieces) == ["señor 你好 🦙"]


def test_an_event_dispatches_with_the_read_that_brings_its_last_byte():
    parser = EventParser()
    assert parser.feed(b'data: {"a"') == []
    assert parser.feed(b": 1}\n") == []
    assert parser.feed(b"\n") == [Event(data='{"a": 1}')]


def test_bytes_that_are_no_characters_are_marked_not_lost():
    assert data_of(b"data: a\xffb\n\n") == ["a\N{REPLACEMENT CHARACTER}b"]


def test_an_event_longer_than_allowed_is_refused():
    with pytest.raises(EngineError, match="longer than 16 bytes") as caught:
        EventParser(max_event_bytes=16).feed(b"data: 12345678901")
    assert caught.value.kind == "bad_response"


def test_lines_that_never_become_an_event_are_refused():
    parser = EventParser(max_event_bytes=16)
    parser.feed(b"data: 1234\n")
    with pytest.raises(EngineError, match="longer than 16 bytes"):
        parser.feed(b"data: 5678\n")


def test_many_events_may_pass_the_limit_of_one():
    parser = EventParser(max_event_bytes=16)
    assert len(parser.feed(b"data: 12345\n\n" * 100)) == 100


LINES = st.sampled_from(
    [
        "data: {}",
        "data:x",
        "data:",
        "data: 你🦙é",
        ": ping",
        "event: e",
        "id: 1",
        "",
        "",
        "retry: 1",
        "junk",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def bodies(draw):
    lines = draw(st.lists(st.tuples(LINES, ENDS), max_size=20))
    return "".join(line + end for line, end in lines).encode() + draw(
        st.sampled_from([b"", b"data: tail", b"data: tail\n"])
    )


@given(bodies(), st.data())
def test_any_split_of_the_bytes_gives_the_same_events(body, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    edges = [0, *cuts, len(body)]
    pieces = [body[start:end] for start, end in pairwise(edges)]
    assert parsed(*pieces) == parsed(body)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)))
def test_what_is_framed_comes_back(texts):
    body = "".join(f"data: {text}\n\n" for text in texts).encode()
    assert data_of(*(body[i : i + 1] for i in range(len(body)))) == texts


def test_a_line_of_the_field_error_is_an_event_of_that_name():
    assert parsed(b'error: {"code": 500}\n\ndata: x\n\n') == [
        Event(data='{"code": 500}', name="error"),
        Event(data="x"),
    ]


def test_an_event_without_its_blank_line_is_not_whole():
    first, last = parsed(b"data: a\n\ndata: b")
    assert (first.whole, last.whole) == (True, False)
