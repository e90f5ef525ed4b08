"""Suites and subjects as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
from attrs import Factory, field, frozen

from inferometer.codec import digest
from inferometer.engine import Sampling
from inferometer.fields import Role, about, about_of
from inferometer.identity import Scalar
from inferometer.prompts import PromptSource
from inferometer.suite import checks

SUITE_SCHEMA = "inferometer.suite/1"
SUBJECTS_SCHEMA = "inferometer.subjects/1"


def _in_order(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    return tuple(sorted(conditions, key=list(Condition).index))


class Condition(StrEnum):
    """What a round measures of a workload."""

    LOAD = "load"
    """A fresh process: spawn, import, prepare, load, first request."""
    COLD = "cold"
    """Model resident, nothing of the prompt reused."""
    REUSE = "reuse"
    """The very same prompt again."""
    CONTROL = "control"
    """An unseen prompt after ``reuse``: what the gain would be without reuse."""


@frozen(kw_only=True)
class Workload:
    """One thing asked: prompt length, output length, sampling."""

    name: str = field(
        validator=checks.name,
        metadata=about(Role.WORKLOAD, "Name, unique in the suite."),
    )
    prompt: PromptSource = field(
        default=PromptSource.CHAT,
        metadata=about(
            Role.WORKLOAD,
            "chat: text under the model's own template; raw: text alone; ids: the given token ids.",
        ),
    )
    prompt_tokens: int | None = field(
        default=None,
        validator=checks.between(1, checks.MAX_TOKENS),
        metadata=about(Role.WORKLOAD, "Length of the whole prompt in tokens, template included."),
    )
    ids: tuple[int, ...] = field(
        default=(),
        validator=checks.token_ids,
        metadata=about(Role.WORKLOAD, 'The prompt itself, for prompt = "ids" only.'),
    )
    output_tokens: int = field(
        validator=checks.between(1, checks.MAX_TOKENS),
        metadata=about(Role.WORKLOAD, "Output length asked for."),
    )
    ignore_eos: bool = field(
        default=True, metadata=about(Role.WORKLOAD, "Go on past the end token, for a fixed length.")
    )
    sampling: Sampling = field(
        default=Sampling(), metadata=about(Role.WORKLOAD, "How tokens are chosen.")
    )
    warmup: int = field(
        default=1,
        validator=checks.between(0, checks.MAX_WARMUP),
        metadata=about(Role.WORKLOAD, "Uncounted requests of this shape before the first counted."),
    )

    def __attrs_post_init__(self) -> None:
        given = self.prompt is PromptSource.IDS
        if given and (not self.ids or self.prompt_tokens is not None):
            raise ValueError('prompt = "ids" takes `ids` and no `prompt_tokens`')
        if not given and (self.ids or self.prompt_tokens is None):
            raise ValueError(f'prompt = "{self.prompt}" takes `prompt_tokens` and no `ids`')

    @property
    def length(self) -> int:
        """Return the prompt's length in tokens."""
        return len(self.ids) if self.prompt_tokens is None else self.prompt_tokens

    @property
    def total_tokens(self) -> int:
        """Return the room it needs in the context, in tokens."""
        return self.length + self.output_tokens


@frozen(kw_only=True)
class Suite:
    """What is asked of everyone."""

    schema: str = field(
        default=SUITE_SCHEMA,
        validator=checks.format_of(SUITE_SCHEMA),
        metadata=about(Role.PROVENANCE, "Name and version of this format."),
    )
    name: str = field(
        validator=checks.name,
        metadata=about(Role.PROVENANCE, "Name of the suite."),
    )
    description: str = field(
        default="", metadata=about(Role.PROVENANCE, "What it is for, in a sentence.")
    )
    rounds: int = field(
        default=5,
        validator=checks.between(1, checks.MAX_ROUNDS),
        metadata=about(
            Role.WORKLOAD, "Fresh processes per subject; each measures every cell once."
        ),
    )
    seed: int = field(
        default=1,
        validator=checks.between(0, checks.MAX_SEED),
        metadata=about(Role.WORKLOAD, "Decides the prompts' text, the same on every machine."),
    )
    conditions: tuple[Condition, ...] = field(
        default=tuple(Condition),
        converter=_in_order,
        validator=checks.some,
        metadata=about(Role.WORKLOAD, "What a round measures, in whatever order it is written."),
    )
    workloads: tuple[Workload, ...] = field(
        validator=checks.some, metadata=about(Role.WORKLOAD, "What is asked.")
    )

    def __attrs_post_init__(self) -> None:
        checks.require_unique("workload", (workload.name for workload in self.workloads))
        checks.require_unique("condition", self.conditions)

    @property
    def digest(self) -> str:
        """Return the digest that proves two machines were asked the identical things.

        Names for people and values left at their default are not part of it: correcting a
        description, or a key that a later version adds, changes no digest.
        """
        return digest({"schema": SUITE_SCHEMA, **_asked(self)})


@frozen(kw_only=True)
class Subject:
    """Of whom it is asked: engine, model, options, interpreter."""

    name: str = field(
        validator=checks.name,
        metadata=about(Role.PROVENANCE, "Name, unique in the run."),
    )
    engine: str = field(
        validator=checks.filled, metadata=about(Role.SUBJECT, "Name of the adapter.")
    )
    model: Path = field(
        validator=checks.encodable,
        metadata=about(Role.PROVENANCE, "Model file or folder on this machine."),
    )
    options: Mapping[str, Scalar | list[Scalar]] = field(
        default=Factory(dict), metadata=about(Role.SUBJECT, "Options of the adapter, as written.")
    )
    python: str | None = field(
        default=None,
        validator=checks.filled,
        metadata=about(Role.PROVENANCE, "Interpreter to run the engine in; null is this one."),
    )


@frozen(kw_only=True)
class Subjects:
    """A subjects file."""

    schema: str = field(
        default=SUBJECTS_SCHEMA,
        validator=checks.format_of(SUBJECTS_SCHEMA),
        metadata=about(Role.PROVENANCE, "Name and version of this format."),
    )
    subjects: tuple[Subject, ...] = field(
        validator=checks.some, metadata=about(Role.SUBJECT, "Of whom it is asked.")
    )

    def __attrs_post_init__(self) -> None:
        checks.require_unique("subject", (subject.name for subject in self.subjects))


def _asked(value: Any) -> Any:
    """Return what is asked as plain data, without names for people and without defaults."""
    if isinstance(value, tuple):
        return [_asked(item) for item in value]
    if not attrs.has(type(value)):
        return value
    found = ((f, getattr(value, f.name)) for f in attrs.fields(type(value)) if _asks(f))
    return {f.name: _asked(item) for f, item in found if item != f.default}


def _asks(attribute: attrs.Attribute[Any]) -> bool:
    about = about_of(attribute)
    return about is not None and about.role is Role.WORKLOAD
