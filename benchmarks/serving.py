"""What HTTP adds to the first token: the client's TTFT minus the server's own prefill time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.launches import Shape, measure
from benchmarks.report import Line, spread
from inferometer.metrics import SAMPLE_METRICS
from inferometer.suite import Subject

PROMPT_TOKENS = 256
OUTPUT_TOKENS = 16


def run(model: Path, scratch: Path, rounds: int) -> Iterator[Line]:
    subject = Subject(name="server", engine="llama-server", model=model, options={"threads": 1})
    shape = Shape(prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS)
    results = measure(subject, shape, scratch / "serving", rounds=rounds)
    outside = next(m for m in SAMPLE_METRICS if m.id == "ttft_outside_prefill")
    values = [1e3 * outside.compute(s) for s in results.samples if not s.warmup]
    yield Line("llama-server: TTFT minus prompt_ms", f"{spread(values)} ms", "5 ms at the median")
