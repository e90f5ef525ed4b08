"""Requests and rows as the publicly known failures tell them: literal times, literal counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from inferometer.engine import Chunk, FinishReason, LogEvidence
from inferometer.metrics import REGISTRY, SampleMetric, Undefined
from inferometer.plugins import discover
from inferometer.results import Ending, Results, Sample
from inferometer.serving import EventParser
from inferometer.suite import Condition
from inferometer.summary import MetricSummary, summarize
from inferometer.testing import Pause
from inferometer_llama_cpp.events import Translator
from support.http_server import event as sent
from support.samples import arrivals, ns, recorded, request, sample, watched

EOS = FinishReason.STOP_EOS
LENGTH = FinishReason.LENGTH
SEEN = "a"
BARE = "e"


def steps(first_ms: float, count: int, step_ms: float = 20) -> list[float]:
    """Return the times of so many arrivals."""
    return [first_ms + step_ms * number for number in range(count)]


def answer(
    *at_ms: float,
    prompt: int,
    asked: int,
    reason: FinishReason = LENGTH,
    counted: int | None = None,
    cached: int | None = None,
    prompt_counted: int | None = None,
    role_ms: float | None = 2,
    **changes: Any,
) -> Sample:
    """Return what is seen of a chat stream: a bare role event, then text without token counts.

    Args:
        at_ms: when each event with text came.
        prompt: tokens that were sent.
        asked: output tokens that were asked for.
        reason: why the engine says it ended.
        counted: output tokens by the engine's count.
        cached: reused prompt tokens by the engine's count; None when it does not say.
        prompt_counted: prompt tokens by the engine's count; as many as were sent when left out.
        role_ms: when the role came; None for a stream without it.
        changes: of the sample.
    """
    bare = [] if role_ms is None else [role_ms]
    seen = arrivals(*bare, *at_ms, kinds=BARE * len(bare) + SEEN * len(at_ms))
    told = Ending(
        reason=reason,
        prompt_tokens=prompt if prompt_counted is None else prompt_counted,
        output_tokens=len(at_ms) if counted is None else counted,
        cached_prompt_tokens=cached,
    )
    parts = {
        "prompt_tokens": prompt,
        "max_output_tokens": asked,
        "ignore_eos": False,
        "arrivals": seen,
        "output_ids": None,
        "ending": told,
        "end_ns": ns(max((2, *at_ms)) + 2),
    }
    return sample(**{**parts, **changes})


def streamed(
    timeline: Iterable[tuple[float, Mapping[str, Any]]], *, asked: int, **changes: Any
) -> Sample:
    """Return what is seen when llama-server sends these events at these milliseconds."""
    parser, translator = EventParser(), Translator(asked)
    script: list[Any] = []
    before = 0.0
    for at, event in timeline:
        script += [Pause(at - before), *translator.arrival(0, parser.feed(sent(event)))]
        before = at
    translator.close()
    # Stamped by the virtual clock that the pauses move.
    script = [evolve(one, received_ns=None) if isinstance(one, Chunk) else one for one in script]
    asked_for = request(max_output_tokens=asked)
    return recorded(watched(*script, asked=asked_for), max_output_tokens=asked, **changes)


def value(seen: Sample, metric: str) -> float | str:
    """Return a metric of one request, or the reason for having none."""
    definition = REGISTRY[metric]
    assert isinstance(definition, SampleMetric)
    try:
        return definition.compute(seen)
    except Undefined as undefined:
        return undefined.reason


def row(
    run: Results, metric: str, condition: Condition = Condition.COLD, of: str = "p128"
) -> MetricSummary:
    """Return the one row of a run with this metric."""
    (found,) = (
        row
        for row in summarize(run).metrics
        if (row.workload, row.condition, row.metric) == (of, condition, metric)
    )
    return found


def evidence_of(engine: str) -> tuple[LogEvidence, ...]:
    """Return the words that an installed adapter knows in its engine's log."""
    return discover().get(engine).adapter.log_evidence
