"""HTTP/1.1 to a server on this machine, over a raw socket so that stamps are exact.

An HTTP library reads ahead, buffers and parses before its caller learns that bytes came. Here
the clock is read right after each ``recv`` returns, before anything is parsed, and whatever
came in one ``recv`` is one arrival. Proxies are never used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from inferometer.errors import EngineError
from inferometer.serving.connection import Clock, Connection, Endpoint
from inferometer.serving.framing import SUCCESS, Head, Response
from inferometer.serving.sse import Event, EventParser

EVENT_STREAM = "text/event-stream"
_MAX_REPLY_BYTES = 64 * 1024 * 1024


@frozen
class Reply:
    """A whole answer: its status, and its body as JSON, or as text when it is none."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return self.status in SUCCESS


@frozen(kw_only=True)
class Arrival:
    """Everything that became readable in one ``recv``: the events it completed."""

    received_ns: int
    events: tuple[Event, ...]


def get_json(endpoint: Endpoint, path: str, *, timeout_s: float = 10.0) -> Reply:
    """GET a whole answer, whatever its status; each wait is limited to ``timeout_s`` seconds.

    Raises:
        EngineError: ``connection_lost``, ``stalled``, ``stream_truncated`` or ``bad_response``.
    """
    return _exchange(endpoint, _request(endpoint, "GET", path, b""), timeout_s)


def post_json(endpoint: Endpoint, path: str, payload: Any, *, timeout_s: float = 60.0) -> Reply:
    """POST a value as JSON and return the whole answer, like ``get_json``."""
    return _exchange(endpoint, _request(endpoint, "POST", path, _dumped(payload)), timeout_s)


def post_events(
    endpoint: Endpoint,
    path: str,
    payload: Any,
    *,
    timeout_s: float,
    fatal: bool = False,
    clock: Clock = time.perf_counter_ns,
) -> EventStream | Reply:
    """POST a value as JSON and return its answer as a stream of events.

    The request is built and the connection made first; ``EventStream.sent_ns`` is stamped just
    before the first byte is written. An answer that is no success is returned as a ``Reply``,
    for the caller to say what it means.

    Args:
        endpoint: where the server listens.
        path: what to post to.
        payload: any value JSON can hold.
        timeout_s: longest wait for the next byte, in seconds.
        fatal: whether a lost connection ends the engine, not only this request.
        clock: what stamps, in nanoseconds.

    Raises:
        EngineError: ``stalled``, ``connection_lost``, ``stream_truncated``, ``bad_response``,
            or ``not_streamed`` when a success is not an event stream.
    """
    request = _request(endpoint, "POST", path, _dumped(payload))
    connection = Connection(endpoint, timeout_s, fatal=fatal, clock=clock)
    try:
        stream = EventStream(connection, connection.send(request))
        return _stream_or_reply(stream, stream.read_head(), f"{endpoint}{path}")
    except BaseException:
        connection.close()
        raise


class EventStream:
    """The arrivals of one streamed answer. Closing it, or its iterator, cancels the request."""

    def __init__(self, connection: Connection, sent_ns: int) -> None:
        self.sent_ns = sent_ns
        """Clock reading just before the first byte of the request was written."""
        self._connection = connection
        self._response = Response()
        self._parser = EventParser()
        self._with_head = (sent_ns, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Arrival]:
        stamp = self.sent_ns
        try:
            for stamp, body in self._reads():
                if events := self._events(body):
                    yield Arrival(received_ns=stamp, events=tuple(events))
            # Only a body that ends by closing leaves something: it came with the last read.
            if last := self._parser.close():
                yield Arrival(received_ns=stamp, events=tuple(last))
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection: the server learns that nobody listens any more."""
        self._connection.close()

    def read_head(self) -> Head:
        """Read up to the end of the head, and keep the body bytes that came with it."""
        while self._response.head is None:
            stamp, data = self._connection.receive()
            self._with_head = (stamp, _feed(self._response, self._connection, data))
        return self._response.head

    def whole_reply(self) -> Reply:
        """Read the rest as one answer, and close."""
        with self:
            assert self._response.head is not None
            return Reply(self._response.head.status, _parsed(_joined(self._reads())))

    def _reads(self) -> Iterator[tuple[int, bytes]]:
        yield self._with_head
        while not self._response.complete:
            stamp, data = self._connection.receive()
            body = _feed(self._response, self._connection, data)
            if not data:
                return
            yield stamp, body

    def _events(self, body: bytes) -> list[Event]:
        events = self._parser.feed(body)
        # An event without its blank line ends with the body, in the same read.
        return events + self._parser.close() if self._response.complete else events


def _exchange(endpoint: Endpoint, request: bytes, timeout_s: float) -> Reply:
    connection = Connection(endpoint, timeout_s)
    try:
        stream = EventStream(connection, connection.send(request))
        stream.read_head()
        return stream.whole_reply()
    finally:
        connection.close()


def _feed(response: Response, connection: Connection, data: bytes) -> bytes:
    try:
        return response.feed(data) if data else response.close()
    except EngineError as error:
        raise connection.blame(error) from None


def _joined(reads: Iterator[tuple[int, bytes]]) -> bytes:
    body = bytearray()
    for _, part in reads:
        body += part
        if len(body) > _MAX_REPLY_BYTES:
            raise EngineError(
                f"the server's answer is longer than {_MAX_REPLY_BYTES} bytes", kind="bad_response"
            )
    return bytes(body)


def _request(endpoint: Endpoint, method: str, path: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1",
        f"Host: {endpoint.host}:{endpoint.port}",
        f"Accept: {EVENT_STREAM}, application/json",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def _dumped(payload: Any) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def _parsed(body: bytes) -> Any:
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stream_or_reply(stream: EventStream, head: Head, url: str) -> EventStream | Reply:
    if not head.ok:
        return stream.whole_reply()
    if head.content_type == EVENT_STREAM:
        return stream
    raise EngineError(
        f"{url} answered with {head.content_type or 'no content type'} instead of an event stream: "
        "without a stream there is no time to first token",
        kind="not_streamed",
    )
