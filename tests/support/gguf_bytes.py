"""Write small GGUF files, right or wrong on purpose; no code is shared with the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "?",
    U64: "Q",
    I64: "q",
    F64: "d",
}
ALIGNMENT = 32

TypedValue = tuple[int, Any]

METADATA: Mapping[str, TypedValue] = {
    "general.architecture": (STRING, "llama"),
    "llama.context_length": (U32, 2048),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, ["<s>", "</s>", "a", "b"])),
    "tokenizer.ggml.scores": (ARRAY, (F32, [0.0, 0.0, -1.0, -2.0])),
    "tokenizer.chat_template": (STRING, "{{ messages[0].content }}"),
}
"""A model's least: what every test starts from."""


def string(text: str | bytes, order: str = "<") -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(f"{order}Q", len(data)) + data


def value(kind: int, content: Any, order: str = "<") -> bytes:
    if kind == STRING:
        return string(content, order)
    if kind == ARRAY:
        inner, items = content
        head = struct.pack(f"{order}IQ", inner, len(items))
        return head + b"".join(value(inner, item, order) for item in items)
    return struct.pack(order + FORMATS[kind], content)


def entry(key: str | bytes, kind: int, content: Any, order: str = "<") -> bytes:
    return string(key, order) + struct.pack(f"{order}I", kind) + value(kind, content, order)


def tensor_row(
    name: str | bytes, shape: Sequence[int], type_id: int, offset: int, order: str = "<"
) -> bytes:
    dims = struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape)
    return string(name, order) + dims + struct.pack(f"{order}IQ", type_id, offset)


def header(
    tensors: int, entries: int, *, version: int = 3, magic: bytes = b"GGUF", order: str = "<"
) -> bytes:
    return magic + struct.pack(f"{order}IQQ", version, tensors, entries)


def padded(data: bytes, alignment: int = ALIGNMENT) -> bytes:
    return data + b"\0" * (-len(data) % alignment)


def gguf(
    metadata: Mapping[str, TypedValue] = METADATA,
    tensors: Sequence[tuple[str, Sequence[int], int, int]] = (("blk.0.w", (32, 4), 0, 512),),
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = ALIGNMENT,
) -> bytes:
    """Return a whole file; a tensor is its name, shape, type and number of data bytes."""
    head = header(len(tensors), len(metadata), version=version, order=order)
    body = b"".join(entry(key, *typed, order) for key, typed in metadata.items())
    rows, data = b"", b""
    for name, shape, type_id, length in tensors:
        rows += tensor_row(name, shape, type_id, len(data), order)
        data = padded(data + b"\x11" * length, alignment)
    return padded(head + body + rows, alignment) + data
