"""Start a worker in any interpreter, and listen to it.

Waiting blocks in the kernel, so a parent costs nothing while a request is timed, and every
wait has a limit.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from attrs import frozen

from inferometer._version import __version__
from inferometer.engine import LogEvidence
from inferometer.errors import PluginError, ResultsError
from inferometer.failures import Failure, describe_exit, log_lines, log_tail
from inferometer.launcher.group import GRACE_S, MARK, Group
from inferometer.wire import GO_ON, Hello, Message, Order, check_hello, decode_message, encode

# Engines phone home and look for newer files unless told not to; both disturb a measurement.
QUIET_ENVIRONMENT: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRTLLM_NO_USAGE_STATS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # A file in the current folder must not shadow a module of the engine's.
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}

_READ_BYTES = 1 << 16
_LARGEST_MESSAGE_BYTES = 1 << 28
_LEAVING_S = 20.0
_LONGEST_WAIT_S = 1e6
"""What the kernel takes as a time-out is bounded; nobody waits that long."""


@frozen(kw_only=True)
class Limits:
    """How long a worker may take."""

    idle_s: float = 1800.0
    """Longest silence: no single step, and no single request, may take longer."""
    total_s: float = 6 * 3600.0
    """Longest launch."""


class WorkerEnded(Exception):  # noqa: N818 - an event with a reason, not always an error
    """The worker is gone, or was given up; ``failure`` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Worker:
    """A worker process, from its first word to its end.

    Use as a context manager: entering starts it, leaving ends it and all that it started.

    Args:
        python: interpreter to run it in; None is this one.
        log_path: where the worker's and the engine's prints go.
        limits: how long it may take.
        evidence: words of the engine's log that tell why it died.
    """

    def __init__(
        self,
        python: str | None,
        log_path: Path,
        *,
        limits: Limits = Limits(),
        evidence: Sequence[LogEvidence] = (),
    ) -> None:
        self._python = python or sys.executable
        self._log_path = log_path
        self._limits = limits
        self._evidence = evidence
        self._mark = secrets.token_hex(16)
        self._buffer = bytearray()
        self._ours = ExitStack()
        self._group: Group | None = None
        self.stage = "start"

    def __enter__(self) -> Self:
        self._deadline = time.monotonic() + self._limits.total_s
        self._spawned_ns = time.perf_counter_ns()
        try:
            self._start()
        except BaseException:  # an interrupt, too, must find nothing running
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _start(self) -> None:
        try:
            with ExitStack() as theirs, self._open_log() as log:
                orders, self._orders = _pipe(theirs, self._ours)
                self._reports, reports = _pipe(self._ours, theirs)
                lifeline, _ = _pipe(theirs, self._ours)
                fds = {"orders": orders, "reports": reports, "lifeline": lifeline}
                self._group = Group(self._spawn(fds, log), self._mark)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise PluginError(f"cannot start the interpreter {self._python}: {reason}") from None
        # A worker that does not read must run into its limit, not hold us in a write.
        os.set_blocking(self._orders, False)

    def _open_log(self) -> IO[bytes]:
        try:
            return self._log_path.open("ab")
        except OSError as error:
            raise ResultsError(f"cannot write {self._log_path}: {error.strerror}") from None

    def _spawn(self, fds: Mapping[str, int], log: IO[bytes]) -> subprocess.Popen[bytes]:
        flags = [part for name, fd in fds.items() for part in (f"--{name}", str(fd))]
        return subprocess.Popen(
            [self._python, "-m", "inferometer.worker", *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=tuple(fds.values()),
            env={**os.environ, **QUIET_ENVIRONMENT, MARK: self._mark},
            start_new_session=True,
        )

    # --- talking ---------------------------------------------------------------------------

    def age_ns(self) -> int:
        """Return the time since the process was started, in nanoseconds."""
        return time.perf_counter_ns() - self._spawned_ns

    def hello(self) -> Hello:
        """Return the worker's first words, once it is known to speak our version.

        Raises:
            PluginError: there is no Inferometer in that interpreter, or another version.
        """
        try:
            first = self.receive()
        except WorkerEnded as ended:
            raise PluginError(_no_hello(self._python, ended.failure)) from None
        if not isinstance(first, Hello):
            raise PluginError(f"{self._python}: the worker did not say hello first")
        check_hello(first, __version__)
        return first

    def order(self, order: Order) -> None:
        """Let the worker go on from its hello, and tell it what to do.

        Raises:
            WorkerEnded: it does not listen.
        """
        self.go_on()
        self._write(encode(order))

    def go_on(self) -> None:
        """Let the worker go on after a message."""
        self._write(GO_ON)

    def receive(self) -> Message:
        """Return the next message, blocking.

        Raises:
            WorkerEnded: it died, or said nothing for longer than its limit.
            PluginError: what it said is no message of ours.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LARGEST_MESSAGE_BYTES:
                raise PluginError(f"a message of the worker during {self.stage} has no end")
            self._buffer += self._read()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decode_message(line)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with suppress(BrokenPipeError):  # a dead worker is noticed, with its reason, on reading
            while view:
                self._await(self._orders, select.POLLOUT)
                view = view[_write_some(self._orders, view) :]

    def _read(self) -> bytes:
        self._await(self._reports, select.POLLIN)
        data = os.read(self._reports, _READ_BYTES)
        if not data:
            raise WorkerEnded(self._died())
        return data

    def _await(self, fd: int, event: int) -> None:
        left, idle = self._deadline - time.monotonic(), self._limits.idle_s
        waiting = select.poll()
        waiting.register(fd, event)
        # Who never falls silent has a limit all the same, and if we were the ones to sleep (a
        # stopped job), what came in the meantime counts.
        in_time = left > 0 and (
            waiting.poll(1000 * min(idle, left, _LONGEST_WAIT_S)) or waiting.poll(0)
        )
        if not in_time:
            raise WorkerEnded(self._hung(total=left <= idle))

    # --- ending ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait for a worker that said its last word to leave by itself, within reason."""
        if self._group:
            self._group.has_left(_LEAVING_S)

    def end(self) -> int | None:
        """End the worker and all that it started; return its exit code. May be called twice."""
        try:
            return self._group.end() if self._group else None
        finally:
            self._ours.close()

    def _hung(self, *, total: bool) -> Failure:
        limit = self._limits.total_s if total else self._limits.idle_s
        what = "the launch took longer than" if total else "nothing was heard for"
        return Failure(
            kind="hung",
            message=f"{what} {limit:g} s during {self.stage}: the worker was ended "
            f"(see --{'launch' if total else 'idle'}-limit)",
            stage=self.stage,
            log_tail=log_tail(self._log_path),
        )

    def _died(self) -> Failure:
        by_itself = self._group is not None and self._group.has_left(GRACE_S)
        code = self.end()
        if code is None or not by_itself:
            return Failure(
                kind="hung",
                message=f"the worker closed its pipe during {self.stage} and did not end",
                stage=self.stage,
                log_tail=log_tail(self._log_path),
            )
        log = log_lines(self._log_path)
        return describe_exit(code, log, stage=self.stage, evidence=self._evidence)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def _write_some(fd: int, data: memoryview) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


def _no_hello(python: str, failure: Failure) -> str:
    last = "".join(f"\n  {line}" for line in failure.log_tail[-5:])
    install = ""
    if any("No module named" in line and "inferometer" in line for line in failure.log_tail):
        install = f"\n  install Inferometer there: {python} -m pip install inferometer"
    return f"{python}: the worker did not start: {failure.message}{last}{install}"
