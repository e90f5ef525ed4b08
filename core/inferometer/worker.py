"""The child process: one launch against one engine.

``python -m inferometer.worker --orders FD --reports FD --lifeline FD``. Standard output and
error belong to the engine and go to the launch's log; reports have a pipe of their own. The
lifeline is a pipe that nobody writes to: when the parent is gone it closes, and the whole
process group goes with it.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress

from inferometer import plugins
from inferometer._version import __version__
from inferometer.describe import describe
from inferometer.errors import PluginError
from inferometer.failures import Failure
from inferometer.session import Session
from inferometer.wire import (
    WIRE_VERSION,
    Describe,
    Failed,
    Hello,
    Job,
    Message,
    Order,
    decode_order,
    encode,
)


class Channel:
    """The worker's end of the two pipes."""

    def __init__(self, orders: int, reports: int) -> None:
        self._orders = os.fdopen(orders, "rb")
        self._reports = os.fdopen(reports, "wb")

    def order(self) -> Order:
        """Return what the parent wants."""
        return decode_order(self._line())

    def say(self, message: Message) -> None:
        """Send a message and wait until the parent has dealt with it."""
        line = encode(message)
        try:
            self._reports.write(line)
            self._reports.flush()
        except BrokenPipeError:
            raise SystemExit(1) from None
        self._line()

    def _line(self) -> bytes:
        line = self._orders.readline()
        if not line:  # the parent is gone
            raise SystemExit(1)
        return line


def keep_private(fds: Sequence[int]) -> None:
    """Keep our pipes out of what the engine starts.

    A child that held them open would hide our death from the parent, which would then wait
    for a word until its limit.
    """
    for fd in fds:
        os.set_inheritable(fd, False)

    def let_go() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            os.dup2(null, fd, inheritable=False)
        os.close(null)

    os.register_at_fork(after_in_child=let_go)


def serve(channel: Channel) -> None:
    """Say hello, take one order, carry it out."""
    channel.say(
        Hello(wire=WIRE_VERSION, tool_version=__version__, python=platform.python_version())
    )
    order = channel.order()
    if isinstance(order, Describe):
        channel.say(describe(plugins.discover(), order))
        return
    assert isinstance(order, Job)
    try:
        adapter = plugins.discover().get(order.engine).adapter
    except PluginError as error:
        channel.say(Failed(failure=Failure(kind="plugin", message=str(error), stage="import")))
        return
    Session(order, adapter, channel.say).run()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _served(channel: Channel) -> int:
    """Serve, and return the exit code that a Python program would have."""
    try:
        serve(channel)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)  # noqa: T201 - where Python itself writes it
            return 1
        return left.code or 0
    except BaseException:  # noqa: BLE001 - whatever it is, the log must tell and we must end
        with suppress(OSError):
            traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Run as a worker; the arguments are file descriptors handed down by the parent."""
    parser = argparse.ArgumentParser(prog="inferometer.worker", description=__doc__)
    for name in ("orders", "reports", "lifeline"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    keep_private((args.orders, args.reports, args.lifeline))
    threading.Thread(target=_watch, args=(args.lifeline,), daemon=True).start()
    code = _served(Channel(args.orders, args.reports))
    # Threads of an engine must not keep the process from ending once everything is said.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
