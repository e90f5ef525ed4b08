"""One HTTP/1.1 response out of bytes: head, then a body in any of its three framings.

Pure: bytes in, body bytes out. Whoever reads the socket keeps the stamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import frozen

from inferometer.errors import EngineError

MAX_HEAD_BYTES = 64 * 1024
"""Longest response head accepted, in bytes."""
SUCCESS = range(200, 300)
_MAX_CHUNK_LINE_BYTES = 4 * 1024
_HEAD_END = b"\r\n\r\n"
_LINE_END = b"\r\n"


@frozen
class Head:
    """Status and headers, names in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return self.status in SUCCESS

    @property
    def content_type(self) -> str:
        """The media type alone, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Body(Protocol):
    complete: bool
    ends_by_closing: bool

    def feed(self, data: bytes) -> bytes: ...


class Response:
    """Reads one response; ``head`` is None until the blank line after it has come."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self._before_body = b""
        self._body: _Body | None = None

    @property
    def complete(self) -> bool:
        """Whether the last byte of the body has been read."""
        return self._body is not None and self._body.complete

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes that ``data`` brings.

        Raises:
            EngineError: the bytes are no HTTP response (``bad_response``).
        """
        if self._body is None:
            data = self._read_head(data)
        return self._body.feed(data) if self._body else b""

    def close(self) -> bytes:
        """Accept that the server closed the connection; no body bytes are left.

        Raises:
            EngineError: the response was not complete (``stream_truncated``).
        """
        if self._body is None or not (self._body.complete or self._body.ends_by_closing):
            raise EngineError(
                "the server closed the connection before its answer was complete",
                kind="stream_truncated",
            )
        return b""

    def _read_head(self, data: bytes) -> bytes:
        self._before_body += data
        block, end, rest = self._before_body.partition(_HEAD_END)
        if len(block) > MAX_HEAD_BYTES:
            raise bad_response(f"the head of its answer is longer than {MAX_HEAD_BYTES} bytes")
        if not end:
            return b""
        self._before_body = b""
        self.head = _parse_head(block)
        self._body = _body_of(self.head)
        return rest


def bad_response(what: str) -> EngineError:
    """Return the error for a server that does not speak HTTP as it should."""
    return EngineError(f"the server's answer cannot be read: {what}", kind="bad_response")


def _parse_head(block: bytes) -> Head:
    status_line, *lines = block.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise bad_response(f"it begins with {status_line[:60]!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(code), {name.strip().lower(): value.strip() for name, _, value in pairs})


def _body_of(head: Head) -> _Body:
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return _Chunked()
    length = head.headers.get("content-length")
    if length is None:
        return _UntilClose()
    if not length.isdigit():
        raise bad_response(f"Content-Length is {length!r}")
    return _Sized(int(length))


class _Sized:
    ends_by_closing = False

    def __init__(self, length: int) -> None:
        self._left = length
        self.complete = length == 0

    def feed(self, data: bytes) -> bytes:
        taken = data[: self._left]
        self._left -= len(taken)
        self.complete = self._left == 0
        return taken


class _UntilClose:
    ends_by_closing = True
    complete = False

    def feed(self, data: bytes) -> bytes:
        return data


class _Chunked:
    ends_by_closing = False

    def __init__(self) -> None:
        self.complete = False
        self._buffer = bytearray()
        self._left = 0
        self._on_line = self._on_size

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        body = bytearray()
        while not self.complete and self._advance(body):
            pass
        return bytes(body)

    def _advance(self, body: bytearray) -> bool:
        if self._left:
            return self._take(body)
        end = self._buffer.find(_LINE_END)
        if end < 0:
            self._check_line()
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + len(_LINE_END)]
        self._on_line(line)
        return True

    def _take(self, body: bytearray) -> bool:
        taken = self._buffer[: self._left]
        body += taken
        del self._buffer[: len(taken)]
        self._left -= len(taken)
        return bool(taken)

    def _on_size(self, line: bytes) -> None:
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError:
            raise bad_response(f"a chunk of its body has the size {line[:20]!r}") from None
        self._on_line = self._on_chunk_end if self._left else self._on_trailer

    def _on_chunk_end(self, line: bytes) -> None:
        if line:
            raise bad_response(f"a chunk of its body is followed by {line[:20]!r}")
        self._on_line = self._on_size

    def _on_trailer(self, line: bytes) -> None:
        self.complete = not line

    def _check_line(self) -> None:
        if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
            raise bad_response("a chunk of its body has no size")
