"""Run every benchmark and print what it must reach beside what it reached.

Nothing here asserts: timings of a shared machine are read by a person.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import large_results, overhead, serving, startup
from benchmarks.report import Line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--llama-cpp-python", help="interpreter that has llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of interleaved requests")
    parser.add_argument("--only", choices=("startup", "show", "serving", "overhead"))
    args = parser.parse_args()
    model = args.model.resolve()
    with tempfile.TemporaryDirectory(prefix="inferometer-bench-") as scratch:
        for name, lines in _parts(args, model, Path(scratch)).items():
            if args.only in (None, name):
                for line in lines():
                    print(line, flush=True)


def _parts(
    args: argparse.Namespace, model: Path, scratch: Path
) -> dict[str, Callable[[], Iterable[Line]]]:
    return {
        "startup": startup.run,
        "show": lambda: large_results.run(model, scratch),
        "serving": lambda: serving.run(model, scratch, args.rounds),
        "overhead": lambda: (
            overhead.run(model, scratch, args.rounds, args.llama_cpp_python)
            if args.llama_cpp_python
            else [Line("overhead", "skipped: name --llama-cpp-python", "")]
        ),
    }


main()
