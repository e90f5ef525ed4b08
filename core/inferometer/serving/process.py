"""A server of ours as a child process: started, waited for, stopped, never left behind.

The child's standard input is a pipe that only we hold: it closes when we end, however we end,
and a child that reads it can then leave as well. The child stays in our process group, so that
whoever ends that group ends a child that does not read.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from inferometer.engine import LogEvidence
from inferometer.errors import EngineError
from inferometer.failures import LOG_TAIL_LINES, describe_exit, find_evidence

Reason = Callable[[Sequence[str]], str]
"""Picks the line that tells why out of the last lines of a log."""

_LOOPBACK = "127.0.0.1"
_STOP_GRACE_S = 5.0
_TAIL_BYTES = 16 * 1024
_SEARCHED_BYTES = 256 * 1024
# Readiness is known to within 2 % of the wait so far. A look at a llama-server costs 0.4 ms of
# CPU, a third of it the server's.
_POLL_SHARE = 0.02
_POLL_LEAST_S = 0.005
_POLL_MOST_S = 0.25


def free_port() -> int:
    """Return a loopback port that nobody listens on right now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def port_in_use(port: int) -> bool:
    """Return whether somebody answers on a loopback port, or holds it."""
    # Binding alone does not tell: where addresses may be reused, it can succeed beside a
    # server that listens on every address.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        if caller.connect_ex((_LOOPBACK, port)) == 0:
            return True
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((_LOOPBACK, port))
        except OSError:
            return True
    return False


def last_line(tail: Sequence[str]) -> str:
    """Return the last line that is not blank, or nothing."""
    return next((line.strip() for line in reversed(tail) if line.strip()), "")


class ServerProcess:
    """A running server child. Start it with ``ServerProcess.start``; ``stop`` it in the end.

    Args:
        child: the process, its standard input a pipe.
        log_path: where it writes what it prints.
        log_start: size of that file before the child wrote, in bytes.
        evidence: words in that log that tell why it died.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        log_path: Path,
        log_start: int = 0,
        evidence: Sequence[LogEvidence] = (),
    ) -> None:
        self._child = child
        self._log_path = log_path
        self._log_start = log_start
        self._evidence = tuple(evidence)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        log_path: Path,
        *,
        env: Mapping[str, str] | None = None,
        evidence: Sequence[LogEvidence] = (),
    ) -> Self:
        """Start ``argv``, with everything it prints appended to ``log_path``.

        Raises:
            EngineError: it cannot be started (``not_startable``).
        """
        try:
            with log_path.open("ab") as log:
                log_start = log.tell()
                child = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=env
                )
        except OSError as error:
            raise EngineError(
                f"{argv[0]} cannot be started: {error}", kind="not_startable", fatal=True
            ) from error
        return cls(child, log_path, log_start, evidence)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id, also after the process has ended."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self._child.poll() is None

    def log(self) -> str:
        """Return everything the server has printed so far."""
        return self._log_from(self._log_start)

    def log_end(self) -> int:
        """Return where its log ends now, in bytes: a mark to give to ``explained``."""
        return self._log_path.stat().st_size

    def explained(self, error: EngineError, since: int) -> EngineError:
        """Return the failure of a living server as its log explains it, or ``error`` itself.

        Args:
            error: what was seen from outside.
            since: where the log ended when the request began; what came before is no evidence.

        Returns:
            With evidence in the log: an error of that kind, fatal, because a server that once
            ran out of something is not the server that was to be measured.
        """
        recent = self._log_path.stat().st_size - _SEARCHED_BYTES
        lines = self._log_from(max(since, recent)).splitlines()
        found = find_evidence(lines, self._evidence)
        if found is None:
            return error
        told = next(line.strip() for line in lines if found.pattern in line)
        return EngineError(
            f"{error}; {found.hint}{_quoted(told)}",
            kind=found.kind,
            detail={**error.detail, "log_tail": lines[-LOG_TAIL_LINES:]},
            fatal=True,
        )

    def wait_ready(
        self, check: Callable[[], bool], limit_s: float, *, reason: Reason = last_line
    ) -> None:
        """Ask ``check`` until it says yes.

        Args:
            check: whether the server is ready; asked again and again.
            limit_s: longest wait, in seconds.
            reason: finds the telling line at the end of the log, if it is not the last.

        Raises:
            EngineError: the process died (kind by its exit and its log) or the limit was
                reached (``not_ready``); fatal, with the end of the log in ``detail``.
        """
        began = time.monotonic()
        while not check():
            waited = time.monotonic() - began
            if waited > limit_s:
                raise self._not_ready(limit_s)
            self.raise_if_dead("load", within_s=_pause_s(waited), reason=reason)

    def raise_if_dead(
        self, stage: str, *, within_s: float = 0.0, reason: Reason = last_line
    ) -> None:
        """Return if the process is alive, after waiting for its death for ``within_s`` seconds.

        Raises:
            EngineError: it is dead: kind by its exit and its log, fatal.
        """
        with suppress(subprocess.TimeoutExpired):
            code = self._child.wait(timeout=within_s)
            raise self._death(code, stage, reason)

    def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """End the process: ask, wait for ``grace_s`` seconds, kill. May be called again."""
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        self._child.terminate()
        try:
            self._child.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _death(self, code: int, stage: str, reason: Reason) -> EngineError:
        failure = describe_exit(code, self._tail(), stage=stage, evidence=self._evidence)
        return EngineError(
            f"the server is gone: {failure.message}{_quoted(reason(failure.log_tail))}",
            kind=failure.kind,
            detail={
                "exit_code": failure.exit_code,
                "signal": failure.signal,
                "log_tail": list(failure.log_tail),
            },
            fatal=True,
        )

    def _not_ready(self, limit_s: float) -> EngineError:
        tail = self._tail()
        return EngineError(
            f"the server was not ready after {limit_s:g} s{_quoted(last_line(tail))}",
            kind="not_ready",
            detail={"log_tail": list(tail)},
            fatal=True,
        )

    def _tail(self) -> tuple[str, ...]:
        recent = self._log_path.stat().st_size - _TAIL_BYTES
        return tuple(self._log_from(max(self._log_start, recent)).splitlines()[-LOG_TAIL_LINES:])

    def _log_from(self, start: int) -> str:
        with self._log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", "replace")


def _pause_s(waited_s: float) -> float:
    return min(max(waited_s * _POLL_SHARE, _POLL_LEAST_S), _POLL_MOST_S)


def _quoted(line: str) -> str:
    return f" (from its log: {line})" if line else ""
