"""What the performance counters of a llama.cpp context mean, and when they mean nothing.

Three traps, all seen in ``llama_context::synchronize`` and ``perf_get_data``:

- Work is booked by the number of tokens queued at a synchronisation: exactly one is a decode
  step, more are prompt. A prompt of which one token is left to compute is booked as decode.
- Both counts are floored at 1: an idle context shows one prompt token and one step, in no time.
- ``t_load_ms`` is overwritten by the first evaluation, and counts idle time: it is not read.

So a request is cut in two at the end of its prefill, where the counters are read once: all they
hold then is prefill, all they gain later is decode, whichever book llama.cpp put it in. The
number of tokens in each part is known to us; where the counters disagree, no time is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from inferometer import Timings

SOURCE = "llama_perf_context, cut at the end of prefill"
CLOCK = "ggml_time_us (monotonic, steps of 1 us)"

_US_PER_MS = 1_000
_NS_PER_US = 1_000


@frozen(kw_only=True)
class Counters:
    """The counters of one moment, untouched; times in milliseconds since the last reset."""

    t_p_eval_ms: float
    t_eval_ms: float
    n_p_eval: int
    n_eval: int
    n_reused: int
    """Compute graphs that were reused; not prompt tokens."""

    @classmethod
    def read(cls, data: Any) -> Counters:
        """Return a copy of a ``llama_perf_context_data``."""
        return cls(
            t_p_eval_ms=data.t_p_eval_ms,
            t_eval_ms=data.t_eval_ms,
            n_p_eval=data.n_p_eval,
            n_eval=data.n_eval,
            n_reused=data.n_reused,
        )

    @property
    def tokens(self) -> int:
        """Tokens evaluated, in whichever book, without the floors."""
        return _unfloored(self.n_p_eval, self.t_p_eval_ms) + _unfloored(self.n_eval, self.t_eval_ms)

    @property
    def elapsed_ns(self) -> int:
        """Time spent on them, in nanoseconds; the clock steps in microseconds."""
        return round((self.t_p_eval_ms + self.t_eval_ms) * _US_PER_MS) * _NS_PER_US

    def raw(self, prefix: str = "") -> dict[str, float | int]:
        """Return the counters as llama.cpp gives them, the unit last in each key."""
        return {
            f"{prefix}t_p_eval_ms": self.t_p_eval_ms,
            f"{prefix}t_eval_ms": self.t_eval_ms,
            f"{prefix}n_p_eval_tokens": self.n_p_eval,
            f"{prefix}n_eval_tokens": self.n_eval,
            f"{prefix}n_reused_graphs": self.n_reused,
        }


def timings(prefilled: Counters, ended: Counters, *, computed: int, outputs: int) -> Timings:
    """Return what llama.cpp says about one request.

    Args:
        prefilled: the counters when the prompt had been computed.
        ended: the counters after the last token.
        computed: prompt tokens that were not reused.
        outputs: tokens that came out; the first is sampled from the prefill, so that each
            further one took a decode step.
    """
    steps = outputs - 1
    trusted_prefill = prefilled.tokens == computed
    trusted_decode = trusted_prefill and ended.tokens - prefilled.tokens == steps
    decode_ns = ended.elapsed_ns - prefilled.elapsed_ns
    return Timings(
        prefill_ns=prefilled.elapsed_ns if trusted_prefill else None,
        prefill_tokens=computed if trusted_prefill else None,
        decode_ns=decode_ns if trusted_decode and steps else None,
        decode_steps=steps if trusted_decode else None,
        source=SOURCE,
        clock=CLOCK,
    )


def raw(prefilled: Counters, ended: Counters) -> Mapping[str, float | int]:
    """Return both readings for the record."""
    return {**prefilled.raw("prefilled_"), **ended.raw("ended_")}


def _unfloored(count: int, ms: float) -> int:
    return 0 if count == 1 and ms == 0 else count
