"""What a run leaves behind: raw samples, and everything needed to read them elsewhere.

No summary is stored: a metric is recomputed from these values, so a wrong formula can be
mended after the run. Durations are integer nanoseconds of one monotonic clock; ``None`` means
unknown. Every field has a role, which decides what a difference in it does to a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from operator import le
from typing import Any

from attrs import Factory, field, frozen, validators

from inferometer.artifact import ModelArtifact
from inferometer.engine import (
    CacheMode,
    Capabilities,
    FinishReason,
    Placement,
    Sampling,
    Timings,
    Usage,
)
from inferometer.failures import Failure
from inferometer.fields import Role, about
from inferometer.host import Host, HostLoad
from inferometer.identity import EngineIdentity
from inferometer.suite import MAX_ROUNDS, Condition, Subject, Suite

SCHEMA = "inferometer.results/1"


_DURATION = validators.optional(validators.ge(0))


class ArrivalKind(StrEnum):
    """What an arrival carried, as one letter."""

    EVENT = "e"
    """Nothing generated: a role, a keep-alive, progress."""
    REASONING = "r"
    ANSWER = "a"
    TOOL_CALL = "t"
    TOKENS = "g"
    """Generated tokens without text: which of the three they are is not told."""


@frozen(kw_only=True)
class Arrivals:
    """What the clock saw of one stream; three columns of equal length."""

    offsets_ns: tuple[int, ...] = field(
        default=(),
        metadata=about(Role.MEASURED, "Time of each arrival since the request was sent."),
    )
    tokens: tuple[int, ...] | None = field(
        default=None,
        metadata=about(Role.MEASURED, "Tokens in each arrival; null when the source does not say."),
    )
    kinds: str = field(
        default="",
        metadata=about(
            Role.MEASURED,
            "One letter per arrival: e event without content, r reasoning, a answer, t tool call, "
            "g generated tokens of a kind that is not told.",
        ),
    )

    def __attrs_post_init__(self) -> None:
        columns = (self.kinds, self.tokens if self.tokens is not None else self.kinds)
        if any(len(column) != len(self.offsets_ns) for column in columns):
            raise ValueError("offsets_ns, tokens and kinds differ in length")
        in_order = all(map(le, self.offsets_ns, self.offsets_ns[1:]))
        if not in_order or min(self.offsets_ns, default=0) < 0:
            raise ValueError("offsets_ns runs backwards")
        if min(self.tokens or (0,)) < 0:
            raise ValueError("tokens has a negative count")
        unknown = set(self.kinds) - {kind.value for kind in ArrivalKind}
        if unknown:
            raise ValueError(f"kinds has letters of no meaning: {''.join(sorted(unknown))}")


@frozen(kw_only=True)
class Ending:
    """What the engine said at the end of a stream; null means not reported."""

    reason: FinishReason = field(
        metadata=about(Role.MEASURED, "Why generation ended, in the common vocabulary.")
    )
    raw_reason: str | None = field(
        default=None, metadata=about(Role.MEASURED, "The engine's own word for it.")
    )
    prompt_tokens: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Prompt tokens, as the engine counts them.")
    )
    output_tokens: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Generated tokens, as the engine counts them.")
    )
    cached_prompt_tokens: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Prompt tokens reused from earlier work.")
    )
    reasoning_tokens: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Generated tokens spent on reasoning.")
    )
    timings: Timings = field(
        default=Timings(), metadata=about(Role.MEASURED, "Durations the engine reports.")
    )
    raw: Mapping[str, Any] = field(
        default=Factory(dict), metadata=about(Role.MEASURED, "The engine's own figures, untouched.")
    )


@frozen(kw_only=True)
class Sample:
    """One request: what was asked, what arrived, what the engine said."""

    request_id: str = field(metadata=about(Role.PROVENANCE, "Name of the request in the run."))
    launch: str = field(metadata=about(Role.PROVENANCE, "The launch it was measured in."))
    round: int = field(metadata=about(Role.PROVENANCE, "The round, counted from 1."))
    subject: str = field(metadata=about(Role.PROVENANCE, "Name of the subject."))
    workload: str = field(metadata=about(Role.WORKLOAD, "Name of the workload."))
    condition: Condition = field(metadata=about(Role.WORKLOAD, "Which condition it measures."))
    warmup: bool = field(
        default=False,
        metadata=about(Role.WORKLOAD, "A warm-up: kept, never counted."),
    )
    prompt_digest: str = field(metadata=about(Role.WORKLOAD, "Digest of the prompt's ids."))
    prompt_tokens: int = field(metadata=about(Role.WORKLOAD, "Prompt length, by our own count."))
    max_output_tokens: int = field(metadata=about(Role.WORKLOAD, "Output length asked for."))
    ignore_eos: bool = field(metadata=about(Role.WORKLOAD, "Asked to go on past the end token."))
    sampling: Sampling = field(metadata=about(Role.WORKLOAD, "How tokens were to be chosen."))
    cache_mode: CacheMode = field(metadata=about(Role.WORKLOAD, "What was allowed to be reused."))
    started_ns: int = field(
        metadata=about(Role.PROVENANCE, "When the request was sent, since the worker started.")
    )
    setup_ns: int = field(
        default=0,
        metadata=about(Role.MEASURED, "Between handing the request over and sending it."),
    )
    arrivals: Arrivals = field(
        default=Arrivals(), metadata=about(Role.MEASURED, "What arrived, and when.")
    )
    end_ns: int | None = field(
        default=None, metadata=about(Role.MEASURED, "When the stream closed, since it was sent.")
    )
    output_ids: tuple[int, ...] | None = field(
        default=None, metadata=about(Role.MEASURED, "Generated ids; null when any was withheld.")
    )
    ending: Ending | None = field(
        default=None, metadata=about(Role.MEASURED, "What the engine said at the end.")
    )
    failure: Failure | None = field(
        default=None, metadata=about(Role.MEASURED, "Why there is no number, if it failed.")
    )


@frozen(kw_only=True)
class LoadPhases:
    """From nothing to ready, each phase on our clock."""

    spawn_ns: int | None = field(
        default=None,
        validator=_DURATION,
        metadata=about(Role.MEASURED, "Start of the process until it spoke."),
    )
    import_ns: int | None = field(
        default=None,
        validator=_DURATION,
        metadata=about(Role.MEASURED, "Importing the runtime, creating the engine."),
    )
    prepare_ns: int | None = field(
        default=None,
        validator=_DURATION,
        metadata=about(Role.MEASURED, "Resolving and verifying files."),
    )
    load_ns: int | None = field(
        default=None,
        validator=_DURATION,
        metadata=about(Role.MEASURED, "From files to ready for a request."),
    )


@frozen(kw_only=True)
class Launch:
    """One worker process: one subject in one round."""

    id: str = field(metadata=about(Role.PROVENANCE, "Name of the launch in the run."))
    round: int = field(metadata=about(Role.PROVENANCE, "The round, counted from 1."))
    subject: str = field(metadata=about(Role.PROVENANCE, "Name of the subject."))
    started_at: str = field(
        metadata=about(Role.PROVENANCE, "Wall-clock time of the start, UTC, ISO 8601.")
    )
    python: str | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Python version of the worker.")
    )
    phases: LoadPhases = field(
        default=LoadPhases(), metadata=about(Role.MEASURED, "The phases of loading.")
    )
    file_cache_ratio: float | None = field(
        default=None,
        metadata=about(
            Role.ENVIRONMENT, "Share of the model's pages in the OS file cache before loading."
        ),
    )
    context_tokens: int | None = field(
        default=None, metadata=about(Role.WORKLOAD, "Window the plan asked for.")
    )
    identity: EngineIdentity | None = field(
        default=None, metadata=about(Role.SUBJECT, "What exactly was loaded.")
    )
    harness_overhead_ns: int | None = field(
        default=None,
        metadata=about(Role.MEASURED, "Our own cost per arrival, seen on an engine that costs 0."),
    )
    host_load: HostLoad | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "How busy the machine was at the start.")
    )
    usage: Usage | None = field(
        default=None, metadata=about(Role.MEASURED, "The engine's own memory figures.")
    )
    failure: Failure | None = field(
        default=None, metadata=about(Role.MEASURED, "Why it ended early, if it did.")
    )
    ended: bool = field(
        default=False, metadata=about(Role.PROVENANCE, "Whether it reached an end of its own.")
    )


@frozen(kw_only=True)
class Skip:
    """Something that was not measured, on purpose."""

    subject: str = field(metadata=about(Role.PROVENANCE, "Name of the subject."))
    workload: str = field(metadata=about(Role.WORKLOAD, "Name of the workload."))
    condition: Condition | None = field(
        default=None, metadata=about(Role.WORKLOAD, "The condition, or null for all of them.")
    )
    code: str = field(metadata=about(Role.MEASURED, "Short stable name of the reason."))
    reason: str = field(metadata=about(Role.MEASURED, "The reason, for a person."))


@frozen(kw_only=True)
class SubjectRecord:
    """A subject as it was planned."""

    subject: Subject = field(metadata=about(Role.SUBJECT, "Engine, model, options, interpreter."))
    placement: Placement = field(
        metadata=about(Role.WORKLOAD, "Where the clock stood: this decides the vantage.")
    )
    capabilities: Capabilities = field(
        metadata=about(Role.SUBJECT, "What the adapter says the engine can do.")
    )
    artifact: ModelArtifact = field(metadata=about(Role.SUBJECT, "What the model files are."))
    adapter_distribution: str | None = field(
        default=None, metadata=about(Role.PROVENANCE, "Package and version of the adapter.")
    )


@frozen(kw_only=True)
class Results:
    """A whole run, as one file that can be carried to another machine."""

    schema: str = field(
        default=SCHEMA, metadata=about(Role.PROVENANCE, "Name and version of this format.")
    )
    run_id: str = field(metadata=about(Role.PROVENANCE, "Name of the run."))
    tool_version: str = field(metadata=about(Role.PROVENANCE, "Version of Inferometer."))
    started_at: str = field(
        metadata=about(Role.PROVENANCE, "Wall-clock time of the start, UTC, ISO 8601.")
    )
    suite: Suite = field(metadata=about(Role.WORKLOAD, "The suite, as it was read."))
    suite_digest: str = field(metadata=about(Role.WORKLOAD, "Digest of the suite."))
    rounds: int = field(
        # A damaged file that asks for billions would have each of them accounted for.
        validator=validators.and_(validators.ge(1), validators.le(MAX_ROUNDS)),
        metadata=about(Role.WORKLOAD, "Rounds asked for."),
    )
    order_seed: int = field(
        metadata=about(Role.PROVENANCE, "Seed that shuffled launches and cells.")
    )
    corpus_version: str = field(metadata=about(Role.WORKLOAD, "Version of the prompts' text."))
    prompt_date: str = field(
        metadata=about(Role.WORKLOAD, "The date that chat templates were told.")
    )
    host: Host = field(metadata=about(Role.ENVIRONMENT, "The machine."))
    subjects: tuple[SubjectRecord, ...] = field(metadata=about(Role.SUBJECT, "What was measured."))
    skips: tuple[Skip, ...] = field(
        default=(), metadata=about(Role.MEASURED, "What was not measured, and why.")
    )
    launches: tuple[Launch, ...] = field(
        default=(), metadata=about(Role.MEASURED, "One record per worker process.")
    )
    samples: tuple[Sample, ...] = field(
        default=(), metadata=about(Role.MEASURED, "One record per request.")
    )
    complete: bool = field(
        default=False, metadata=about(Role.PROVENANCE, "Whether every planned launch has ended.")
    )

    def __attrs_post_init__(self) -> None:
        names = [record.subject.name for record in self.subjects]
        if len(names) != len(set(names)):
            raise ValueError("two subjects have one name")
