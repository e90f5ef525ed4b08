"""How llama-server is asked: every setting that changes the work is written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferometer import CacheMode, Request, Sampling, TokenPrompt, Unsupported
from inferometer_llama_cpp.events import FIELDS_WANTED

_NEUTRAL: Mapping[str, Any] = {
    "dynatemp_range": 0.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_n_sigma": -1.0,
    "typical_p": 1.0,
    "xtc_probability": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
}
"""The server's own defaults are not neutral, and differ between versions."""


def payload(request: Request) -> dict[str, Any]:
    """Return the body of a completion request.

    Raises:
        Unsupported: the prompt is messages; the server's template and ours could differ.
    """
    if not isinstance(request.prompt, TokenPrompt):
        raise Unsupported("llama-server is asked with token ids here, not with messages")
    return {
        "prompt": list(request.prompt.ids),
        "n_predict": request.max_output_tokens,
        "ignore_eos": request.ignore_eos,
        "cache_prompt": request.cache_mode is CacheMode.REUSE,
        "id_slot": 0,
        "stream": True,
        "return_tokens": True,
        "response_fields": FIELDS_WANTED,
        **_NEUTRAL,
        **_chosen(request.sampling),
    }


def _chosen(sampling: Sampling) -> dict[str, Any]:
    # Temperature 0 alone is no promise: a server whose list of samplers lacks it draws at
    # random. The likeliest token alone is greedy in every version.
    samplers, kept = (["top_k", "temperature"], 1) if sampling.greedy else (["temperature"], 0)
    return {
        "samplers": samplers,
        "top_k": kept,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
    }
