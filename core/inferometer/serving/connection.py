"""A socket to a server on this machine, whose reads are stamped before anything else."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from attrs import frozen

from inferometer.errors import EngineError

Clock = Callable[[], int]
"""Returns nanoseconds of one monotonic clock."""

_RECV_BYTES = 256 * 1024
_CONNECT_LIMIT_S = 5.0


@frozen
class Endpoint:
    """Where a server listens."""

    port: int
    host: str = "127.0.0.1"

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}"


class Connection:
    """One connection to a server; its errors are the engine's.

    Args:
        endpoint: where to connect to, at once.
        timeout_s: longest wait for the next byte, in seconds.
        fatal: whether losing the connection ends the engine, not only this request.
        clock: what stamps, in nanoseconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        timeout_s: float,
        *,
        fatal: bool = False,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._fatal = fatal
        self._clock = clock
        self._socket = self._connect()

    def send(self, request: bytes) -> int:
        """Write a request; return the stamp taken just before its first byte."""
        sent_ns = self._clock()
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise self._fault(error) from error
        return sent_ns

    def receive(self) -> tuple[int, bytes]:
        """Return the stamp of the next read and its bytes: none when the server has closed."""
        try:
            data = self._socket.recv(_RECV_BYTES)
            return self._clock(), data
        except OSError as error:
            raise self._fault(error) from error

    def blame(self, error: EngineError) -> EngineError:
        """Return an error about what was read here, fatal if the caller said so."""
        error.fatal = self._fatal
        return error

    def close(self) -> None:
        """Close the socket; may be called again."""
        with suppress(OSError):
            self._socket.close()

    def _connect(self) -> socket.socket:
        address = (self._endpoint.host, self._endpoint.port)
        try:
            made = socket.create_connection(address, min(self._timeout_s, _CONNECT_LIMIT_S))
        except OSError as error:
            raise self._fault(error) from error
        made.settimeout(self._timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _fault(self, error: OSError) -> EngineError:
        if isinstance(error, TimeoutError):
            return EngineError(
                f"the server at {self._endpoint} sent nothing for {self._timeout_s:g} s",
                kind="stalled",
                fatal=self._fatal,
            )
        return EngineError(
            f"the connection to the server at {self._endpoint} failed: {error}",
            kind="connection_lost",
            fatal=self._fatal,
        )
