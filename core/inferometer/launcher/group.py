"""End a process and all that it started, and know when they are gone.

The process leads a group of its own, and whatever leaves the group (a daemon has a session of
its own) still carries a mark in its environment. The leader is reaped last: until then its id
cannot become that of a stranger, so no signal ever reaches one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

import psutil

MARK = "INFEROMETER_LAUNCH"
"""Variable that every descendant inherits, whatever group or session it moves to."""

GRACE_S = 5.0
_LOOK_AGAIN_S = 0.01


class Group:
    """A process and its descendants.

    Args:
        leader: the process, started in a session of its own.
        mark: the value of ``MARK`` in its environment, and in no other's.
    """

    def __init__(self, leader: subprocess.Popen[bytes], mark: str) -> None:
        self._leader = leader
        self._mark = mark
        self._reaped = False

    def has_left(self, within_s: float = 0.0) -> bool:
        """Return whether the leader has ended, after waiting for that for a while."""
        give_up = time.monotonic() + within_s
        while not self._exited():
            if time.monotonic() >= give_up:
                return False
            time.sleep(_LOOK_AGAIN_S)
        return True

    def end(self) -> int | None:
        """Ask, wait, kill; return the leader's exit code. May be called twice."""
        try:
            if not self.has_left():
                self._signal(signal.SIGTERM)
                self.has_left(GRACE_S)
        finally:
            # What the leader left behind (a server it started) has no reason to live, and a
            # second Ctrl-C must not save it.
            self._signal(signal.SIGKILL)
            try:
                self._sweep()
            finally:
                self._reap()
        return self._leader.returncode

    def _exited(self) -> bool:
        if self._reaped:
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13: reaped early, for want of it
            return self._leader.poll() is not None
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._leader.pid, how) is not None
        except ChildProcessError:  # whoever started us has children reaped by the kernel
            return True

    def _signal(self, number: signal.Signals) -> None:
        if not self._reaped:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader.pid, number)

    def _sweep(self) -> None:
        """Kill what is still there, and wait until its memory and its devices are free again."""
        give_up = time.monotonic() + GRACE_S
        while not self._reaped and time.monotonic() < give_up:
            left = [process for process in psutil.process_iter() if self._has(process)]
            if not left:
                return
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(_LOOK_AGAIN_S)

    def _has(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            in_group = os.getpgid(process.pid) == self._leader.pid
            return in_group or process.environ().get(MARK) == self._mark
        except (psutil.Error, OSError):
            return False

    def _reap(self) -> None:
        self._reaped = True
        with suppress(subprocess.TimeoutExpired):
            self._leader.wait(GRACE_S)
