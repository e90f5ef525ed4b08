"""A server that plays literal bytes, so that a test decides what the network brings and when.

A script is a list of steps: bytes are sent in one piece; an ``Event`` is waited for; ``RESET``
breaks the connection; ``WAIT_FOR_CLIENT_TO_LEAVE`` reads until the client closes. After the last
step the connection is closed. Nothing sleeps.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import defaultdict
from contextlib import suppress
from typing import Any, NamedTuple, Self

from inferometer.serving import Endpoint

LIMIT_S = 10.0
RESET = object()
WAIT_FOR_CLIENT_TO_LEAVE = object()

LAST_CHUNK = b"0\r\n\r\n"
EVENT_STREAM = "Content-Type: text/event-stream"
CHUNKED = "Transfer-Encoding: chunked"


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode()


def chunk(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def streamed(*bodies: bytes) -> tuple[bytes, ...]:
    """A whole chunked event stream, one step per body."""
    return (head(EVENT_STREAM, CHUNKED), *(chunk(body) for body in bodies), LAST_CHUNK)


def whole(value: Any, status: str = "200 OK") -> bytes:
    body = json.dumps(value).encode()
    return (
        head("Content-Type: application/json", f"Content-Length: {len(body)}", status=status) + body
    )


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Steps:
    """One permission per read of the client: the next bytes leave only after the last came.

    Used as the client's clock, which is read once per read; so two steps are two arrivals.
    """

    def __init__(self) -> None:
        self.now = 0
        self.free = threading.Semaphore(0)

    def __call__(self) -> int:
        self.now += 1
        self.free.release()
        return self.now

    def between(self, *pieces: Any) -> list[Any]:
        return [step for piece in pieces for step in (self.free, piece)]


class ScriptedServer:
    """Plays one script per connection and path, the last one again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.client_left = threading.Event()
        self._scripts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._stopping = False
        self._threads[0].start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self._listener.getsockname()[1])

    def play(self, path: str, *steps: Any) -> None:
        self._scripts[path].append(steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        for thread in self._threads:
            thread.join(LIMIT_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stopping:
                connection.close()
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(LIMIT_S)
            asked = _read(connection)
            if asked is None:
                return
            self.asked.append(asked)
            for step in self._script(asked.path):
                if not self._take(connection, step):
                    return

    def _script(self, path: str) -> tuple[Any, ...]:
        scripts = self._scripts[path]
        if not scripts:
            return (whole({"error": {"message": "File Not Found"}}, status="404 Not Found"),)
        return scripts.pop(0) if len(scripts) > 1 else scripts[0]

    def _take(self, connection: socket.socket, step: Any) -> bool:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif isinstance(step, threading.Event):
            step.wait(LIMIT_S)
        elif isinstance(step, threading.Semaphore):
            step.acquire(timeout=LIMIT_S)
        elif step is RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        elif step is WAIT_FOR_CLIENT_TO_LEAVE:
            with suppress(ConnectionError):
                while connection.recv(65536):
                    pass
            self.client_left.set()
        else:
            step()
        return True


def _read(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    block, _, body = data.partition(b"\r\n\r\n")
    line, *lines = block.decode().split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Asked(method, path, headers, body)
