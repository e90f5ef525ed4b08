"""What exactly was measured, as the running engine tells it.

``None`` means unknown, and every unknown that a reader would look for has a sentence in
``unavailable``: nothing here is guessed from a file name.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import Factory, field, frozen

from inferometer.fields import Role, about

Scalar = str | int | float | bool | None


@frozen(kw_only=True)
class Tokenizer:
    """How the running engine turns text into ids."""

    vocab_size: int | None = field(
        default=None, metadata=about(Role.SUBJECT, "Number of ids in the vocabulary.")
    )
    bos_id: int | None = field(
        default=None, metadata=about(Role.SUBJECT, "Id of the begin-of-sequence token.")
    )
    bos_text: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Text of the begin-of-sequence token.")
    )
    eos_text: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Text of the end-of-sequence token.")
    )
    adds_bos: bool | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "Whether plain text is meant to start with that token."),
    )


@frozen(kw_only=True)
class EngineIdentity:
    """What exactly is measured, with effective options; asked once, after ``load``."""

    engine: str = field(metadata=about(Role.SUBJECT, "The engine's own name."))
    version: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Version of the engine's package.")
    )
    commit: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Source commit the engine was built from.")
    )
    build: str | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "How it was built: compiler, target, instruction sets."),
    )
    libraries: Mapping[str, str] = field(
        default=Factory(dict),
        metadata=about(Role.SUBJECT, "Versions of the libraries that decide speed."),
    )
    backend: str | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "What computes: cpu, metal, cuda, vulkan ... as it happened."),
    )
    device: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "The device's own description.")
    )
    architecture: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Model architecture the engine loaded.")
    )
    quantization: str | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "The engine's own word for the weights; never evidence."),
    )
    parameters: int | None = field(
        default=None, metadata=about(Role.SUBJECT, "Number of weights, as the engine counts them.")
    )
    context_tokens: int | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "Tokens that prompt and output of one request may hold."),
    )
    tokenizer: Tokenizer = field(
        default=Factory(Tokenizer), metadata=about(Role.SUBJECT, "The tokenizer in use.")
    )
    chat_template: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Text of the chat template in use.")
    )
    options: Mapping[str, Scalar] = field(
        default=Factory(dict),
        metadata=about(Role.SUBJECT, "Effective run-time options, after the engine's defaults."),
    )
    unavailable: Mapping[str, str] = field(
        default=Factory(dict),
        metadata=about(Role.PROVENANCE, "Why a field above is null, by field name."),
    )
