"""A server child is noticed when it dies, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from inferometer import EngineError, LogEvidence
from inferometer.serving import ServerProcess, free_port, port_in_use
from support.http_server import LIMIT_S

FOREVER = "import threading; threading.Event().wait()"


def never() -> bool:
    return False


@pytest.fixture
def log(tmp_path):
    return tmp_path / "server.log"


@pytest.fixture
def start(log):
    started = []

    def run(code: str, **options) -> ServerProcess:
        process = ServerProcess.start([sys.executable, "-c", code], log, **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.stop()


def death_of(process: ServerProcess) -> EngineError:
    with pytest.raises(EngineError) as caught:
        process.wait_ready(never, LIMIT_S)
    return caught.value


# --- ports ---------------------------------------------------------------------------------


def test_a_free_port_can_be_listened_on():
    port = free_port()
    assert not port_in_use(port)
    with socket.create_server(("127.0.0.1", port)):
        assert port_in_use(port)


def test_a_port_taken_on_every_address_is_in_use():
    with socket.create_server(("", 0)) as everywhere:
        assert port_in_use(everywhere.getsockname()[1])


def test_a_port_held_without_listening_is_in_use():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert port_in_use(held.getsockname()[1])


# --- waiting -------------------------------------------------------------------------------


def test_waiting_ends_when_the_check_says_yes(start):
    answers = iter([False, False, True])
    start(FOREVER).wait_ready(lambda: next(answers), LIMIT_S)
    assert next(answers, "all asked") == "all asked"


def test_a_death_while_waiting_is_noticed_at_once(start):
    began = time.monotonic()
    error = death_of(start("raise SystemExit(3)"))
    assert time.monotonic() - began < LIMIT_S / 2
    assert (error.kind, error.fatal) == ("engine_error", True)
    assert error.detail["exit_code"] == 3


def test_an_early_exit_without_error_is_a_death_too(start):
    assert death_of(start("pass")).kind == "exited_early"


def test_the_error_carries_the_end_of_the_log(start):
    error = death_of(
        start("print('weights found', flush=True); raise SystemExit('no room for tensor 7')")
    )
    assert error.detail["log_tail"] == ["weights found", "no room for tensor 7"]
    assert "(from its log: no room for tensor 7)" in str(error)


def test_a_caller_may_know_which_line_tells_more(start):
    process = start("print('first cause'); print('goodbye'); raise SystemExit(1)")
    with pytest.raises(EngineError, match="from its log: first cause"):
        process.wait_ready(never, LIMIT_S, reason=lambda tail: tail[0])


def test_the_log_is_appended_to_and_only_our_part_of_it_is_evidence(start, log):
    log.write_text("an earlier launch\n")
    process = start("print('this one')")
    error = death_of(process)
    assert log.read_text() == "an earlier launch\nthis one\n"
    assert process.log() == "this one\n"
    assert error.detail["log_tail"] == ["this one"]


def test_a_long_log_is_shown_by_its_end(start):
    error = death_of(start("for n in range(9999): print('line', n)"))
    assert error.detail["log_tail"][-1] == "line 9998"
    assert len(error.detail["log_tail"]) == 40


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (signal.SIGKILL, "killed"),
        (signal.SIGSEGV, "segfault"),
        (signal.SIGABRT, "aborted"),
        (signal.SIGTERM, "terminated"),
    ],
)
def test_the_signal_that_ended_it_names_the_kind(start, number, kind):
    error = death_of(start(f"import os; os.kill(os.getpid(), {number.value})"))
    assert error.kind == kind
    assert error.detail["signal"] == number.name


def test_words_of_the_log_name_the_kind_better_than_the_exit(start):
    evidence = LogEvidence(pattern="cannot map", kind="out_of_memory", hint="use a smaller model")
    error = death_of(start("print('cannot map 9 GB'); exit(1)", evidence=[evidence]))
    assert error.kind == "out_of_memory"
    assert "use a smaller model" in str(error)


def test_a_server_that_is_never_ready_is_given_up(start):
    process = start(f"print('loading 1 %', flush=True); {FOREVER}")
    with pytest.raises(EngineError, match=r"not ready after 0.05 s") as caught:
        process.wait_ready(never, limit_s=0.05)
    assert (caught.value.kind, caught.value.fatal) == ("not_ready", True)
    assert process.alive


def test_a_program_that_is_not_there_cannot_be_started(log):
    with pytest.raises(EngineError, match="/no/such/server cannot be started") as caught:
        ServerProcess.start(["/no/such/server"], log)
    assert caught.value.kind == "not_startable"


# --- dying later ---------------------------------------------------------------------------


def test_asking_a_living_server_says_nothing(start):
    start(FOREVER).raise_if_dead("a request")


def test_a_death_is_blamed_with_what_was_being_done(start):
    process = start(FOREVER)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="SIGKILL during a request") as caught:
        process.raise_if_dead("a request", within_s=LIMIT_S)
    assert (caught.value.kind, caught.value.fatal) == ("killed", True)


# --- failing while alive -------------------------------------------------------------------


def vague() -> EngineError:
    return EngineError("it broke off", kind="server_error", detail={"code": 500})


def test_a_failure_of_a_living_server_is_explained_by_what_it_logged_since(start, log):
    process = start(FOREVER)
    mark = process.log_end()
    with log.open("a") as more:
        more.write("first\nCUDA out of memory: 9 GiB\n")
    error = process.explained(vague(), mark)
    assert (error.kind, error.fatal) == ("gpu_out_of_memory", True)
    assert "it broke off" in str(error)
    assert "from its log: CUDA out of memory: 9 GiB" in str(error)
    assert (error.detail["code"], error.detail["log_tail"][0]) == (500, "first")


def test_what_was_logged_before_the_request_explains_nothing(start, log):
    process = start(FOREVER)
    with log.open("a") as more:
        more.write("CUDA out of memory\n")
    error = vague()
    assert process.explained(error, process.log_end()) is error
    assert not error.fatal


# --- stopping ------------------------------------------------------------------------------


def test_stop_leaves_no_process_and_may_be_called_again(start):
    process = start(FOREVER)
    process.stop()
    assert not psutil.pid_exists(process.pid)
    assert not process.alive
    process.stop()


def test_stop_kills_one_that_will_not_listen(start, log):
    process = start(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"print('deaf', flush=True); {FOREVER}"
    )
    process.wait_ready(lambda: "deaf" in log.read_text(), LIMIT_S)
    process.stop(grace_s=0.05)
    assert not psutil.pid_exists(process.pid)


def test_leaving_the_with_block_stops(log):
    with ServerProcess.start([sys.executable, "-c", FOREVER], log) as process:
        assert process.alive
    assert not process.alive


def test_a_child_stays_in_our_process_group(start):
    assert os.getpgid(start(FOREVER).pid) == os.getpgrp()


PARENT = f"""
import sys
from pathlib import Path
from inferometer.serving import ServerProcess
child = ServerProcess.start([sys.executable, "-c", "import sys; sys.stdin.read()"], Path(sys.argv[1]))
print(child.pid, flush=True)
{FOREVER}
"""


def test_a_child_that_reads_its_input_ends_when_its_parent_is_killed(log):
    argv = [sys.executable, "-c", PARENT, log]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert ended(child)


def ended(process: psutil.Process) -> bool:
    # An orphan nobody reaps stays a zombie, which runs nothing.
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
    return False
