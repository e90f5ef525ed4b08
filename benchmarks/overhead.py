"""Decode rate and TTFT through worker, contract and clock against a bare loop, interleaved.

Same model, same prompt ids, one thread each, turn by turn, so that a busy machine hits both.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.launches import Shape, measure
from benchmarks.report import Line, spread
from inferometer import Context
from inferometer.metrics import SAMPLE_METRICS
from inferometer.prompts import PromptSource, PromptSpec, build_prompt
from inferometer.results import Results
from inferometer.suite import Subject

PROMPT_TOKENS = 256
OUTPUT_TOKENS = 64
WINDOW = 512


def run(model: Path, scratch: Path, rounds: int, python: str) -> Iterator[Line]:
    ids = _prompt_ids(model, scratch)
    ids_file = scratch / "ids.json"
    ids_file.write_text(json.dumps(ids))
    subject = Subject(
        name="ours",
        engine="llama-cpp",
        model=model,
        # What the bare loop leaves at the binding's own defaults is set the same here.
        options={
            "threads": 1,
            "threads_batch": 1,
            "context_tokens": WINDOW,
            "gpu_layers": 0,
            "flash_attention": "off",
        },
        python=python,
    )
    bare, ours = [], []
    with _bare_loop(model, ids_file, python) as ask:
        ask()  # a warm-up, as the worker has one
        for number in range(rounds):
            bare.append(ask())
            shape = Shape(ids=ids, output_tokens=OUTPUT_TOKENS)
            results = measure(subject, shape, scratch / f"overhead{number}")
            ours.append(_figures(results))
    yield from _compared(bare, ours)


def _compared(bare: list[dict[str, float]], ours: list[dict[str, float]]) -> Iterator[Line]:
    for name, figures in (("bare loop", bare), ("inferometer", ours)):
        yield Line(f"{name}: decode", f"{spread([f['decode'] for f in figures], 4)} tok/s", "")
        yield Line(f"{name}: TTFT", f"{spread([1e3 * f['ttft'] for f in figures], 4)} ms", "")
    rate = median(f["decode"] for f in ours) / median(f["decode"] for f in bare)
    paired = [o["decode"] / b["decode"] for o, b in zip(ours, bare, strict=True)]
    yield Line(
        "decode, ours / bare",
        f"{rate:.4f} of medians; paired {spread(paired, 4)}",
        "within 1 %",
    )
    late = 1e3 * (median(f["ttft"] for f in ours) - median(f["ttft"] for f in bare))
    gaps = [1e3 * (o["ttft"] - b["ttft"]) for o, b in zip(ours, bare, strict=True)]
    found = f"{late:.2f} ms of medians; paired {spread(gaps)} ms"
    yield Line("TTFT, ours - bare", found, "within 2 ms")


def _figures(results: Results) -> dict[str, float]:
    by_id = {metric.id: metric for metric in SAMPLE_METRICS}
    (sample,) = [s for s in results.samples if not s.warmup]
    return {
        "decode": by_id["decode_rate"].compute(sample),
        "ttft": by_id["ttft"].compute(sample),
    }


@contextmanager
def _bare_loop(
    model: Path, ids_file: Path, python: str
) -> Iterator[Callable[[], dict[str, float]]]:
    script = Path(__file__).with_name("bare_llama_cpp.py")
    command = [python, str(script), "--model", str(model), "--ids", str(ids_file)]
    command += ["--output-tokens", str(OUTPUT_TOKENS), "--threads", "1", "--context", str(WINDOW)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:

        def ask() -> dict[str, float]:
            process.stdin.write("\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            rate = (answer["tokens"] - 1) / (answer["decode_ns"] / 1e9)
            return {"decode": rate, "ttft": answer["ttft_ns"] / 1e9}

        yield ask
        process.stdin.close()


def _prompt_ids(model: Path, scratch: Path) -> tuple[int, ...]:
    """Return natural text under the model's template, tokenised by the embedded server."""
    from inferometer_llama_cpp.server import ServerOptions, create

    context = Context(context_tokens=WINDOW, log_path=scratch / "ids.log", cache_dir=scratch)
    engine = create(ServerOptions(threads=1), context)
    try:
        engine.prepare(model)
        engine.load()
        identity = engine.identify()
        spec = PromptSpec(source=PromptSource.CHAT, tokens=PROMPT_TOKENS)
        return build_prompt(
            spec,
            tokenizer=engine,
            facts=identity.tokenizer,
            chat_template=identity.chat_template,
            salt="bench",
        ).ids
    finally:
        engine.unload()
