"""`inferometer show` on a results file with 10,000 samples: time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve

from benchmarks.launches import Shape, measure
from benchmarks.report import Line, spread
from inferometer.codec import to_json
from inferometer.suite import Subject

SAMPLES = 10_000
OUTPUT_TOKENS = 64
RUNS = 3


def run(model: Path, scratch: Path) -> Iterator[Line]:
    subject = Subject(name="server", engine="llama-server", model=model, options={"threads": 1})
    shape = Shape(prompt_tokens=64, output_tokens=OUTPUT_TOKENS)
    results = measure(subject, shape, scratch / "large")
    (sample,) = [s for s in results.samples if not s.warmup]
    many = tuple(evolve(sample, round=number, request_id=f"x{number}") for number in range(SAMPLES))
    file = scratch / "large.json"
    file.write_bytes(to_json(evolve(results, samples=many)))
    runs = [_show(file) for _ in range(RUNS)]
    size = file.stat().st_size / 1e6
    what = f"show, {SAMPLES} samples of {OUTPUT_TOKENS} tokens ({size:.0f} MB)"
    yield Line(f"{what}: time", f"{spread([seconds for seconds, _ in runs])} s", "2 s")
    yield Line(f"{what}: memory", f"{spread([mb for _, mb in runs])} MB", "300 MB")


def _show(file: Path) -> tuple[float, float]:
    """Return wall seconds and peak resident MB of one `show`."""
    command = [str(Path(sys.executable).parent / "inferometer"), "show", str(file)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"show failed with {process.returncode}")
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - begun, usage.ru_maxrss * unit / 1e6
