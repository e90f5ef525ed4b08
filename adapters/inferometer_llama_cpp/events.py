"""What llama-server's own stream says, in the words of the contract. Pure: text in, events out.

The facts this rests on, each seen on a real server:

- An event is not a token. Nothing is sent while a character is incomplete, and the ids of the
  tokens held back are never sent at all: only the running total ``tokens_predicted`` tells how
  many there are. Sixteen lone lead bytes produce one event, the last.
- Progress events carry a made-up token 0.
- ``tokens_cached`` is what the cache holds at the end; what was reused is ``timings.cache_n``.
- A failure can arrive inside a 200 stream: as an object with ``error``, as an event of that
  name, or, from older servers, in a line of that field.
- ``predicted_per_second`` is made of ``predicted_n`` by some builds, of one less by others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from inferometer import Chunk, EngineError, Finished, FinishReason, Timings
from inferometer.serving import Event
from inferometer_llama_cpp.figures import count, number, table, text, token_ids, unreadable

_END_MARKER = "[DONE]"
_OVERFLOW_TYPE = "exceed_context_size_error"
_OVERFLOW_WHAT = ("context", "n_ctx")
_OVERFLOW_HOW = ("exceed", "too long", "too large", "larger", "longer than", "not fit")
_ERROR = "error"
_SERVER_ERRORS = 500
_NS_PER_MS = 1_000_000
_MS_PER_S = 1_000
_RATE_TOLERANCE = 0.01

_REASONS = {"eos": FinishReason.STOP_EOS, "word": FinishReason.STOP_STRING}
_LIMIT = "limit"

_KEPT = (
    "tokens_predicted",
    "tokens_evaluated",
    "tokens_cached",
    "truncated",
    "stop_type",
    "stopping_word",
    "timings",
)
FIELDS_WANTED = ("content", "tokens", "stop", *_KEPT)
"""Fields of the last event worth sending: it would repeat the whole prompt otherwise."""


class Translator:
    """Follows one stream; ``arrival`` is called with what each network read brought.

    Args:
        asked_tokens: how many tokens were asked for.
        sent_ns: when the request was written, passed on in ``Finished``.
    """

    def __init__(self, asked_tokens: int, sent_ns: int | None = None) -> None:
        self._asked_tokens = asked_tokens
        self._sent_ns = sent_ns
        self._seen_tokens = 0
        self.finished = False

    def arrival(self, received_ns: int, streamed: Iterable[Event]) -> Iterator[Chunk | Finished]:
        """Yield one chunk for the events of one read, and the end if it is among them.

        Raises:
            EngineError: the server reported a failure, after what came before it.
        """
        events, fault = _until_error(streamed)
        if tokens := [event for event in events if not _is_bare(event)]:
            yield from self._chunks(received_ns, tokens)
        elif events:
            yield Chunk(tokens=0, received_ns=received_ns)
        if fault:
            raise fault
        if events and events[-1].get("stop"):
            self.finished = True
            yield finished(events[-1], self._asked_tokens, self._sent_ns)

    def close(self) -> None:
        """Accept the end of the stream.

        Raises:
            EngineError: the end came before the stop event (``stream_truncated``).
        """
        if not self.finished:
            raise EngineError(
                f"the stream ended after {self._seen_tokens} of {self._asked_tokens} tokens "
                "without a stop event: the answer is incomplete",
                kind="stream_truncated",
            )

    def _chunks(self, received_ns: int, events: list[Mapping[str, Any]]) -> Iterator[Chunk]:
        fresh = self._advance(events[-1])
        ids = [token for event in events for token in token_ids(event, "tokens")]
        answer = "".join(text(event, "content") or "" for event in events)
        if fresh == 0 and not ids and not answer:
            return
        yield Chunk(
            tokens=fresh,
            token_ids=tuple(ids) if fresh == len(ids) else None,
            answer=answer,
            received_ns=received_ns,
        )

    def _advance(self, event: Mapping[str, Any]) -> int | None:
        total = count(event, "tokens_predicted")
        if total is None:
            return None
        fresh = total - self._seen_tokens
        if fresh < 0:
            wanted = f"a total that grows: it was {self._seen_tokens} before"
            raise unreadable("tokens_predicted", total, wanted)
        self._seen_tokens = total
        return fresh


def finished(event: Mapping[str, Any], asked_tokens: int, sent_ns: int | None = None) -> Finished:
    """Return the end that a stop event tells of."""
    timings = table(event, "timings")
    return Finished(
        reason=_reason(event, asked_tokens),
        raw_reason=text(event, "stop_type"),
        prompt_tokens=_prompt_tokens(event, timings),
        output_tokens=count(event, "tokens_predicted"),
        cached_prompt_tokens=count(timings, "cache_n"),
        timings=_timings(timings),
        raw={name: event[name] for name in _KEPT if name in event},
        sent_ns=sent_ns,
    )


def rejection(status: int, body: Any) -> EngineError:
    """Return the error for an answer that is no success, in the server's words.

    ``body`` is parsed JSON or text; the message may be nested in it, or be a bare string.
    """
    error = _error_of(body)
    kind = "server_error" if status >= _SERVER_ERRORS else "request_rejected"
    return EngineError(
        f"llama-server refused the request with status {status}: {error.whole_message}",
        kind="context_overflow" if error.is_overflow else kind,
        detail={"status": status, **error.detail},
    )


@frozen
class _Told:
    message: str
    detail: Mapping[str, Any]

    @property
    def is_overflow(self) -> bool:
        words = self.message.lower()
        return self.detail.get("type") == _OVERFLOW_TYPE or (
            any(word in words for word in _OVERFLOW_WHAT)
            and any(word in words for word in _OVERFLOW_HOW)
        )

    @property
    def whole_message(self) -> str:
        """The message, and with an overflow the numbers that go with it."""
        prompt, window = self.detail.get("n_prompt_tokens"), self.detail.get("n_ctx")
        if not self.is_overflow or prompt is None or window is None:
            return self.message
        return f"{self.message} (prompt {prompt} tokens, context {window})"


def _error_of(body: Any) -> _Told:
    error = (body.get(_ERROR) or body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return _Told(str(error.get("message") or error), error)
    return _Told(str(error), {})


def _until_error(
    streamed: Iterable[Event],
) -> tuple[list[Mapping[str, Any]], EngineError | None]:
    events: list[Mapping[str, Any]] = []
    for arrived in streamed:
        if arrived.data.strip() == _END_MARKER:
            continue
        event = _json(arrived.data)
        if arrived.name == _ERROR:
            return events, _stream_error(event)
        if not isinstance(event, dict):
            # Cut in the middle, it is no event: the end of the stream is told by `close`.
            return events, _no_object(arrived.data) if arrived.whole else None
        if event.get(_ERROR) is not None:
            return events, _stream_error(event)
        events.append(event)
        if event.get("stop"):
            break
    return events, None


def _json(told: str) -> Any:
    try:
        return json.loads(told)
    except ValueError:
        return told


def _no_object(told: str) -> EngineError:
    return EngineError(
        f"llama-server streamed something that is no JSON object: {told[:80]!r}",
        kind="bad_response",
    )


def _stream_error(body: Any) -> EngineError:
    error = _error_of(body)
    return EngineError(
        f"llama-server broke off its answer: {error.whole_message}",
        kind="context_overflow" if error.is_overflow else "server_error_in_stream",
        detail=error.detail,
    )


def _is_bare(event: Mapping[str, Any]) -> bool:
    return event.get("prompt_progress") is not None


def _reason(event: Mapping[str, Any], asked_tokens: int) -> FinishReason:
    stop_type = event.get("stop_type")
    if stop_type != _LIMIT:
        return _REASONS.get(str(stop_type), FinishReason.UNKNOWN)
    # A request that fills the window to its last token is complete, and is called truncated.
    short = (count(event, "tokens_predicted") or 0) < asked_tokens
    return FinishReason.CONTEXT_FULL if event.get("truncated") and short else FinishReason.LENGTH


def _prompt_tokens(event: Mapping[str, Any], timings: Mapping[str, Any]) -> int | None:
    # The whole prompt, also when part of it came from the cache.
    told = count(event, "tokens_evaluated")
    cached, computed = count(timings, "cache_n"), count(timings, "prompt_n")
    if told is None and cached is not None and computed is not None:
        return cached + computed
    return told


def _timings(told: Mapping[str, Any]) -> Timings:
    if not told:
        return Timings()
    steps, rule = _decode_steps(told)
    return Timings(
        prefill_ns=_ns(number(told, "prompt_ms")),
        # One token takes no decode step; the server writes 0.001 ms there.
        decode_ns=_ns(number(told, "predicted_ms")) if steps else None,
        prefill_tokens=count(told, "prompt_n"),
        decode_steps=steps,
        source=f"llama-server timings; decode steps: {rule}",
        clock="the server's monotonic clock (ggml_time_us)",
    )


def _decode_steps(told: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the steps that the server's own rate is made of, and how they were found."""
    predicted, ms = count(told, "predicted_n"), number(told, "predicted_ms")
    rate = number(told, "predicted_per_second")
    if not predicted:
        return None, "unknown, no token is told of"
    if predicted == 1 or not ms or rate is None:
        return predicted - 1, "predicted_n - 1"
    implied = rate * ms / _MS_PER_S
    steps = min(predicted - 1, predicted, key=lambda steps: abs(steps - implied))
    if abs(steps - implied) > _RATE_TOLERANCE * steps:
        return None, "unknown, predicted_per_second fits neither predicted_n nor one less"
    name = "predicted_n" if steps == predicted else "predicted_n - 1"
    return steps, f"{name}, as in predicted_per_second"


def _ns(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * _NS_PER_MS)
