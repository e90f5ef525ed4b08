"""The contract between the core and an engine adapter.

An ``Adapter`` is a cheap value: it lives in the parent, names its engine, says what it can do,
and imports no runtime. An ``Engine`` is the live object: it exists only in a worker process.

The core owns the only clock. An adapter never stamps and never derives a rate; what the engine
says about itself travels in ``Timings`` and ``raw``, apart from what the core saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attrs import Factory, field, frozen, validators

from inferometer.fields import Role, about
from inferometer.identity import EngineIdentity

ENGINE_API = 1
"""Version of this contract. An adapter built for another one is refused, with both named."""


class Placement(StrEnum):
    """Where the engine runs, seen from the clock. Two placements are two measurements."""

    IN_PROCESS = "in_process"
    SERVER = "server"


class CacheMode(StrEnum):
    """What may be reused from earlier prompts."""

    COLD = "cold"
    """No part of the prompt comes from earlier work."""
    REUSE = "reuse"
    """The engine may use whatever it kept."""


class FinishReason(StrEnum):
    """Why generation ended, in one vocabulary for all engines."""

    STOP_EOS = "stop_eos"
    """The model's end token came."""
    STOP_TOKEN = "stop_token"  # noqa: S105 - not a password
    """A token that was named as a stop came."""
    STOP_STRING = "stop_string"
    """A text that was named as a stop came."""
    LENGTH = "length"
    """As many tokens came as were asked for."""
    CONTEXT_FULL = "context_full"
    """The context held no more, before as many tokens came as were asked for."""
    CANCELLED = "cancelled"
    """The caller closed the stream."""
    TIMEOUT = "timeout"
    """A time limit passed."""
    REPETITION = "repetition"
    """The engine gave up an output that repeated itself."""
    ERROR = "error"
    """The engine failed."""
    UNKNOWN = "unknown"
    """The engine gave no reason, or one that has no counterpart here."""


# --- what an adapter says about itself -----------------------------------------------------


@frozen(kw_only=True)
class Capabilities:
    """What an engine can do. Everything is off unless the adapter turns it on."""

    token_ids_in: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Takes the prompt as token ids.")
    )
    token_ids_out: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Streams the generated token ids.")
    )
    reports_cached_tokens: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Says how many prompt tokens were reused.")
    )
    reports_prefill_time: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Says how long prefill took.")
    )
    reports_decode_time: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Says how long decoding took.")
    )
    reports_queue_time: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Says how long the request waited.")
    )
    disables_cache: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Can run one request without prompt reuse.")
    )
    resets_cache: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Can forget every prompt on demand.")
    )
    ignores_eos: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Can go on past the end token.")
    )
    seeds_sampling: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Sampling repeats for a given seed.")
    )
    reports_speculation: bool = field(
        default=False, metadata=about(Role.SUBJECT, "Says how many drafted tokens were accepted.")
    )
    max_concurrency: int = field(
        default=1,
        validator=validators.ge(1),
        metadata=about(Role.SUBJECT, "Requests it can run at the same time."),
    )


@frozen(kw_only=True)
class Probe:
    """Whether an engine can run here: fast to make, never raised."""

    usable: bool
    version: str | None = None
    reason: str | None = None
    """Why not, when it is not usable."""
    install: str | None = None
    """The command that would help."""


@frozen(kw_only=True)
class LogEvidence:
    """Words in an engine's log that tell why it died."""

    pattern: str
    kind: str
    hint: str


@frozen(kw_only=True)
class Context:
    """What the core tells an adapter when a worker creates the engine."""

    context_tokens: int
    """Prompt plus output of the longest request to come; the window must hold it."""
    log_path: Path
    """Where children may write what they print."""
    cache_dir: Path
    """A folder that outlives the run, for what ``prepare`` builds once."""

    @property
    def scratch_dir(self) -> Path:
        """A folder for this launch alone, made by whoever uses it.

        The core removes it when the launch is over, however it ended.
        """
        return scratch_of(self.log_path)


def scratch_of(log_path: Path) -> Path:
    """Return where the launch that writes a log may keep what nobody needs after it."""
    return log_path.with_suffix(".scratch")


def no_options() -> type[Any]:
    """Return the options class of an adapter that has none."""

    @frozen
    class NoOptions:
        pass

    return NoOptions


@frozen(kw_only=True)
class Adapter:
    """An engine on offer: a value that is cheap to list and imports no runtime.

    ``options_type`` is a frozen attrs class; what the user writes is structured into it
    strictly. A field named ``context_tokens`` is understood by the planner as the window the
    user asks for.
    """

    name: str = field(validator=validators.matches_re(r"[a-z][a-z0-9]*(-[a-z0-9]+)*"))
    placement: Placement = field(validator=validators.instance_of(Placement))
    capabilities: Capabilities = field(validator=validators.instance_of(Capabilities))
    create: Callable[[Any, Context], Engine] = field(validator=validators.is_callable())
    """``create(options, context)``: import the runtime, return an engine. Worker only."""
    probe: Callable[[Any | None], Probe] = field(validator=validators.is_callable())
    """``probe(options)``: usable here, with these options, or in general when None?"""
    options_type: type[Any] = Factory(no_options)
    runtime_modules: tuple[str, ...] = ()
    """Top-level modules of the runtime; importing the plugin must not import any of them."""
    log_evidence: tuple[LogEvidence, ...] = ()
    engine_api: int = ENGINE_API


# --- one request ---------------------------------------------------------------------------


@frozen(kw_only=True)
class Sampling:
    """How the next token is chosen. The default is greedy, with every other sampler neutral."""

    temperature: float = field(
        default=0.0,
        validator=validators.ge(0.0),
        metadata=about(Role.WORKLOAD, "0 is greedy: the likeliest token, always."),
    )
    seed: int = field(
        default=0,
        validator=validators.and_(validators.ge(0), validators.lt(2**32)),
        metadata=about(Role.WORKLOAD, "Seed of the engine's sampler, when it samples."),
    )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@frozen
class TokenPrompt:
    """A prompt as token ids: used as given, nothing prepended, nothing cut."""

    ids: tuple[int, ...]


@frozen
class ChatPrompt:
    """A prompt as messages, for an engine that takes no ids."""

    messages: tuple[Mapping[str, str], ...]


@frozen(kw_only=True)
class Request:
    """One thing asked of an engine."""

    request_id: str
    prompt: TokenPrompt | ChatPrompt
    max_output_tokens: int = field(validator=validators.ge(1))
    ignore_eos: bool = True
    sampling: Sampling = Sampling()
    cache_mode: CacheMode = CacheMode.COLD


# --- what comes back -----------------------------------------------------------------------


@frozen(kw_only=True)
class Chunk:
    """Everything that became visible in one arrival: one engine step, or one network read.

    A stream event is not a token, and several events can come in one read: whatever came
    together is one chunk.
    """

    tokens: int | None = None
    """How many tokens arrived; None when the source does not say; 0 for a bare event."""
    token_ids: tuple[int, ...] | None = None
    """Their ids, all of them, or None when any is withheld."""
    answer: str = ""
    reasoning: str = ""
    tool_call: str = ""
    received_ns: int | None = None
    """Only from the core's own stream reader: when the bytes came in. Else the core stamps."""

    @property
    def has_content(self) -> bool:
        """Whether anything generated arrived, of any kind."""
        return bool(
            self.tokens or self.token_ids or self.answer or self.reasoning or self.tool_call
        )


@frozen(kw_only=True)
class Timings:
    """Durations the engine reports about itself; never derived, never mixed with our clock."""

    queue_ns: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Wait before the engine began, as reported.")
    )
    prefill_ns: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Prefill time, as the engine reports it.")
    )
    decode_ns: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Decode time, as the engine reports it.")
    )
    prefill_tokens: int | None = field(
        default=None,
        metadata=about(Role.MEASURED, "Prompt tokens processed in that prefill time."),
    )
    decode_steps: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Decode steps in that decode time.")
    )
    source: str = field(
        default="", metadata=about(Role.PROVENANCE, "Which of the engine's counters these are.")
    )
    clock: str = field(
        default="", metadata=about(Role.PROVENANCE, "Which clock the engine read for them.")
    )


@frozen(kw_only=True)
class Finished:
    """The end of a stream: exactly one, last. ``None`` means not reported, never 0."""

    reason: FinishReason
    raw_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Generated tokens including reasoning and, where the engine counts it, the end token."""
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    timings: Timings = Timings()
    raw: Mapping[str, Any] = Factory(dict)
    """The engine's own figures, untouched, the unit last in each key."""
    sent_ns: int | None = None
    """Only from the core's own stream reader: when the first request byte was written."""


@frozen(kw_only=True)
class Usage:
    """The engine's own memory figures, in bytes; None where it has none."""

    peak_memory_bytes: int | None = field(
        default=None, metadata=about(Role.MEASURED, "Peak the engine reports since its start.")
    )
    source: str = field(default="", metadata=about(Role.PROVENANCE, "Where that figure is from."))


# --- the live engine -----------------------------------------------------------------------


@runtime_checkable
class Engine(Protocol):
    """A live engine in a worker process. Every method is mandatory, all are synchronous.

    What an engine cannot do is a capability left off and ``Unsupported`` raised. A failure is
    an ``EngineError``; any other exception is the adapter's own crash.
    """

    def prepare(self, model: Path) -> None:
        """Resolve and verify local files; build what can be kept. No weights in memory."""

    def load(self) -> None:
        """Go from files to ready: when this returns, a request may be sent."""

    def identify(self) -> EngineIdentity:
        """Say what exactly is loaded, with effective options. Asked once, after ``load``."""

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        """Return the ids of a text, adding none; ``special`` reads control tokens in it."""

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens left out."""

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        """Stream one request: chunks as they come, then exactly one ``Finished``.

        Yield as soon as there is something, and do no work in between. The prompt is used as
        given; one that does not fit raises before the first event. ``COLD`` means that no part
        of it comes from earlier work. Closing the iterator cancels.
        """

    def reset_cache(self) -> None:
        """Forget every prompt. Raises ``Unsupported``, or ``Refused`` when it says no."""

    def usage(self) -> Usage:
        """Return the engine's own memory peaks."""

    def unload(self) -> None:
        """Free everything and stop children. May be called twice, and before ``load``."""
