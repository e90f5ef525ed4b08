"""The worker's end of the pipes, and its death when nobody is left to hear it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from inferometer import worker
from inferometer._version import __version__
from inferometer.errors import PluginError
from inferometer.failures import Failure
from inferometer.wire import (
    GO_ON,
    WIRE_VERSION,
    Describe,
    Described,
    Failed,
    Hello,
    Job,
    Message,
    Stage,
    decode_message,
    encode,
)
from support.plugin_folder import ADAPTER, installed, write_plugin
from support.scripted_run import CHILD_LIMIT_S


class Pipes:
    """Both ends of a worker's two pipes, in one process."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        self.channel = worker.Channel(orders, reports)
        self.orders = os.fdopen(self._orders, "wb", buffering=0)
        self.reports = os.fdopen(self._reports, "rb")

    def close(self) -> None:
        for file in (self.orders, self.channel._reports, self.reports, self.channel._orders):
            with suppress(BrokenPipeError):
                file.close()


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    with closing(Pipes()) as made:
        yield made


def answers(pipes: Pipes, *orders: object) -> list[Message]:
    """Serve orders that were written ahead, and return what was said."""
    pipes.orders.write(GO_ON + b"".join(encode(order) for order in orders) + GO_ON * 20)
    worker.serve(pipes.channel)
    pipes.channel._reports.close()
    return [decode_message(line) for line in pipes.reports]


def job(**changes) -> Job:
    parts = {
        "launch": "r1-x",
        "round": 1,
        "subject": "x",
        "engine": "plain",
        "model": Path("m.gguf"),
        "context_tokens": 10,
        "seed": 1,
        "cells": (),
        "log_path": Path("log"),
        "cache_dir": Path("/dev/null/cache"),
    }
    return Job(**{**parts, **changes})


# --- talking -------------------------------------------------------------------------------


def test_a_worker_speaks_first_and_says_who_it_is(pipes):
    hello, _ = answers(pipes, Describe())
    version = ".".join(map(str, sys.version_info[:3]))
    assert hello == Hello(wire=WIRE_VERSION, tool_version=__version__, python=version)


def test_a_worker_describes_its_adapters(pipes, tmp_path):
    with installed(write_plugin(tmp_path, "good", ADAPTER)):
        _, described = answers(pipes, Describe(adapter="plain", options={"threads": 2}))
    assert isinstance(described, Described)
    assert [adapter.name for adapter in described.adapters] == ["plain"]


def test_a_worker_without_the_adapter_says_so(pipes):
    _, failed = answers(pipes, job(engine="elsewhere"))
    assert isinstance(failed, Failed)
    assert (failed.failure.kind, failed.failure.stage) == ("plugin", "import")
    assert "no adapter is named 'elsewhere'" in failed.failure.message


def test_a_worker_carries_out_a_job(pipes, tmp_path):
    with installed(write_plugin(tmp_path, "good", ADAPTER)):
        said = answers(pipes, job())
    assert said[1] == Stage(name="import")
    assert isinstance(said[-1], Failed), "this adapter creates None"


def test_a_worker_goes_on_only_when_it_is_told_to(pipes):
    done = threading.Event()

    def say() -> None:
        pipes.channel.say(Stage(name="one"))
        done.set()

    speaking = threading.Thread(target=say)
    speaking.start()
    assert decode_message(pipes.reports.readline()) == Stage(name="one")
    assert not done.is_set()
    pipes.orders.write(GO_ON)
    speaking.join(CHILD_LIMIT_S)
    assert done.is_set()


def test_a_message_larger_than_any_pipe_arrives_whole(pipes):
    huge = Failed(failure=Failure(kind="k", message="x" * 5_000_000))
    speaking = threading.Thread(target=pipes.channel.say, args=(huge,))
    speaking.start()
    assert decode_message(pipes.reports.readline()) == huge
    pipes.orders.write(GO_ON)
    speaking.join(CHILD_LIMIT_S)
    assert not speaking.is_alive()


@contextmanager
def alarms() -> Iterator[list[int]]:
    """Interrupt this process with a signal every millisecond, as an engine's timers may."""
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        yield seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_message_is_whole_though_signals_interrupt_its_writing(pipes):
    huge = Failed(failure=Failure(kind="k", message="x" * 500_000))
    heard = bytearray()
    interrupted = threading.Event()

    def listen() -> None:
        interrupted.wait(CHILD_LIMIT_S)
        while not heard.endswith(b"\n") and select.select([pipes.reports], [], [], 5)[0]:
            heard.extend(os.read(pipes.reports.fileno(), 65_536))
        pipes.orders.write(GO_ON)

    with alarms() as seen:
        threads = [
            threading.Thread(target=listen),
            threading.Thread(target=_until, args=(seen, interrupted)),
        ]
        for thread in threads:
            thread.start()
        pipes.channel.say(huge)
    for thread in threads:
        thread.join(CHILD_LIMIT_S)
    assert decode_message(bytes(heard)) == huge


def _until(seen: list[int], then: threading.Event) -> None:
    pause = threading.Event()
    while len(seen) < 5:
        pause.wait(0.001)
    then.set()


@pytest.mark.parametrize("gone", ["orders", "reports"])
def test_a_worker_that_speaks_ends_when_its_parent_is_gone(pipes, gone):
    getattr(pipes, gone).close()
    with pytest.raises(SystemExit):
        pipes.channel.say(Stage(name="one"))


def test_a_worker_that_waits_ends_when_its_parent_is_gone(pipes):
    pipes.orders.close()
    with pytest.raises(SystemExit):
        pipes.channel.order()


def test_an_order_that_is_none_is_refused(pipes):
    pipes.orders.write(b"hello?\n")
    with pytest.raises(PluginError, match="do not speak alike"):
        pipes.channel.order()


# --- ways out --------------------------------------------------------------------------------


class Shouting:
    """A channel on which nothing can be said."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def say(self, message: Message) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit("no licence"), 1, "no licence"),
        (ValueError("a bug"), 1, "ValueError: a bug"),
        (KeyboardInterrupt(), 1, "KeyboardInterrupt"),
    ],
)
def test_a_worker_has_the_exit_code_of_a_python_program(error, code, words, capsys):
    assert worker._served(Shouting(error)) == code
    assert words in capsys.readouterr().err


def test_a_worker_is_started_by_a_parent_only():
    done = subprocess.run(
        [sys.executable, "-m", "inferometer.worker"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--orders" in done.stderr


# --- pipes stay private -------------------------------------------------------------------------

HOLDER = """
import os, subprocess, sys
from inferometer.worker import keep_private
reports = int(sys.argv[1])
keep_private([reports])
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
else:
    child = subprocess.Popen(["cat"], close_fds=False).pid
os._exit(0)
"""


@pytest.mark.parametrize("way", ["fork", "exec"])
def test_a_child_of_the_engine_does_not_hold_our_pipe_open(way):
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(theirs), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(theirs,),
    ) as holder:
        os.close(theirs)
        assert holder.wait(CHILD_LIMIT_S) == 0
        assert os.read(ours, 1) == b"", "closed with the worker, though its child lives on"
        os.close(ours)


# --- the lifeline ---------------------------------------------------------------------------


def test_a_worker_dies_with_its_group_when_the_lifeline_closes():
    orders, orders_out = os.pipe()
    reports_in, reports = os.pipe()
    lifeline, lifeline_out = os.pipe()
    flags = (f"--orders={orders}", f"--reports={reports}", f"--lifeline={lifeline}")
    child = subprocess.Popen(
        [sys.executable, "-m", "inferometer.worker", *flags],
        pass_fds=(orders, reports, lifeline),
        start_new_session=True,
    )
    for fd in (orders, reports, lifeline):
        os.close(fd)
    with os.fdopen(reports_in, "rb") as heard:
        assert isinstance(decode_message(heard.readline()), Hello)
        os.close(lifeline_out)
        assert child.wait(CHILD_LIMIT_S) == -signal.SIGKILL
        assert heard.read() == b""
    os.close(orders_out)
