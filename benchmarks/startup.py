"""Start-up of the command line against a bare interpreter, interleaved."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.report import Line

RUNS = 25
_BIN = Path(sys.executable).parent

COMMANDS = {
    "python3 -c pass": [sys.executable, "-c", "pass"],
    "inferometer --help": [str(_BIN / "inferometer"), "--help"],
    "inferometer engines": [str(_BIN / "inferometer"), "engines"],
}
_WANTED = {"inferometer --help": 6, "inferometer engines": 12}


def run() -> Iterator[Line]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            seconds[name].append(_timed(command))
    bare = median(seconds["python3 -c pass"])
    yield Line("python3 -c pass", f"{1e3 * bare:.1f} ms", "")
    for name, limit in _WANTED.items():
        took = median(seconds[name])
        yield Line(name, f"{1e3 * took:.1f} ms, {took / bare:.1f}x bare", f"{limit}x")


def _timed(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun
