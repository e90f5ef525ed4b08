"""Read a GGUF file's header: metadata and tensor table, never the weights.

The file may be damaged, cut short, or made to do harm; what it says about its own size is
checked before it is believed.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from inferometer.artifact.cursor import Cursor, Value
from inferometer.artifact.ggml_types import TENSOR_TYPES, type_name
from inferometer.artifact.lookalike import HEAD_BYTES, looks_like
from inferometer.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 65_536
MAX_TENSORS = 2**18
MAX_DIMENSIONS = 8
MAX_PARAMETERS = 2**53
"""Per file. More weights than this are not kept anywhere, and JSON numbers stay exact."""

_DEFAULT_ALIGNMENT = 32
_SHORTEST_ENTRY = 8 + 4 + 1
_SHORTEST_TENSOR = 8 + 4 + 4 + 8


@frozen
class Tensor:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]
    """Row length first, as the file has it."""
    type_id: int
    offset: int
    """Where its data starts, in bytes from the start of all tensor data."""

    @property
    def type_name(self) -> str:
        return type_name(self.type_id)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def stored_bytes(self) -> int | None:
        """Bytes its data takes, or None when the type is unknown."""
        known = TENSOR_TYPES.get(self.type_id)
        return self.elements // known.block * known.bytes if known else None


@frozen(kw_only=True)
class Header:
    """What one GGUF file says before its weights."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    """Scalars and texts; arrays and very long texts are left out."""
    tensors: tuple[Tensor, ...]
    header_bytes: int
    """Length of metadata and tensor table together, from the start of the file."""
    file_bytes: int


def read_header(path: Path) -> Header:
    """Return the header of one file, checked against the file's size.

    Raises:
        ModelError: not a GGUF file, one that no engine here can load, damaged, or cut short.
    """
    with path.open("rb") as file:
        _check_magic(path, file.read(HEAD_BYTES), os.fstat(file.fileno()).st_size)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _header(path, Cursor(path, data))
    _check_data(header)
    return header


def _check_magic(path: Path, head: bytes, size: int) -> None:
    if not head:
        raise ModelError(f"{path}: is empty; download the model again")
    if not head.startswith(MAGIC):
        raise ModelError(f"{path}: is not a GGUF file. {looks_like(head, size)}")


def _header(path: Path, cursor: Cursor) -> Header:
    cursor.skip(len(MAGIC), "the magic")
    version = _version(cursor)
    tensors = cursor.count("tensors", MAX_TENSORS, _SHORTEST_TENSOR)
    entries = cursor.count("metadata entries", MAX_ENTRIES, _SHORTEST_ENTRY)
    return Header(
        path=path,
        version=version,
        metadata=_metadata(cursor, entries),
        tensors=_tensors(cursor, tensors),
        header_bytes=cursor.at,
        file_bytes=cursor.size,
    )


def _version(cursor: Cursor) -> int:
    version = cursor.u32("the version")
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version & 0xFFFF == 0 and swapped:
        raise cursor.error(
            f"is a big-endian GGUF file (version {swapped}), which engines on this kind of "
            "machine cannot load; get the little-endian file, or convert it"
        )
    if version == 1:
        raise cursor.error(
            "is a GGUF file of version 1, which engines no longer load; "
            "convert the model again from its source"
        )
    raise cursor.error(
        f"says it is GGUF version {version}, but only 2 and 3 are known; "
        "the file is damaged, or newer than this tool"
    )


def _metadata(cursor: Cursor, entries: int) -> dict[str, Value]:
    found: dict[str, Value | None] = {}
    for _ in range(entries):
        key = cursor.name("a metadata key")
        if key in found:
            raise cursor.damaged(f"the metadata key {key!r} is there twice")
        found[key] = cursor.value(key)
    return {key: value for key, value in found.items() if value is not None}


def _tensors(cursor: Cursor, count: int) -> tuple[Tensor, ...]:
    found: dict[str, Tensor] = {}
    for _ in range(count):
        tensor = _tensor(cursor)
        if tensor.name in found:
            raise cursor.damaged(f"the tensor {tensor.name!r} is there twice")
        found[tensor.name] = tensor
    if sum(tensor.elements for tensor in found.values()) > MAX_PARAMETERS:
        raise cursor.damaged("the tensors announce more weights than any file can hold")
    return tuple(found.values())


def _tensor(cursor: Cursor) -> Tensor:
    name = cursor.name("a tensor's name")
    rank = cursor.u32("a number of dimensions")
    if rank > MAX_DIMENSIONS:
        raise cursor.damaged(f"the tensor {name!r} has {rank} dimensions")
    shape = tuple(cursor.u64("a tensor's shape") for _ in range(rank))
    tensor = Tensor(name, shape, cursor.u32("a tensor's type"), cursor.u64("a tensor's offset"))
    known = TENSOR_TYPES.get(tensor.type_id)
    row = shape[0] if shape else 1
    if known and row % known.block:
        raise cursor.damaged(
            f"the rows of {name!r} have {row} weights, not a multiple of the {known.block} "
            f"that {known.name} keeps together"
        )
    return tensor


def _check_data(header: Header) -> None:
    alignment = header.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelError(
            f"{header.path}: general.alignment is {alignment!r}, not a power of two; "
            "the file is damaged, download the model again"
        )
    start = math.ceil(header.header_bytes / alignment) * alignment
    expected = max((start + t.offset + (t.stored_bytes or 0) for t in header.tensors), default=0)
    if expected > header.file_bytes:
        raise ModelError(
            f"{header.path}: is cut short: its tensors need {expected} bytes, "
            f"but the file has {header.file_bytes}; download the model again"
        )
