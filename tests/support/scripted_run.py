"""Runs of the scripted engine: through the runner, or through the command line."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from inferometer import runner
from inferometer.launcher import Limits
from inferometer.results import Results
from inferometer.suite import Condition, Subject, Suite, Workload
from inferometer.survey import survey
from support import gguf_bytes

SUITE = Suite(
    name="small",
    rounds=1,
    seed=7,
    workloads=(
        Workload(name="short", prompt_tokens=64, output_tokens=4),
        Workload(name="longer", prompt_tokens=90, output_tokens=4),
    ),
)
"""Two cells of four conditions; a launch of it sends nine requests."""

LIMITS = Limits(idle_s=60.0, total_s=120.0)
"""Far longer than anything takes here, and short enough for a test that would wait for ever."""

CHILD_LIMIT_S = 60.0


def one_cell(*conditions: Condition, **changes: Any) -> Suite:
    """Return a suite of one cell without warm-up."""
    parts: dict[str, Any] = {"name": "only", "prompt_tokens": 64, "output_tokens": 3, "warmup": 0}
    workload = Workload(**{**parts, **changes})
    return Suite(name="one", rounds=1, conditions=conditions, workloads=(workload,))


def model_file(folder: Path) -> Path:
    """Return the model that every subject of the folder loads."""
    path = folder / "model.gguf"
    if not path.exists():
        path.write_bytes(gguf_bytes.gguf())
    return path


def subject(folder: Path, name: str = "scripted", **options: Any) -> Subject:
    """Return a subject; what it is given goes to the scripted engine's options."""
    return Subject(name=name, engine="scripted", model=model_file(folder), options=options)


def planned(
    folder: Path,
    suite: Suite,
    subjects: Sequence[Subject],
    *,
    limits: Limits = LIMITS,
    order_seed: int = 0,
) -> runner.Run:
    """Return a run that is about to begin."""
    found = survey(subjects)
    return runner.create(
        folder / "run",
        suite,
        found.records,
        rounds=suite.rounds,
        order_seed=order_seed,
        evidence=found.evidence,
        limits=limits,
    )


def measured(folder: Path, suite: Suite, *subjects: Subject, **how: Any) -> Results:
    """Run a suite and return what came of it."""
    return runner.execute(planned(folder, suite, subjects, **how))


def arguments(*words: object) -> list[str]:
    """Return a command line of this project."""
    return [sys.executable, "-m", "inferometer", *map(str, words)]


def command(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        arguments(*words), capture_output=True, text=True, timeout=CHILD_LIMIT_S, check=False, **how
    )


def started(*words: object) -> subprocess.Popen[str]:
    """Start a command; it takes no part in signals that this terminal gets."""
    return subprocess.Popen(
        arguments(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def fifo(folder: Path, name: str = "told") -> Path:
    """Return a pipe in the file system: who reads it waits until somebody writes."""
    path = folder / name
    os.mkfifo(path)
    return path


def told(path: Path) -> psutil.Process:
    """Wait until a process tells its id through a pipe, and return it."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        assert waiting.poll(CHILD_LIMIT_S * 1000), "nobody told anything"
        return psutil.Process(int(os.read(fd, 64)))
    finally:
        os.close(fd)


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_gone(process: psutil.Process) -> bool:
    """Return whether a process ends by itself; whoever asks waits for that, but not for ever."""
    give_up = time.monotonic() + CHILD_LIMIT_S
    while is_alive(process) and time.monotonic() < give_up:
        time.sleep(0.01)
    return not is_alive(process)


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send a signal to a command, wait for its end, and return exit code and words."""
    process.send_signal(number)
    _, words = process.communicate(timeout=CHILD_LIMIT_S)
    return process.returncode, words
