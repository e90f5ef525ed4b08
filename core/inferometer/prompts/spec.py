"""What is asked of the prompt builder, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from attrs import field, frozen, validators

from inferometer.fields import Role, about


class PromptSource(StrEnum):
    """Where a prompt comes from."""

    CHAT = "chat"
    """Corpus text as one user message under the model's own chat template."""
    RAW = "raw"
    """Corpus text alone."""
    IDS = "ids"
    """Token ids, given."""


class TextTokenizer(Protocol):
    """Whatever turns text into ids; every ``Engine`` does."""

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        """Return the ids of a text, adding none; ``special`` reads control tokens in it."""


@frozen(kw_only=True)
class PromptSpec:
    """The prompt of a workload."""

    source: PromptSource = field(
        default=PromptSource.CHAT, metadata=about(Role.WORKLOAD, "Where the prompt comes from.")
    )
    tokens: int = field(
        validator=validators.ge(1),
        metadata=about(Role.WORKLOAD, "Length of the whole prompt, template and all."),
    )
    ids: tuple[int, ...] = field(
        default=(), metadata=about(Role.WORKLOAD, "The ids themselves, for the source ids.")
    )

    @ids.validator
    def _only_when_given(self, _: object, ids: tuple[int, ...]) -> None:
        if ids and self.source is not PromptSource.IDS:
            raise ValueError(f'ids are for source = "ids", not for {self.source.value!r}')


@frozen(kw_only=True)
class BuiltPrompt:
    """A prompt, ready to be sent."""

    ids: tuple[int, ...] = field(metadata=about(Role.WORKLOAD, "The prompt, as it is sent."))
    digest: str = field(metadata=about(Role.WORKLOAD, "Digest of the ids."))
    exact: bool = field(
        metadata=about(Role.WORKLOAD, "Whether the prompt has the length that was asked for.")
    )
    source: PromptSource = field(metadata=about(Role.WORKLOAD, "Where the prompt comes from."))
    template_sha256: str | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "SHA-256 (hex) over the chat template's text, if used."),
    )
    corpus_version: str | None = field(
        default=None, metadata=about(Role.WORKLOAD, "Which corpus the text is from, if any.")
    )
    pinned_date: str | None = field(
        default=None,
        metadata=about(Role.WORKLOAD, "The date the chat template was told, if used."),
    )
