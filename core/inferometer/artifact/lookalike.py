"""What a file that is no GGUF looks like: the difference between a riddle and an answer."""

from __future__ import annotations

import struct

HEAD_BYTES = 512
"""How much of a file's start is enough to tell."""

_BY_PREFIX = (
    (b"PK\x03\x04", "a zip archive, which is how PyTorch saves; convert the model to GGUF first"),
    (b"version https://git-lfs", "a git-lfs pointer; fetch the model itself with 'git lfs pull'"),
    (b"\x80\x02", "a Python pickle; convert the model to GGUF first"),
    (b"\x80\x03", "a Python pickle; convert the model to GGUF first"),
    (b"\x80\x04", "a Python pickle; convert the model to GGUF first"),
    (b"\x80\x05", "a Python pickle; convert the model to GGUF first"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
    (b"lmgg", "a model from before GGUF; convert it again from its source"),
    (b"fmgg", "a model from before GGUF; convert it again from its source"),
    (b"tjgg", "a model from before GGUF; convert it again from its source"),
)
_BY_MARKUP = (
    (b"<!doctype html", "an HTML page, as a failed download leaves it; download the model again"),
    (b"<html", "an HTML page, as a failed download leaves it; download the model again"),
    (b"<?xml", "an XML answer, as a failed download leaves it; download the model again"),
    (b"{", "JSON text; a folder model is named by its folder, not by a file in it"),
)
_SAFETENSORS = "a safetensors file; give the folder that holds it and its config.json"
_LENGTH = struct.Struct("<Q")


def looks_like(head: bytes, size: int) -> str:
    """Return what a file seems to be and what to do, from its first bytes and its size."""
    if _is_safetensors(head, size):
        return f"It looks like {_SAFETENSORS}."
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for start, table in ((head, _BY_PREFIX), (text, _BY_MARKUP)):
        for prefix, description in table:
            if start.startswith(prefix):
                return f"It looks like {description}."
    return f"It starts with {head[:8]!r}; give a .gguf file or a folder with a config.json."


def _is_safetensors(head: bytes, size: int) -> bool:
    # A length, and then that many bytes of JSON.
    if head[_LENGTH.size : _LENGTH.size + 1] != b"{":
        return False
    (length,) = _LENGTH.unpack_from(head)
    return bool(length <= size - _LENGTH.size)
