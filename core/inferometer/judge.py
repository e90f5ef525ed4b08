"""Whether a sample may count, and what a reader must know about it: one table of rules.

Nothing is dropped silently: a sample that may not count stays in the results, is counted as
excluded, and says why. Judging happens when results are read, so a rule can be mended later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import sub
from statistics import median

from attrs import frozen

from inferometer.engine import CacheMode, FinishReason
from inferometer.results import ArrivalKind, Ending, Sample

OVERHEAD_FACTOR = 100
"""A sample whose median gap is under this many times our own cost per arrival is flagged."""

FEW_TOKENS = 16
"""Fewer processed prompt tokens than this give a prefill rate that says little."""

_STOPPED = {
    FinishReason.STOP_EOS,
    FinishReason.STOP_TOKEN,
    FinishReason.STOP_STRING,
    FinishReason.REPETITION,
}


@frozen(kw_only=True)
class Verdict:
    """What became of a sample."""

    excluded: str | None = None
    """Why no number may be made of it: a key of ``EXCLUSIONS``, or ``failed: kind``."""
    short: str | None = None
    """Why no number that depends on the output's length may be made of it."""
    flags: tuple[str, ...] = ()


def judge(sample: Sample, *, overhead_ns: int | None = None) -> Verdict:
    """Return whether a sample counts, and its flags."""
    if sample.failure:
        return Verdict(excluded=f"failed: {sample.failure.kind}")
    if sample.ending is None:
        return Verdict(excluded="no_ending")
    facts = _facts(sample, sample.ending, overhead_ns)
    shortcomings = _holding(_SHORTENING, facts)
    return Verdict(
        excluded=next(iter(_holding(_EXCLUDING, facts)), None),
        # Where the length was the model's to choose, a short answer is an answer.
        short=shortcomings[0] if shortcomings and sample.ignore_eos else None,
        flags=(*shortcomings, *_holding(_TELLING, facts)),
    )


def output_tokens(sample: Sample) -> int | None:
    """Return how many tokens were generated: the engine's total, its counts, its ids, or None."""
    if sample.ending and sample.ending.output_tokens is not None:
        return sample.ending.output_tokens
    if sample.arrivals.tokens is not None:
        return sum(sample.arrivals.tokens)
    return None if sample.output_ids is None else len(sample.output_ids)


def content_arrivals(sample: Sample) -> Sequence[int]:
    """Return the positions of the arrivals that carry generated content."""
    if ArrivalKind.EVENT not in sample.arrivals.kinds:  # nearly always: spare the look at each
        return range(len(sample.arrivals.kinds))
    return [i for i, kind in enumerate(sample.arrivals.kinds) if kind != ArrivalKind.EVENT]


def gaps_ns(sample: Sample) -> list[int]:
    """Return the times between arrivals with content, one fewer than there are."""
    offsets, positions = sample.arrivals.offsets_ns, content_arrivals(sample)
    whole = len(positions) == len(offsets)
    times = offsets if whole else tuple(offsets[position] for position in positions)
    return list(map(sub, times[1:], times))


def one_token_each(sample: Sample) -> bool:
    """Return whether arrivals without counts may be taken to hold one token each.

    There are as many as tokens; where the engine stopped by itself, its end token may be
    counted without having arrived.
    """
    produced = output_tokens(sample)
    if sample.arrivals.tokens is not None or not produced:
        return False
    return produced - len(content_arrivals(sample)) in _may_be_missing(sample)


def _may_be_missing(sample: Sample) -> tuple[int, ...]:
    """Return how many tokens may be counted without having arrived: an end token, or none."""
    stopped = sample.ending is not None and sample.ending.reason in _STOPPED
    return (0, 1) if stopped else (0,)


# --- what the rules look at ----------------------------------------------------------------


@frozen(kw_only=True)
class _Facts:
    sample: Sample
    ending: Ending
    overhead_ns: int | None
    positions: Sequence[int]
    """Of the arrivals with content."""
    produced: int | None
    arrived: int | None
    """How many tokens came in some arrival, as far as that is known."""

    @property
    def cached(self) -> int | None:
        return self.ending.cached_prompt_tokens

    @property
    def stopped(self) -> bool:
        return self.ending.reason in _STOPPED

    @property
    def complete(self) -> bool:
        return self.produced is not None and self.produced >= self.sample.max_output_tokens

    @property
    def known_short(self) -> bool:
        return self.produced is not None and not self.complete


def _facts(sample: Sample, ending: Ending, overhead_ns: int | None) -> _Facts:
    positions, counts = content_arrivals(sample), sample.arrivals.tokens
    assumed = len(positions) if one_token_each(sample) else None
    return _Facts(
        sample=sample,
        ending=ending,
        overhead_ns=overhead_ns,
        positions=positions,
        produced=output_tokens(sample),
        arrived=assumed if counts is None else sum(counts),
    )


def _counts_disagree(facts: _Facts) -> bool:
    if facts.cached is not None and facts.cached > facts.sample.prompt_tokens:
        return True
    if facts.produced == 0:  # and yet something arrived
        return True
    if facts.produced is None or facts.arrived is None:
        return False
    return facts.produced - facts.arrived not in _may_be_missing(facts.sample)


def _longer_than_asked(facts: _Facts) -> bool:
    return facts.produced is not None and facts.produced > facts.sample.max_output_tokens


def _end_token_not_streamed(facts: _Facts) -> bool:
    return None not in (facts.produced, facts.arrived) and facts.produced != facts.arrived


def _several_per_arrival(facts: _Facts) -> bool:
    return max(facts.sample.arrivals.tokens or (0,)) > 1


def _prefill_count_suspect(facts: _Facts) -> bool:
    prefilled = facts.ending.timings.prefill_tokens
    if prefilled is None or facts.cached is None:
        return False
    return prefilled != facts.sample.prompt_tokens - facts.cached


def _few_prefilled(facts: _Facts) -> bool:
    prefilled = facts.ending.timings.prefill_tokens
    return prefilled is not None and prefilled < FEW_TOKENS


def _reasoning_count_suspect(facts: _Facts) -> bool:
    reasoning = facts.ending.reasoning_tokens
    if reasoning is None or facts.produced is None:
        return False
    return reasoning > facts.produced


def _under_the_floor(facts: _Facts) -> bool:
    gaps = gaps_ns(facts.sample) if facts.overhead_ns else []
    return bool(gaps) and median(gaps) < OVERHEAD_FACTOR * (facts.overhead_ns or 0)


# --- the rules -----------------------------------------------------------------------------


@frozen
class _Rule:
    says: str
    holds: Callable[[_Facts], bool]


_EXCLUDING: Mapping[str, _Rule] = {
    "error": _Rule(
        "the engine ended it with an error",
        lambda it: it.ending.reason is FinishReason.ERROR,
    ),
    "cancelled": _Rule(
        "it was cancelled",
        lambda it: it.ending.reason is FinishReason.CANCELLED,
    ),
    "timeout": _Rule(
        "it took longer than was allowed",
        lambda it: it.ending.reason is FinishReason.TIMEOUT,
    ),
    "empty_output": _Rule(
        "nothing was generated",
        lambda it: not it.positions,
    ),
    "prompt_count_differs": _Rule(
        "the engine counted another prompt than was sent",
        lambda it: it.ending.prompt_tokens not in (None, it.sample.prompt_tokens),
    ),
    "cached_in_cold": _Rule(
        "a part of the prompt came from the cache although cold was asked for",
        lambda it: it.sample.cache_mode is CacheMode.COLD and bool(it.cached),
    ),
    "counts_disagree": _Rule(
        "the engine's counts contradict each other or what it streamed",
        _counts_disagree,
    ),
    "longer_than_asked": _Rule(
        "more tokens came than were asked for",
        _longer_than_asked,
    ),
}

_SHORTENING: Mapping[str, _Rule] = {
    "ignore_eos_not_honoured": _Rule(
        "the engine stopped at its end token although told not to",
        lambda it: it.known_short and it.stopped and it.sample.ignore_eos,
    ),
    "context_full": _Rule(
        "the context was full before the output was complete",
        lambda it: not it.complete and it.ending.reason is FinishReason.CONTEXT_FULL,
    ),
    "short_output": _Rule(
        "fewer tokens came than were asked for",
        lambda it: it.known_short and (it.sample.ignore_eos or not it.stopped),
    ),
    "output_count_unknown": _Rule(
        "neither the engine nor its ids say how many tokens there were",
        lambda it: it.produced is None,
    ),
}

_TELLING: Mapping[str, _Rule] = {
    "finish_reason_suspect": _Rule(
        "the finish reason contradicts the number of tokens",
        lambda it: (
            it.complete
            if it.stopped
            else it.known_short and it.ending.reason is FinishReason.LENGTH
        ),
    ),
    "limit_reached": _Rule(
        "as many tokens came as were asked for, whatever the engine calls it",
        lambda it: it.complete and it.stopped,
    ),
    "end_token_not_streamed": _Rule(
        "the engine counts an end token that never arrived; rates do not",
        _end_token_not_streamed,
    ),
    "one_token_each_assumed": _Rule(
        "as many arrivals as tokens: each is taken to hold one",
        lambda it: one_token_each(it.sample) and len(it.positions) > 1,
    ),
    "several_tokens_per_arrival": _Rule(
        "an arrival held several tokens: gaps are not between tokens",
        _several_per_arrival,
    ),
    "ids_withheld": _Rule(
        "the engine did not tell the ids of all tokens",
        lambda it: it.sample.output_ids is None,
    ),
    "prefix_cache_hit": _Rule(
        "a part of the prompt came from the cache",
        lambda it: bool(it.cached),
    ),
    "nothing_reused": _Rule(
        "reuse was allowed, but the engine reused nothing",
        lambda it: it.sample.cache_mode is CacheMode.REUSE and it.cached == 0,
    ),
    "cache_unverified": _Rule(
        "the engine does not say whether it reused a part of the prompt",
        lambda it: it.cached is None,
    ),
    "prompt_unverified": _Rule(
        "the engine does not say how long a prompt it processed",
        lambda it: it.ending.prompt_tokens is None,
    ),
    "prefill_count_suspect": _Rule(
        "the engine's prefill count is not the part that was not cached",
        _prefill_count_suspect,
    ),
    "few_prefilled": _Rule(
        f"under {FEW_TOKENS} prompt tokens were processed: their rate says little",
        _few_prefilled,
    ),
    "reasoning_count_suspect": _Rule(
        "the engine counts more reasoning than output",
        _reasoning_count_suspect,
    ),
    "overhead_floor": _Rule(
        "the gaps are so short that our own cost shows in them",
        _under_the_floor,
    ),
}


def _holding(rules: Mapping[str, _Rule], facts: _Facts) -> list[str]:
    return [code for code, rule in rules.items() if rule.holds(facts)]


def _sentences(rules: Mapping[str, _Rule]) -> dict[str, str]:
    return {code: rule.says for code, rule in rules.items()}


EXCLUSIONS: Mapping[str, str] = {"no_ending": "the stream has no end", **_sentences(_EXCLUDING)}
"""Why no number is made of a sample; a failed one says ``failed: kind`` instead."""

SHORTCOMINGS: Mapping[str, str] = _sentences(_SHORTENING)
"""Why no number that depends on the output's length is made, where a length was fixed."""

FLAGS: Mapping[str, str] = {**SHORTCOMINGS, **_sentences(_TELLING)}
"""What a reader should know about a sample, by flag."""
