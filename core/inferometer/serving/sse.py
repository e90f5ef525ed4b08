"""Server-sent events out of bytes, however the network cut them."""

from __future__ import annotations

import re

from attrs import frozen

from inferometer.errors import EngineError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Longest event accepted, in bytes: room for a prompt echoed by its server, not for a leak."""

_ERROR = "error"
_LINE_END = re.compile(rb"\r\n|\r|\n")


@frozen(kw_only=True)
class Event:
    """One dispatched event."""

    data: str
    name: str = "message"
    """From the ``event:`` field."""
    id: str = ""
    whole: bool = True
    """Whether the blank line after it came; a body can end in the middle of an event."""


class EventParser:
    """Turns the bytes of an event stream into events.

    An event belongs to the read that brought its last byte. Comments and events without data
    dispatch nothing. Characters are decoded only once their line is whole. A line of the field
    ``error``, which the standard lacks and some servers send, makes an event of that name.

    Args:
        max_event_bytes: longest event accepted.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._after_cr = False
        self._lines: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that ``data`` completes.

        Raises:
            EngineError: an event is longer than accepted (``bad_response``).
        """
        if not data:
            return []
        # A CR ends its line at once; an LF that follows in the next read belongs to it.
        fresh = data[1:] if self._after_cr and data[:1] == b"\n" else data
        self._after_cr = data[-1:] == b"\r"
        *lines, self._rest = _LINE_END.split(self._rest + fresh)
        events = [event for line in lines if (event := self._take(line))]
        self._check_size()
        return events

    def close(self) -> list[Event]:
        """Return the last event when the body ended without the blank line after it."""
        rest, self._rest = self._rest, b""
        return [event for line in (rest, b"") if (event := self._take(line, whole=False))]

    def _take(self, line: bytes, *, whole: bool = True) -> Event | None:
        if line:
            self._lines.append(line)
            self._held += len(line)
            return None
        lines, self._lines, self._held = self._lines, [], 0
        return _event(lines, whole=whole)

    def _check_size(self) -> None:
        if self._held + len(self._rest) > self._max_event_bytes:
            raise EngineError(
                f"the server sent an event longer than {self._max_event_bytes} bytes",
                kind="bad_response",
            )


def _event(lines: list[bytes], *, whole: bool) -> Event | None:
    data, errors, name, identifier = list[str](), list[str](), "message", ""
    for line in lines:
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == _ERROR:
            errors.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            identifier = value
    if any(errors):
        data, name = errors, _ERROR
    text = "\n".join(data)
    return Event(data=text, name=name, id=identifier, whole=whole) if text else None
