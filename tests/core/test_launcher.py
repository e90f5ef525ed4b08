"""Workers that hang, die, babble or are none at all: told plainly, and never left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from inferometer import launcher
from inferometer._version import __version__
from inferometer.engine import LogEvidence
from inferometer.errors import PluginError, ResultsError
from inferometer.launcher import Limits, Worker, WorkerEnded, group
from inferometer.launcher import process as process_module
from inferometer.wire import WIRE_VERSION, Describe, Described, Hello, Stage, encode
from support.scripted_run import is_alive

HELLO = encode(Hello(wire=WIRE_VERSION, tool_version=__version__, python="3.99"))
PATIENT = Limits(idle_s=30.0, total_s=60.0)
BRIEF_S = 0.2

PREAMBLE = f"""#!{sys.executable}
import os, signal, subprocess, sys, threading
orders, reports, lifeline = (int(sys.argv[i]) for i in (4, 6, 8))
HELLO = {HELLO!r}
say = lambda data: os.write(reports, data)
hear = lambda: os.read(orders, 1 << 20)
for_ever = lambda: threading.Event().wait()
"""


@pytest.fixture
def interpreter(tmp_path) -> Callable[[str], str]:
    """Return a maker of interpreters that run some lines instead of our worker."""

    def make(lines: str) -> str:
        path = tmp_path / "python"
        path.write_text(PREAMBLE + lines)
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "launch.log"


@pytest.fixture(autouse=True)
def everything_is_given_back() -> Iterator[None]:
    """Fail a test that leaves a child, a zombie or an open file descriptor behind."""
    before = psutil.Process().num_fds()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert psutil.Process().children() == []
    assert psutil.Process().num_fds() == before


def ended(worker: Worker, act: Callable[[Worker], object]):
    """Return why a worker ended when it was talked to."""
    with worker, pytest.raises(WorkerEnded) as caught:
        act(worker)
    return caught.value.failure


def after_hello(worker: Worker) -> None:
    worker.hello()
    worker.go_on()
    worker.receive()


def hurry(worker: Worker) -> None:
    """Wait for the hello as long as it takes, and for nothing after it."""
    worker.hello()
    worker._limits = Limits(idle_s=BRIEF_S, total_s=60.0)


# --- all is well ---------------------------------------------------------------------------


def test_a_worker_in_this_interpreter_says_hello_and_describes(log):
    with Worker(None, log, limits=PATIENT) as worker:
        hello = worker.hello()
        age = worker.age_ns()
        worker.order(Describe())
        answer = worker.receive()
        worker.go_on()
        worker.finish()
    assert hello.tool_version == __version__
    assert 0 < age < 30e9
    assert isinstance(answer, Described)
    assert worker.end() == 0


def test_messages_arrive_one_by_one_however_the_pipe_cuts_them(interpreter, log):
    python = interpreter("""
line = b'{"kind":"Stage","body":{"name":"one"}}\\n'
say(HELLO + line + line[:7]); hear(); say(line[7:]); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        assert worker.receive() == Stage(name="one")
        worker.go_on()
        assert worker.receive() == Stage(name="one")


def test_a_message_of_many_megabytes_is_read(interpreter, log):
    python = interpreter("""
say(HELLO); hear()
text = b'{"kind":"Stage","body":{"name":"' + b"x" * 20_000_000 + b'"}}\\n'
while text: text = text[os.write(reports, text):]
for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        worker.go_on()
        message = worker.receive()
    assert isinstance(message, Stage)
    assert len(message.name) == 20_000_000


def test_what_a_worker_prints_goes_to_its_log(interpreter, log):
    log.write_text("earlier words\n")
    python = interpreter("""
os.write(1, b"to standard output\\n"); os.write(2, b"to standard error\\n"); say(HELLO); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
    assert log.read_text() == "earlier words\nto standard output\nto standard error\n"


def test_a_worker_has_a_quiet_environment_and_no_terminal(interpreter, log):
    python = interpreter("""
print(os.environ["DO_NOT_TRACK"], os.environ["PYTHONSAFEPATH"], repr(sys.stdin.read()), os.getsid(0) == os.getpid(), flush=True)
say(HELLO); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
    assert log.read_text() == "1 1 '' True\n"
    assert launcher.QUIET_ENVIRONMENT["VLLM_NO_USAGE_STATS"] == "1"


# --- no worker at all ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "cannot start the interpreter /no/such/python: No such file"),
        ("/dev/null", "cannot start the interpreter /dev/null: Permission denied"),
        ("/tmp", "cannot start the interpreter /tmp: Permission denied"),
        ("py\0thon", "embedded null byte"),
    ],
)
def test_an_interpreter_that_cannot_be_started_is_told(python, words, log):
    with pytest.raises(PluginError, match=words), Worker(python, log):
        pytest.fail("it started")


def test_a_log_that_cannot_be_written_is_told_as_that(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot write .*none/launch.log: No such file"):
        Worker(None, tmp_path / "none" / "launch.log").__enter__()


def test_running_out_of_file_descriptors_is_told(log, monkeypatch):
    make, made = os.pipe, []

    def pipe():
        if len(made) == 2:
            raise OSError(24, "Too many open files")
        made.append(make())
        return made[-1]

    monkeypatch.setattr(process_module.os, "pipe", pipe)
    with pytest.raises(PluginError, match="Too many open files"):
        Worker(None, log).__enter__()


def test_a_python_without_inferometer_is_told_with_what_to_do(tmp_path, log, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = str(bare / "bin" / "python")
    with pytest.raises(PluginError) as caught, Worker(python, log) as worker:
        worker.hello()
    words = str(caught.value)
    assert words.startswith(f"{python}: the worker did not start: the process ended with exit")
    assert "No module named" in words
    assert f"install Inferometer there: {python} -m pip install inferometer" in words


def test_another_wire_version_names_both(interpreter, log):
    other = encode(Hello(wire=WIRE_VERSION + 1, tool_version="9.9", python="3.99"))
    python = interpreter(f"say({other!r}); for_ever()")
    with pytest.raises(PluginError) as caught, Worker(python, log) as worker:
        worker.hello()
    assert f"wire version {WIRE_VERSION + 1}" in str(caught.value)
    assert f"speaks {WIRE_VERSION}:" in str(caught.value)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"Loading weights...\n", "do not speak alike"),
        (encode(Stage(name="load")), "did not say hello first"),
    ],
)
def test_a_program_that_is_no_worker_is_told(first, words, interpreter, log):
    python = interpreter(f"say({first!r}); for_ever()")
    with pytest.raises(PluginError, match=words), Worker(python, log) as worker:
        worker.hello()


def test_a_message_without_an_end_is_not_collected_for_ever(interpreter, log, monkeypatch):
    monkeypatch.setattr(process_module, "_LARGEST_MESSAGE_BYTES", 100_000)
    python = interpreter("say(HELLO)\nwhile True: say(b'x' * 4096)")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        worker.stage = "cold p512"
        with pytest.raises(PluginError, match="during cold p512 has no end"):
            worker.receive()


# --- silence ---------------------------------------------------------------------------------


def test_a_silent_worker_is_ended_at_the_idle_limit(interpreter, log):
    python = interpreter('print("weights: 3 %", flush=True); say(HELLO); for_ever()')

    def listen(worker: Worker) -> None:
        hurry(worker)
        worker.stage = "cold p512"
        worker.receive()

    failure = ended(Worker(python, log, limits=PATIENT), listen)
    assert failure.kind == "hung"
    assert failure.message == (
        "nothing was heard for 0.2 s during cold p512: the worker was ended (see --idle-limit)"
    )
    assert (failure.stage, failure.log_tail) == ("cold p512", ("weights: 3 %",))


def test_a_worker_that_babbles_is_ended_at_the_total_limit(interpreter, log):
    python = interpreter("""
say(HELLO)
while True: say(b'{"kind":"Stage","body":{"name":"again"}}\\n')
""")

    def listen(worker: Worker) -> None:
        worker.hello()
        worker._deadline = time.monotonic() + BRIEF_S
        while True:
            worker.receive()
            worker.stage = "again"

    failure = ended(Worker(python, log, limits=PATIENT), listen)
    assert failure.message == (
        "the launch took longer than 60 s during again: the worker was ended (see --launch-limit)"
    )


def test_a_worker_that_never_reads_does_not_hold_us_in_a_write(interpreter, log):
    python = interpreter("say(HELLO); for_ever()")
    order = Describe(options={"text": "x" * 1_000_000})

    def talk(worker: Worker) -> None:
        hurry(worker)
        worker.order(order)

    failure = ended(Worker(python, log, limits=PATIENT), talk)
    assert failure.kind == "hung"


def test_an_order_larger_than_the_pipe_is_written_as_it_is_read(interpreter, log):
    order = Describe(options={"text": "x" * 1_000_000})
    python = interpreter(f"""
say(HELLO)
left = {len(encode(order)) + 1}
while left: left -= len(hear())
say(b'{{"kind":"Stage","body":{{"name":"heard"}}}}\\n'); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        worker.order(order)
        assert worker.receive() == Stage(name="heard")


def test_a_pipe_that_is_full_after_all_is_tried_again(interpreter, log, monkeypatch):
    write, refused = os.write, []

    def write_later(fd: int, data: memoryview) -> int:
        if not refused:
            refused.append(fd)
            raise BlockingIOError
        return write(fd, data)

    python = interpreter("""
say(HELLO); hear(); say(b'{"kind":"Stage","body":{"name":"on"}}\\n'); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        monkeypatch.setattr(process_module.os, "write", write_later)
        worker.go_on()
        assert worker.receive() == Stage(name="on")
    assert refused


@pytest.mark.parametrize("limit", [1e300, float("inf")])
def test_a_limit_beyond_what_the_kernel_takes_is_no_limit(interpreter, log, limit):
    python = interpreter("say(HELLO); for_ever()")
    with Worker(python, log, limits=Limits(idle_s=limit, total_s=limit)) as worker:
        assert worker.hello().python == "3.99"


# --- death -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("os.kill(os.getpid(), 9)", ("killed", -9, "SIGKILL")),
        ("os.kill(os.getpid(), 6)", ("aborted", -6, "SIGABRT")),
        ("os.kill(os.getpid(), 11)", ("segfault", -11, "SIGSEGV")),
        ("os._exit(137)", ("killed", 137, "SIGKILL")),
        ("os._exit(134)", ("aborted", 134, "SIGABRT")),
        ("os._exit(139)", ("segfault", 139, "SIGSEGV")),
        ("os._exit(1)", ("engine_error", 1, None)),
        ("os._exit(0)", ("exited_early", 0, None)),
    ],
)
def test_a_dead_worker_is_told_with_how_it_died(last, told, interpreter, log):
    python = interpreter(f"say(HELLO); hear(); print('last words', flush=True); {last}")
    failure = ended(Worker(python, log, limits=PATIENT), after_hello)
    assert (failure.kind, failure.exit_code, failure.signal) == told
    assert failure.log_tail == ("last words",)


def test_a_dead_worker_is_told_with_what_its_log_gives_away(interpreter, log):
    python = interpreter("say(HELLO); hear(); print('n > n_batch', flush=True); os.abort()")
    known = (LogEvidence(pattern="n > n_batch", kind="prompt_too_long", hint="raise n_batch"),)
    failure = ended(Worker(python, log, limits=PATIENT, evidence=known), after_hello)
    assert (failure.kind, failure.signal) == ("prompt_too_long", "SIGABRT")


def test_a_worker_that_dies_before_it_is_told_to_go_on_is_told_as_dead(interpreter, log):
    python = interpreter("say(HELLO); os._exit(3)")

    def talk(worker: Worker) -> None:
        worker.hello()
        worker.finish()
        worker.order(Describe(options={"text": "x" * 1_000_000}))
        worker.receive()

    failure = ended(Worker(python, log, limits=PATIENT), talk)
    assert (failure.kind, failure.exit_code) == ("engine_error", 3)


def test_a_worker_that_closes_its_pipe_and_stays_is_ended(interpreter, log, monkeypatch):
    monkeypatch.setattr(process_module, "GRACE_S", 0.1)
    python = interpreter("say(HELLO); hear(); os.close(reports); for_ever()")
    failure = ended(Worker(python, log, limits=PATIENT), after_hello)
    assert failure.kind == "hung"
    assert failure.message == "the worker closed its pipe during start and did not end"
    assert (failure.exit_code, failure.signal) == (None, None)


# --- ending ----------------------------------------------------------------------------------


def test_a_worker_is_asked_to_end_before_it_is_killed(interpreter, log):
    python = interpreter("""
def leave(*_):
    print("asked", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, leave); say(HELLO); for_ever()
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
    assert log.read_text() == "asked\n"


def test_a_worker_that_will_not_end_is_killed(interpreter, log, monkeypatch):
    monkeypatch.setattr(group, "GRACE_S", 0.1)
    python = interpreter("signal.signal(signal.SIGTERM, signal.SIG_IGN); say(HELLO); for_ever()")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
    assert worker.end() == -signal.SIGKILL


def test_a_stopped_worker_is_killed(interpreter, log, monkeypatch):
    monkeypatch.setattr(group, "GRACE_S", 0.1)
    python = interpreter("say(HELLO); os.kill(os.getpid(), signal.SIGSTOP)")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        (child,) = psutil.Process().children()
        while child.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
    assert worker.end() == -signal.SIGKILL


LEAVING_CHILDREN = {
    "a child": "subprocess.Popen(['sleep', '600'])",
    "a child that ignores SIGTERM": (
        "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo ready; while :; do sleep 600; done'],"
        " stdout=subprocess.PIPE)"
    ),
    "a daemon in a session of its own": (
        "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    ),
}


@pytest.mark.parametrize("how", ["os._exit(0)", "for_ever()"], ids=["left", "ended"])
@pytest.mark.parametrize("child", LEAVING_CHILDREN.values(), ids=LEAVING_CHILDREN.keys())
def test_what_a_worker_started_goes_with_it(child, how, interpreter, log):
    python = interpreter(f"""
child = {child}
if child.stdout: child.stdout.readline()
print(child.pid, flush=True); say(HELLO); hear(); {how}
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        started = psutil.Process(int(log.read_text()))
        worker.go_on()
        if how.startswith("os"):
            worker.finish()
        assert is_alive(started)
    assert not is_alive(started)


@pytest.mark.parametrize("how", ["os._exit(0)", "for_ever()"], ids=["left", "ended"])
def test_a_system_without_waitid_ends_all_the_same(how, interpreter, log, monkeypatch):
    monkeypatch.delattr(group.os, "waitid")
    python = interpreter(f"""
print(subprocess.Popen(['sleep', '600']).pid, flush=True); say(HELLO); hear(); {how}
""")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        started = psutil.Process(int(log.read_text()))
        worker.go_on()
        if how.startswith("os"):
            worker.finish()
    assert not is_alive(started)
    assert worker.end() == (0 if how.startswith("os") else -signal.SIGTERM)


def test_a_parent_whose_children_are_reaped_by_the_kernel_ends_all_the_same(interpreter, log):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Worker(interpreter("say(HELLO); for_ever()"), log, limits=PATIENT) as worker:
            worker.hello()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert worker.end() == 0, "its exit code is not to be had"


def test_ending_twice_signals_nobody_the_second_time(interpreter, log, monkeypatch):
    python = interpreter("say(HELLO); for_ever()")
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
    monkeypatch.setattr(group.os, "killpg", lambda *_: pytest.fail("a signal was sent"))
    assert worker.end() == -signal.SIGTERM
    worker.finish()


def test_no_signal_is_sent_once_the_process_id_may_be_a_strangers(interpreter, log, monkeypatch):
    python = interpreter("say(HELLO); hear(); os._exit(0)")
    reaped_then = []
    killpg = os.killpg

    def watched(process_group: int, number: int) -> None:
        reaped_then.append(psutil.pid_exists(process_group))
        killpg(process_group, number)

    monkeypatch.setattr(group.os, "killpg", watched)
    with Worker(python, log, limits=PATIENT) as worker:
        worker.hello()
        worker.go_on()
        worker.finish()
    assert reaped_then == [True], "the dead leader was still there to hold its id"


def test_an_interrupt_while_ending_still_kills(interpreter, log, monkeypatch):
    python = interpreter("signal.signal(signal.SIGTERM, signal.SIG_IGN); say(HELLO); for_ever()")
    worker = Worker(python, log, limits=PATIENT).__enter__()
    worker.hello()

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(group.time, "sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.end()
    assert worker.end() == -signal.SIGKILL


def test_an_interrupt_while_starting_leaves_nothing(interpreter, log, monkeypatch):
    python = interpreter("say(HELLO); for_ever()")
    seen = []

    class Interrupted(group.Group):
        def __init__(self, leader, mark):
            seen.append(leader)
            super().__init__(leader, mark)

    def set_blocking(fd: int, blocking: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_module, "Group", Interrupted)
    monkeypatch.setattr(process_module.os, "set_blocking", set_blocking)
    with pytest.raises(KeyboardInterrupt), Worker(python, log, limits=PATIENT):
        pytest.fail("it started")
    assert seen[0].returncode == -signal.SIGTERM


def test_many_launches_leave_nothing_behind(log):
    for _ in range(3):
        with Worker(None, log, limits=PATIENT) as worker:
            worker.hello()


def test_a_worker_is_found_by_nobody_elses_mark(interpreter, log):
    python = interpreter("say(HELLO); for_ever()")
    with ExitStack() as stack:
        first = stack.enter_context(Worker(python, log, limits=PATIENT))
        second = stack.enter_context(Worker(python, log, limits=PATIENT))
        first.hello()
        second.hello()
        first.end()
        second.go_on()
        assert second.age_ns() > 0
        (child,) = psutil.Process().children()
        assert child.is_running()
