"""From a path to a description of the model there."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from inferometer.artifact.cursor import Value
from inferometer.artifact.directory import describe_directory
from inferometer.artifact.files import is_folder, printable
from inferometer.artifact.model import ModelArtifact, ModelFormat
from inferometer.artifact.split import GgufModel, read_model
from inferometer.errors import ModelError

ARCHITECTURE = "general.architecture"
CHAT_TEMPLATE = "tokenizer.chat_template"


def inspect_model(path: Path) -> ModelArtifact:
    """Return what the files at a path say about the model they hold; weights are not read.

    Any shard stands for its whole split model.

    Raises:
        ModelError: nothing there, not a model, damaged, or cut short.
    """
    try:
        if is_folder(path):
            return describe_directory(path)
        return _describe_gguf(path, read_model(path))
    except OSError as error:
        culprit, reason = error.filename or path, error.strerror or error
        raise ModelError(f"{culprit}: cannot be read: {reason}") from None


def _describe_gguf(path: Path, model: GgufModel) -> ModelArtifact:
    unavailable: dict[str, str] = {}
    architecture = _architecture(model.metadata, unavailable)
    types: Counter[str] = Counter()
    for tensor in model.tensors:
        types[tensor.type_name] += tensor.elements
    return ModelArtifact(
        format=ModelFormat.GGUF,
        name=printable(path.name),
        files=len(model.shards),
        size_bytes=model.size_bytes,
        architecture=architecture,
        context_tokens=_context(model.metadata, architecture, unavailable),
        parameters=types.total(),
        tensor_types=dict(sorted(types.items())),
        header_sha256=model.header_sha256(),
        chat_template_sha256=_template(model.metadata, unavailable),
        unavailable=unavailable,
    )


def _architecture(metadata: Mapping[str, Value], unavailable: dict[str, str]) -> str | None:
    found = metadata.get(ARCHITECTURE)
    if isinstance(found, str) and found:
        return found
    unavailable["architecture"] = f"the file has no {ARCHITECTURE}"
    return None


def _context(
    metadata: Mapping[str, Value], architecture: str | None, unavailable: dict[str, str]
) -> int | None:
    key = f"{architecture or '<architecture>'}.context_length"
    found = metadata.get(key)
    if type(found) is int and found > 0:
        return found
    unavailable["context_tokens"] = f"the file has no {key} that is a positive integer"
    return None


def _template(metadata: Mapping[str, Value], unavailable: dict[str, str]) -> str | None:
    found = metadata.get(CHAT_TEMPLATE)
    if isinstance(found, str) and found:
        return hashlib.sha256(found.encode()).hexdigest()
    unavailable["chat_template_sha256"] = f"the file has no {CHAT_TEMPLATE}"
    return None
