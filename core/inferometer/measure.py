"""The only timed loop.

The clock is read once before a request and once per arrival; everything else happens after
the stream has ended. The loop knows no engine and computes no rate.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

from attrs import Factory, asdict, define, evolve, frozen

from inferometer.codec import from_json, structure, to_json
from inferometer.engine import Chunk, Engine, Finished, Request, TokenPrompt
from inferometer.errors import ContractViolation, EngineError, EngineFault
from inferometer.null import NullEngine
from inferometer.results import ArrivalKind, Arrivals, Ending

Clock = Callable[[], int]
"""Returns nanoseconds of one monotonic clock."""

clock: Clock = time.perf_counter_ns

_EVENTS_PER_TOKEN = 4
_SLACK_EVENTS = 1_000
"""Bare events (progress, keep-alive) allowed beside these before we stop listening."""

_OVERHEAD_TOKENS = 256
_OVERHEAD_RUNS = 5

_NO_STREAM = object()


@frozen(kw_only=True)
class Observation:
    """What the clock saw of one request, times counted from ``sent_ns``."""

    sent_ns: int
    setup_ns: int
    end_ns: int
    arrivals: Arrivals
    output_ids: tuple[int, ...] | None
    ending: Ending | None
    fault: EngineFault | None


def observe(engine: Engine, request: Request, clock: Clock = clock) -> Observation:
    """Run one request and return what was seen; a failure is part of it, never raised."""
    events: list[Chunk | Finished] = []
    stamps: list[int] = []
    fault = _listen(engine, request, events, stamps, clock)
    ended = clock()
    called, *stamps = stamps
    heard = _Heard(called_ns=called)
    violation = _violation(heard, events, stamps)
    return _observation(heard, ended, fault or violation)


def harness_overhead_ns(clock: Clock = clock) -> int:
    """Return our own cost per arrival in nanoseconds, the median over a few idle streams."""
    request = Request(
        request_id="overhead", prompt=TokenPrompt(()), max_output_tokens=_OVERHEAD_TOKENS
    )
    spans = []
    for _ in range(_OVERHEAD_RUNS):
        offsets = observe(NullEngine(), request, clock).arrivals.offsets_ns
        spans.append((offsets[-1] - offsets[0]) / (len(offsets) - 1))
    return round(median(spans))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the garbage collector out of the timed loop, and leave it as it was found."""
    collected = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if collected:
            gc.enable()


# --- while the clock runs ------------------------------------------------------------------


def _listen(
    engine: Engine,
    request: Request,
    events: list[Chunk | Finished],
    stamps: list[int],
    clock: Clock,
) -> EngineFault | None:
    """Fill ``events``, and ``stamps`` with the moment of the call and one for each event."""
    enough = _enough(request)
    add_event, add_stamp = events.append, stamps.append
    stream: Any = _NO_STREAM
    add_stamp(clock())
    try:
        stream = engine.generate(request)
        for event in stream:
            add_stamp(clock())
            add_event(event)
            if len(events) > enough:
                return _cut(stream, request, enough)
    except KeyboardInterrupt:
        raise
    except EngineFault as fault:
        return fault
    except BaseException as error:  # noqa: BLE001 - an adapter may leak SystemExit, CancelledError
        return _not_a_stream(stream) or EngineError(
            f"the adapter raised {type(error).__name__}: {error}", kind="adapter_crashed"
        )
    return _not_a_stream(stream)


def _enough(request: Request) -> int:
    # An engine may tell its progress through the prompt token by token.
    prompt = len(request.prompt.ids) if isinstance(request.prompt, TokenPrompt) else 0
    return _EVENTS_PER_TOKEN * request.max_output_tokens + prompt + _SLACK_EVENTS


def _cut(stream: Any, request: Request, enough: int) -> ContractViolation:
    _close(stream)
    return ContractViolation(
        f"the stream went on after {enough} arrivals for {request.max_output_tokens} tokens"
    )


def _not_a_stream(stream: Any) -> ContractViolation | None:
    if stream is _NO_STREAM or isinstance(stream, Iterator):
        return None
    _close(stream)
    return ContractViolation(
        f"generate returned {type(stream).__name__}, not an iterator: nothing was streamed"
    )


def _close(stream: Any) -> None:
    # The violation is told already; a stream that cannot even be closed adds nothing.
    with suppress(Exception):
        stream.close()


# --- after the stream has ended ------------------------------------------------------------


@define(kw_only=True)
class _Heard:
    """The part of a stream that keeps the grammar, on the clock as it is."""

    called_ns: int
    chunks: list[tuple[int, Chunk]] = Factory(list)
    """Each with the moment it came in."""
    sent_ns: int | None = None
    ending: Ending | None = None

    def take(self, event: object, stamp: int) -> str | None:
        """Take the next event, or return what is wrong with it."""
        if self.ending is not None:
            return "comes after Finished"
        if isinstance(event, Chunk):
            return self._take_chunk(event, stamp)
        if isinstance(event, Finished):
            return self._take_end(event, stamp)
        return f"is {type(event).__name__}, not a Chunk or a Finished"

    def _take_chunk(self, chunk: Chunk, stamp: int) -> str | None:
        arrived = stamp if chunk.received_ns is None else chunk.received_ns
        latest = self.chunks[-1][0] if self.chunks else self.called_ns
        problem = _chunk_problem(chunk) or _time_problem("received_ns", arrived, latest, stamp)
        if problem is None:
            self.chunks.append((arrived, chunk))
        return problem

    def _take_end(self, end: Finished, stamp: int) -> str | None:
        sent = self.called_ns if end.sent_ns is None else end.sent_ns
        first = self.chunks[0][0] if self.chunks else stamp
        if problem := _time_problem("sent_ns", sent, self.called_ns, first):
            return problem
        try:
            ending = _recorded(end)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            return f"cannot be recorded: {error}"
        if negative := [name for name, count in _counts(ending).items() if count < 0]:
            return f"reports a negative {negative[0]}"
        self.sent_ns, self.ending = sent, ending
        return None


def _violation(
    heard: _Heard, events: Sequence[object], stamps: Sequence[int]
) -> ContractViolation | None:
    for position, (event, stamp) in enumerate(zip(events, stamps, strict=True)):
        if problem := heard.take(event, stamp):
            return ContractViolation(f"event {position} of the stream {problem}")
    return None if heard.ending else ContractViolation("the stream ended without Finished")


def _chunk_problem(chunk: Chunk) -> str | None:
    tokens, ids = chunk.tokens, chunk.token_ids
    if tokens is not None and (type(tokens) is not int or tokens < 0):
        return f"carries {tokens!r} tokens"
    if ids is not None and (type(ids) is not tuple or any(type(i) is not int for i in ids)):
        return "carries token_ids that are not a tuple of integers"
    if tokens is not None and ids is not None and tokens != len(ids):
        return f"carries {tokens} tokens and {len(ids)} ids"
    texts = (chunk.answer, chunk.reasoning, chunk.tool_call)
    return (
        None if all(isinstance(text, str) for text in texts) else "carries text that is no string"
    )


def _time_problem(name: str, told: object, earliest: int, latest: int) -> str | None:
    # A stamp of another clock, or a flattering one, must not become a time to first token.
    if type(told) is int and earliest <= told <= latest:
        return None
    return f"has {name} {told!r}, which is not between {earliest} and {latest} on our clock"


def _recorded(end: Finished) -> Ending:
    """Return what the engine said as it will be read back: what cannot be is no record."""
    ending = Ending(
        reason=end.reason,
        raw_reason=end.raw_reason,
        prompt_tokens=end.prompt_tokens,
        output_tokens=end.output_tokens,
        cached_prompt_tokens=end.cached_prompt_tokens,
        reasoning_tokens=end.reasoning_tokens,
        timings=end.timings,
        raw=end.raw,
    )
    back = structure(from_json(to_json(ending)), Ending)
    if evolve(ending, raw=back.raw) != back:
        raise ValueError(f"{ending} would be read back as {back}")
    return back


def _counts(ending: Ending) -> Mapping[str, int]:
    said = {**asdict(ending, recurse=False), **asdict(ending.timings)}
    return {name: value for name, value in said.items() if type(value) is int}


def _observation(heard: _Heard, ended: int, fault: EngineFault | None) -> Observation:
    sent = heard.called_ns if heard.sent_ns is None else heard.sent_ns
    return Observation(
        sent_ns=sent,
        setup_ns=sent - heard.called_ns,
        end_ns=ended - sent,
        arrivals=_arrivals(heard.chunks, sent),
        output_ids=_output_ids([chunk for _, chunk in heard.chunks]),
        ending=heard.ending,
        fault=fault,
    )


def _arrivals(seen: Sequence[tuple[int, Chunk]], sent: int) -> Arrivals:
    counts = [_tokens(chunk) for _, chunk in seen]
    return Arrivals(
        offsets_ns=tuple(stamp - sent for stamp, _ in seen),
        tokens=tuple(c for c in counts if c is not None) if None not in counts else None,
        kinds="".join(_kind(chunk) for _, chunk in seen),
    )


def _tokens(chunk: Chunk) -> int | None:
    if chunk.tokens is not None:
        return chunk.tokens
    if chunk.token_ids is not None:
        return len(chunk.token_ids)
    # A bare event does not hide the counts of the arrivals around it.
    return None if chunk.has_content else 0


def _kind(chunk: Chunk) -> str:
    if not chunk.has_content:
        return ArrivalKind.EVENT
    if chunk.answer:
        return ArrivalKind.ANSWER
    if chunk.reasoning:
        return ArrivalKind.REASONING
    return ArrivalKind.TOOL_CALL if chunk.tool_call else ArrivalKind.TOKENS


def _output_ids(chunks: Sequence[Chunk]) -> tuple[int, ...] | None:
    ids: list[int] = []
    for chunk in chunks:
        if chunk.token_ids is None and chunk.has_content:
            return None
        ids.extend(chunk.token_ids or ())
    return tuple(ids)
