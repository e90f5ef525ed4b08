"""Samples, launches and whole results with plain numbers, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from inferometer.artifact import ModelArtifact
from inferometer.artifact.model import ModelFormat
from inferometer.engine import (
    CacheMode,
    Capabilities,
    Chunk,
    Finished,
    FinishReason,
    Placement,
    Request,
    Sampling,
    Timings,
    TokenPrompt,
)
from inferometer.failures import Failure
from inferometer.host import Host
from inferometer.identity import EngineIdentity
from inferometer.measure import Observation, observe
from inferometer.results import (
    Arrivals,
    Ending,
    Launch,
    LoadPhases,
    Results,
    Sample,
    Skip,
    SubjectRecord,
)
from inferometer.suite import Condition, Subject, Suite, Workload
from inferometer.testing import Pause, ScriptedEngine, VirtualClock

PROMPT_TOKENS = 128
MODES = {Condition.REUSE: CacheMode.REUSE}


def ns(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)


# --- one request ---------------------------------------------------------------------------


def request(**changes: Any) -> Request:
    asked = Request(request_id="q1", prompt=TokenPrompt((1, 2, 3)), max_output_tokens=8)
    return evolve(asked, **changes)


def watched(*steps: Any, asked: Request | None = None) -> Observation:
    """Return what the timed loop sees of a script on a virtual clock."""
    clock = VirtualClock()
    return observe(ScriptedEngine(lambda _: steps, clock), asked or request(), clock)


def tokens(*at_ms: float) -> list[Any]:
    """Return script steps: one token at each of these times since the request."""
    steps: list[Any] = []
    for before, now in zip((0.0, *at_ms), at_ms, strict=False):
        steps += [Pause(now - before), Chunk(tokens=1, token_ids=(65,))]
    return steps


def finished(count: int | None = None, **changes: Any) -> Finished:
    end = Finished(
        reason=FinishReason.LENGTH,
        prompt_tokens=3,
        output_tokens=count,
        cached_prompt_tokens=0,
    )
    return evolve(end, **changes)


def recorded(seen: Observation, **changes: Any) -> Sample:
    """Return an observation as the sample it is recorded as."""
    kept = sample(
        prompt_tokens=3,
        arrivals=seen.arrivals,
        output_ids=seen.output_ids,
        ending=seen.ending,
        setup_ns=seen.setup_ns,
        end_ns=seen.end_ns,
    )
    return evolve(kept, **changes)


def ending(count: int | None = 8, **changes: Any) -> Ending:
    told = Ending(
        reason=FinishReason.LENGTH,
        prompt_tokens=PROMPT_TOKENS,
        output_tokens=count,
        cached_prompt_tokens=0,
    )
    return evolve(told, **changes)


def arrivals(
    *at_ms: float, counts: Sequence[int] | None = None, kinds: str | None = None
) -> Arrivals:
    return Arrivals(
        offsets_ns=tuple(ns(at) for at in at_ms),
        tokens=None if counts is None else tuple(counts),
        kinds="a" * len(at_ms) if kinds is None else kinds,
    )


def sample(**changes: Any) -> Sample:
    """Return a good cold request: 8 tokens, the first after 100 ms, then one every 20 ms."""
    condition = changes.get("condition", Condition.COLD)
    number, subject = changes.get("round", 1), changes.get("subject", "alpha")
    workload = changes.get("workload", "p128")
    good = Sample(
        request_id=f"r{number}-{subject}/{workload}/{condition}",
        launch=f"r{number}-{subject}",
        round=number,
        subject=subject,
        workload=workload,
        condition=condition,
        prompt_digest="sha256:0",
        prompt_tokens=PROMPT_TOKENS,
        max_output_tokens=8,
        ignore_eos=True,
        sampling=Sampling(),
        cache_mode=MODES.get(condition, CacheMode.COLD),
        started_ns=0,
        arrivals=arrivals(*range(100, 260, 20), counts=[1] * 8),
        end_ns=ns(241),
        output_ids=(65,) * 8,
        ending=ending(),
    )
    return evolve(good, **changes)


def timed(first_ms: float, step_ms: float = 20, **changes: Any) -> Sample:
    """Return a good request of 8 tokens whose first comes at ``first_ms``."""
    at = [first_ms + step_ms * i for i in range(8)]
    return sample(arrivals=arrivals(*at, counts=[1] * 8), **changes)


def failed(kind: str = "connection_lost", message: str = "gone", **changes: Any) -> Sample:
    return sample(ending=None, failure=Failure(kind=kind, message=message), **changes)


# --- a run ---------------------------------------------------------------------------------


def launch(number: int = 1, subject: str = "alpha", **changes: Any) -> Launch:
    done = Launch(
        id=f"r{number}-{subject}",
        round=number,
        subject=subject,
        started_at="2026-01-02T03:04:05+00:00",
        phases=LoadPhases(spawn_ns=ns(300), import_ns=ns(40), prepare_ns=ns(5), load_ns=ns(600)),
        file_cache_ratio=1.0,
        identity=EngineIdentity(engine="scripted", version="1.0", backend="cpu"),
        harness_overhead_ns=1_000,
        ended=True,
    )
    return evolve(done, **changes)


def record(
    name: str = "alpha", placement: Placement = Placement.IN_PROCESS, **artifact: Any
) -> SubjectRecord:
    files = ModelArtifact(
        format=ModelFormat.GGUF,
        name="model.gguf",
        files=1,
        size_bytes=98_400_000,
        tensor_types={"Q4_1": 79, "Q8_0": 21},
    )
    return SubjectRecord(
        subject=Subject(name=name, engine="scripted", model=Path("model.gguf")),
        placement=placement,
        capabilities=Capabilities(),
        artifact=evolve(files, **artifact),
    )


def workload(name: str = "p128", **changes: Any) -> Workload:
    return evolve(Workload(name=name, prompt_tokens=PROMPT_TOKENS, output_tokens=8), **changes)


def suite(
    *workloads: Workload, conditions: Iterable[Condition] = (Condition.COLD,), **changes: Any
) -> Suite:
    asked = Suite(
        name="plain",
        conditions=tuple(conditions),
        workloads=workloads or (workload(),),
        rounds=changes.get("rounds", 3),
    )
    return evolve(asked, **changes)


def results(
    samples: Iterable[Sample] = (),
    launches: Iterable[Launch] | None = None,
    *,
    subjects: Iterable[SubjectRecord] | None = None,
    asked: Suite | None = None,
    **changes: Any,
) -> Results:
    """Return a run whose launches, unless given, are those that the samples were measured in."""
    kept = tuple(samples)
    begun = {s.launch: launch(s.round, s.subject, id=s.launch) for s in kept}
    asked = asked or suite(conditions=sorted({s.condition for s in kept}) or [Condition.COLD])
    run = Results(
        run_id="run-1",
        tool_version="0.0",
        started_at="2026-01-02T03:04:05+00:00",
        suite=asked,
        suite_digest=asked.digest,
        rounds=max((s.round for s in kept), default=asked.rounds),
        order_seed=7,
        corpus_version="1",
        prompt_date="2024-07-26",
        host=Host(
            os_name="Linux",
            kernel="6.1",
            machine="x86_64",
            python_version="3.11.7",
            python_implementation="CPython",
        ),
        subjects=tuple(subjects or [record()]),
        launches=tuple(begun.values() if launches is None else launches),
        samples=kept,
        complete=True,
    )
    return evolve(run, **changes)


def skip(**changes: Any) -> Skip:
    left_out = Skip(
        subject="alpha", workload="p128", code="context_exceeded", reason="128 + 8 do not fit 100"
    )
    return evolve(left_out, **changes)


def timings(**milliseconds: float) -> Timings:
    """Return engine timings; keys without their ``_ns``, values in milliseconds."""
    return Timings(**{f"{name}_ns": ns(value) for name, value in milliseconds.items()})
