"""The value that describes a model on disk."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import Factory, field, frozen

from inferometer.fields import Role, about


class ModelFormat(StrEnum):
    """How a model is kept on disk."""

    GGUF = "gguf"
    DIRECTORY = "directory"
    """A folder with a ``config.json``: Hugging Face, MLX and their kin."""


@frozen(kw_only=True)
class ModelArtifact:
    """What the files of a model say about it. Null means unknown, with a reason."""

    format: ModelFormat = field(metadata=about(Role.SUBJECT, "How the model is kept on disk."))
    name: str = field(
        metadata=about(Role.PROVENANCE, "File or folder name, without its path; never evidence.")
    )
    files: int = field(
        metadata=about(Role.PROVENANCE, "Number of files: the shards, or what the folder holds.")
    )
    size_bytes: int = field(metadata=about(Role.SUBJECT, "Size of those files together."))
    architecture: str | None = field(
        default=None, metadata=about(Role.SUBJECT, "Model architecture the file names.")
    )
    context_tokens: int | None = field(
        default=None, metadata=about(Role.SUBJECT, "Context length the model was trained for.")
    )
    parameters: int | None = field(
        default=None, metadata=about(Role.SUBJECT, "Number of weights in all tensors together.")
    )
    tensor_types: Mapping[str, int] | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "Number of weights stored as each tensor type."),
    )
    header_sha256: str | None = field(
        default=None,
        metadata=about(
            Role.SUBJECT, "SHA-256 (hex) over metadata and tensor table, shards in order."
        ),
    )
    chat_template_sha256: str | None = field(
        default=None,
        metadata=about(Role.SUBJECT, "SHA-256 (hex) over the text of the chat template."),
    )
    unavailable: Mapping[str, str] = field(
        default=Factory(dict),
        metadata=about(Role.PROVENANCE, "Why a field above is null, by field name."),
    )
