"""Describe a model folder from its ``config.json``: what planning needs, and no more yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferometer.artifact.files import folder_files, printable
from inferometer.artifact.model import ModelArtifact, ModelFormat
from inferometer.codec import from_json
from inferometer.errors import ModelError

CONFIG = "config.json"
MAX_CONFIG_BYTES = 16 * 2**20

_CONTEXT = "max_position_embeddings"
_NOT_READ = "not read from a model folder by this version"


def describe_directory(folder: Path) -> ModelArtifact:
    """Return what a model folder says.

    Raises:
        ModelError: no ``config.json``, or one that cannot be read.
    """
    files = folder_files(folder)
    config = _config(folder, files)
    context = _context(config)
    unavailable = dict.fromkeys(
        ("architecture", "parameters", "tensor_types", "header_sha256", "chat_template_sha256"),
        _NOT_READ,
    )
    if context is None:
        unavailable["context_tokens"] = f"{CONFIG} has no {_CONTEXT} that is a positive integer"
    return ModelArtifact(
        format=ModelFormat.DIRECTORY,
        name=printable(folder.resolve().name),
        files=len(files),
        size_bytes=sum(file.stat().st_size for file in files),
        context_tokens=context,
        unavailable=unavailable,
    )


def _config(folder: Path, files: tuple[Path, ...]) -> Mapping[str, Any]:
    path = folder / CONFIG
    if path not in files:
        raise ModelError(f"{folder}: is a folder without {CONFIG}; {_instead(files)}")
    with path.open("rb") as file:
        text = file.read(MAX_CONFIG_BYTES)
    try:
        config = from_json(text)
    except ValueError as error:
        raise ModelError(f"{path}: is not JSON: {error}; download the model again") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path}: holds no table of settings; download the model again")
    return config


def _instead(files: tuple[Path, ...]) -> str:
    for file in files:
        if file.suffix == ".gguf":
            return f"name the model file in it, for example {file.name}"
    return "give a .gguf file, or the folder that holds the model's config"


def _context(config: Mapping[str, Any]) -> int | None:
    """Return the trained context; models that also see or hear keep it one level down."""
    for place in (config, config.get("text_config")):
        found = place.get(_CONTEXT) if isinstance(place, dict) else None
        if type(found) is int and found > 0:
            return found
    return None
