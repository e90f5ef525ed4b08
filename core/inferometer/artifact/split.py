"""Join the shards of a split GGUF model into one.

Counts differ in what they count: ``split.no`` starts at 0 where file names start at 1, and
``split.tensors.count`` is the total over all shards. Only the first shard has the model's
metadata, and it may hold no tensor at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from attrs import frozen

from inferometer.artifact.cursor import Value
from inferometer.artifact.files import shard_paths
from inferometer.artifact.gguf import Header, Tensor, read_header
from inferometer.errors import ModelError


@frozen
class GgufModel:
    """A whole model: one file, or all shards in order."""

    shards: tuple[Header, ...]

    @property
    def metadata(self) -> Mapping[str, Value]:
        return self.shards[0].metadata

    @property
    def tensors(self) -> Iterable[Tensor]:
        return chain.from_iterable(shard.tensors for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        return sum(shard.file_bytes for shard in self.shards)

    def header_sha256(self) -> str:
        """Return the digest (hex) over all headers, in order; the headers are read again."""
        digest = hashlib.sha256()
        for shard in self.shards:
            with shard.path.open("rb") as file:
                digest.update(file.read(shard.header_bytes))
        return digest.hexdigest()


def read_model(path: Path) -> GgufModel:
    """Return the model a file is, or is a shard of.

    Raises:
        ModelError: any shard is missing, damaged, or belongs to another model.
    """
    shards = tuple(read_header(shard) for shard in shard_paths(path))
    model = GgufModel(shards)
    for number, shard in enumerate(shards):
        _check_place(shard, number, len(shards))
    _check_tensors(model)
    return model


def _check_place(shard: Header, number: int, total: int) -> None:
    says_total = shard.metadata.get("split.count", total)
    says_number = shard.metadata.get("split.no", number)
    # A file that was never split may say so, or say nothing.
    if total == 1 and says_total in (0, 1):
        return
    if says_total != total:
        raise ModelError(
            f"{shard.path}: says it is one of {says_total} shards, but {total} are named; shards "
            "are found by name, so give them back the names they had (NAME-00001-of-00003.gguf)"
        )
    if says_number != number:
        raise ModelError(
            f"{shard.path}: is named shard {number + 1}, but says it is shard "
            f"{says_number + 1 if type(says_number) is int else says_number!r}; "
            "give the shards back the names they had"
        )


def _check_tensors(model: GgufModel) -> None:
    first = model.shards[0].path
    names = [tensor.name for tensor in model.tensors]
    announced = model.metadata.get("split.tensors.count", len(names))
    if not names:
        raise ModelError(f"{first}: holds no tensors, so it is no model; download it again")
    if len(set(names)) != len(names):
        raise ModelError(f"{first}: its shards hold the same tensor twice; download them again")
    if len(model.shards) > 1 and announced != len(names):
        raise ModelError(
            f"{first}: announces {announced} tensors, but its shards hold {len(names)}; "
            "they are not shards of one model"
        )
