"""Numbers, names and codes as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inferometer.identity import EngineIdentity
from inferometer.judge import EXCLUSIONS, SHORTCOMINGS
from inferometer.metrics import REASONS
from inferometer.results import Results, Sample, SubjectRecord
from inferometer.summary import FLAGS

_WHOLE_FROM = 1000  # digits that a measurement never has are not shown
_ROUNDS_UP_FROM = 0.9995  # three digits of what is less are not the next unit's 1
_NS, _US, _MS = 1e-9, 1e-6, 1e-3
_SHOWN_SHARE = 0.005  # up to here a share rounds to 0 %

_SENTENCES: Mapping[str, str] = {
    **REASONS,
    **EXCLUSIONS,
    **SHORTCOMINGS,
    "not_measured": "the run ended before it was measured",
}


def plain(words: str) -> str:
    """Return data as one line that cannot steer a terminal: control characters are spelled out."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in words
    )


def value(number: float, unit: str) -> str:
    """Return a number in a unit fit for its size."""
    if unit == "s":
        return _seconds(number)
    if unit == "tokens/s":
        return f"{_rounded(number)} tok/s"
    if unit == "tokens":
        return f"{number:.15g}"
    return _rounded(number)


def reason(code: str) -> str:
    """Return why something has no value, as a sentence where the code is one of ours."""
    return _SENTENCES.get(code) or plain(code)


def meaning(code: str) -> str | None:
    """Return what a flag or a reason says, or None for one that speaks for itself."""
    return FLAGS.get(code) or _SENTENCES.get(code)


def counted(numbers: Mapping[str, int]) -> str:
    """Return codes with how often each came."""
    return ", ".join(f"{plain(code)} x{number}" for code, number in numbers.items())


def counts(sample: Sample) -> str:
    """Return the token counts of a request, ours beside the engine's."""
    ending = sample.ending
    told = (ending.prompt_tokens, ending.output_tokens) if ending else (None, None)
    cached = ending.cached_prompt_tokens if ending else None
    streamed = sample.arrivals.tokens
    return (
        f"asked for {sample.prompt_tokens} prompt and {sample.max_output_tokens} output tokens, "
        f"the engine counts {_known(told[0])} and {_known(told[1])}, {_known(cached)} from cache; "
        f"{_known(None if streamed is None else sum(streamed))} arrived"
    )


def label(record: SubjectRecord, results: Results) -> str:
    """Return who was measured: engine, build, model and the weights it really holds.

    A name that is the same as the one before it is told once.
    """
    subject, identity = record.subject, _identity(record, results)
    build = ["never loaded"]
    if identity:
        build = [] if identity.engine == subject.engine else [identity.engine]
        build += [identity.version or "of unknown version"]
        build += [f"on {identity.backend}"] if identity.backend else []
    who = " ".join(build)
    if subject.name != subject.engine:
        same = identity and identity.engine == subject.engine
        who = f"{subject.engine} {who}" if same else f"{subject.engine} ({who})"
    return plain(f"{who}, {weights(record)}")


def options(record: SubjectRecord, results: Results) -> list[str]:
    """Return the options in effect, and those written that are not in effect as written."""
    identity, written = _identity(record, results), record.subject.options
    effective = identity.options if identity else {}
    other = {
        name: value
        for name, value in written.items()
        if name not in effective or effective[name] != value
    }
    lines = [_settings(effective)] if effective else []
    return [*lines, f"written: {_settings(other)}"] if other else lines


def _identity(record: SubjectRecord, results: Results) -> EngineIdentity | None:
    identities = (la.identity for la in results.launches if la.subject == record.subject.name)
    return next((known for known in identities if known), None)


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(plain(f"{name}={_setting(value)}") for name, value in values.items())


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "unknown" if value is None else str(value)


def weights(record: SubjectRecord) -> str:
    """Return the model's name, size and what its tensors are, never a "4-bit"."""
    artifact = record.artifact
    types = artifact.tensor_types or {}
    total = sum(types.values())
    mix = ", ".join(
        f"{100 * count / total:.0f} % {name}"
        for name, count in sorted(types.items(), key=lambda item: -item[1])
        if total and count / total > _SHOWN_SHARE
    )
    return f"{artifact.name} [{mix or 'weights unknown'}; {size(artifact.size_bytes)}]"


def size(number_of_bytes: int) -> str:
    """Return a size in a unit fit for it."""
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        shown = number_of_bytes / scale
        if shown >= _ROUNDS_UP_FROM:
            return f"{shown:.3g} {unit}" if shown < _WHOLE_FROM - 0.5 else f"{shown:.0f} {unit}"
    return number(number_of_bytes, "byte")


def number(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s unless it is one."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(words: Iterable[str]) -> str:
    """Return words in order, with commas."""
    return ", ".join(sorted(plain(word) for word in words))


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _seconds(number: float) -> str:
    for scale, unit in ((1.0, "s"), (_MS, "ms"), (_US, "µs")):
        if abs(number) >= scale:
            return f"{_rounded(number / scale)} {unit}"
    return f"{_rounded(number / _NS)} ns" if number else "0 s"


def _rounded(number: float) -> str:
    return f"{number:.4g}" if abs(number) < _WHOLE_FROM else f"{number:.0f}"
