"""What the engine says about itself, and what is left of our time beside it."""

from __future__ import annotations

from inferometer.metrics.definition import NS_PER_S, Undefined
from inferometer.metrics.seen import new_tokens, per_second, ttft_ns
from inferometer.results import Ending, Sample


def _reported(value: int | None) -> int:
    if value is None:
        raise Undefined("not_reported")
    return value


def _ending(sample: Sample) -> Ending:
    if sample.ending is None:
        raise Undefined("not_reported")
    return sample.ending


def _queue_ns(sample: Sample) -> int:
    return _reported(_ending(sample).timings.queue_ns)


def _prefill_ns(sample: Sample) -> int:
    return _reported(_ending(sample).timings.prefill_ns)


def _decode_ns(sample: Sample) -> int:
    return _reported(_ending(sample).timings.decode_ns)


def queue_time(sample: Sample) -> float:
    return _queue_ns(sample) / NS_PER_S


def engine_prefill_time(sample: Sample) -> float:
    return _prefill_ns(sample) / NS_PER_S


def engine_decode_time(sample: Sample) -> float:
    return _decode_ns(sample) / NS_PER_S


def prefill_rate(sample: Sample) -> float:
    tokens, new = _reported(_ending(sample).timings.prefill_tokens), new_tokens(sample)
    if tokens <= 0:
        raise Undefined("nothing_prefilled")
    # Every engine computes at least the last token of a prompt, whatever it had cached.
    if new is not None and tokens > max(new, 1):
        raise Undefined("prefill_count_contradicted")
    return per_second(tokens, _prefill_ns(sample))


def engine_decode_rate(sample: Sample) -> float:
    steps = _reported(_ending(sample).timings.decode_steps)
    if steps < 1:
        raise Undefined("one_token")
    return per_second(steps, _decode_ns(sample))


def cached_tokens(sample: Sample) -> float:
    return _reported(_ending(sample).cached_prompt_tokens)


def cache_hit_ratio(sample: Sample) -> float:
    cached = cached_tokens(sample)
    if not sample.prompt_tokens:
        raise Undefined("prompt_count_unknown")
    return cached / sample.prompt_tokens


def serving_overhead(sample: Sample) -> float:
    return (ttft_ns(sample) - _queue_ns(sample) - _prefill_ns(sample)) / NS_PER_S


def ttft_outside_prefill(sample: Sample) -> float:
    return (ttft_ns(sample) - _prefill_ns(sample)) / NS_PER_S
