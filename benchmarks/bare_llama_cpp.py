"""The plainest honest loop over llama-cpp-python, to hold Inferometer's figures against.

No line of Inferometer is used. Each line on standard input is one request: the prompt is
evaluated anew, and one line of JSON comes out. Reading requests one by one lets another program
alternate them with its own, so that both see the same machine::

    echo | python bare_llama_cpp.py --model M.gguf --ids prompt.json --output-tokens 64

    {"ttft_ns": 1130400211, "decode_ns": 512042118, "tokens": 64, "ids": [198, 504, ...]}

``ttft_ns`` runs from the call of ``generate`` to its first token, ``decode_ns`` from the first
token to the last: ``tokens - 1`` steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from llama_cpp import Llama


def measure(model: Llama, prompt: list[int], output_tokens: int) -> dict[str, object]:
    """Run one cold greedy request."""
    ids: list[int] = []
    stamps: list[int] = []
    now = time.perf_counter_ns
    model.reset()
    started = now()
    for token in model.generate(prompt, top_k=1, temp=0.0, repeat_penalty=1.0):
        stamps.append(now())
        ids.append(token)
        if len(ids) == output_tokens:
            break
    return {
        "ttft_ns": stamps[0] - started,
        "decode_ns": stamps[-1] - stamps[0],
        "tokens": len(ids),
        "ids": ids,
    }


def answers(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Load the model and answer each line of standard input."""
    prompt = json.loads(arguments.ids.read_text())
    model = Llama(
        model_path=str(arguments.model),
        n_ctx=arguments.context,
        n_threads=arguments.threads,
        n_threads_batch=arguments.threads,
        n_gpu_layers=arguments.gpu_layers,
        flash_attn=arguments.flash_attention == "on",
        verbose=False,
    )
    gc.collect()
    gc.disable()
    for _ in sys.stdin:
        yield measure(model, prompt, arguments.output_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure llama-cpp-python without Inferometer.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True, help="JSON array: the prompt's ids")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--gpu-layers", type=int, default=0, help="-1 is all")
    parser.add_argument("--flash-attention", choices=("on", "off"), default="off")
    for answer in answers(parser.parse_args()):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
