"""What the caller saw, on the core's clock. What each metric means, `requests` says."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from inferometer.judge import content_arrivals, gaps_ns, one_token_each, output_tokens
from inferometer.metrics.definition import NS_PER_S, Undefined
from inferometer.results import ArrivalKind, Sample


def _content(sample: Sample) -> Sequence[int]:
    positions = content_arrivals(sample)
    if not positions:
        raise Undefined("no_content")
    return positions


def per_second(count: float, ns: int) -> float:
    """Return a rate, unless no time passed."""
    if ns <= 0:
        raise Undefined("no_time_passed")
    return count * NS_PER_S / ns


def ttft_ns(sample: Sample) -> int:
    return sample.arrivals.offsets_ns[_content(sample)[0]]


def ttft(sample: Sample) -> float:
    return ttft_ns(sample) / NS_PER_S


def ttfa(sample: Sample) -> float:
    kinds = sample.arrivals.kinds
    position = kinds.find(ArrivalKind.ANSWER)
    if ArrivalKind.TOKENS in kinds[: position if position >= 0 else None]:
        raise Undefined("kind_unknown")
    if position < 0:
        raise Undefined("no_answer")
    return sample.arrivals.offsets_ns[position] / NS_PER_S


def ttfe(sample: Sample) -> float:
    if not sample.arrivals.offsets_ns:
        raise Undefined("no_events")
    return sample.arrivals.offsets_ns[0] / NS_PER_S


def e2e_ns(sample: Sample) -> int:
    return sample.arrivals.offsets_ns[_content(sample)[-1]]


def e2e(sample: Sample) -> float:
    return e2e_ns(sample) / NS_PER_S


def decode_rate(sample: Sample) -> float:
    return per_second(_tokens_after_first(sample), _decode_ns(sample))


def tpot(sample: Sample) -> float:
    decode_rate(sample)  # undefined together
    return _decode_ns(sample) / _tokens_after_first(sample) / NS_PER_S


def _decode_ns(sample: Sample) -> int:
    return e2e_ns(sample) - ttft_ns(sample)


def _tokens_after_first(sample: Sample) -> int:
    """Return n_out - n_1, an end token that was counted but never arrived left out."""
    positions = _content(sample)
    arrived, first = _arrived(sample, positions)
    if arrived == 1:
        raise Undefined("one_token")
    if first is None:
        raise Undefined("one_arrival" if len(positions) == 1 else "first_count_unknown")
    if arrived <= first:
        raise Undefined("one_arrival")
    return arrived - first


def _arrived(sample: Sample, positions: Sequence[int]) -> tuple[int, int | None]:
    """Return how many tokens arrived, and how many of them in the first arrival, if known."""
    counts, produced = sample.arrivals.tokens, output_tokens(sample)
    if counts is not None:
        return sum(counts), counts[positions[0]]
    if produced is None:
        raise Undefined("output_count_unknown")
    return (len(positions), 1) if one_token_each(sample) else (produced, None)


def itl(sample: Sample) -> float:
    typical, counts = inter_arrival(sample), sample.arrivals.tokens
    if counts is None and not one_token_each(sample):
        unknown = output_tokens(sample) is None
        raise Undefined("output_count_unknown" if unknown else "several_per_arrival")
    if counts is not None and any(counts[position] != 1 for position in _content(sample)):
        raise Undefined("several_per_arrival")
    return typical


def inter_arrival(sample: Sample) -> float:
    positions = _content(sample)
    if len(positions) == 1:
        raise Undefined("one_token" if output_tokens(sample) == 1 else "one_arrival")
    return median(gaps_ns(sample)) / NS_PER_S


def new_tokens(sample: Sample) -> int | None:
    cached = sample.ending.cached_prompt_tokens if sample.ending else None
    return None if cached is None else sample.prompt_tokens - cached


def prefill_rate_bound(sample: Sample) -> float:
    new = new_tokens(sample)
    if new is None:
        raise Undefined("prompt_count_unknown")
    if new <= 0:
        raise Undefined("nothing_prefilled")
    return per_second(new, ttft_ns(sample))


def generated_tokens(sample: Sample) -> float:
    produced = output_tokens(sample)
    if produced is None:
        raise Undefined("output_count_unknown")
    return produced
