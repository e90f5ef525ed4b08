"""Values to JSON and to a digest of it; JSON to plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson


def to_json(value: Any, *, pretty: bool = False) -> bytes:
    """Return a value as JSON, in field order.

    Raises:
        TypeError: it holds something that JSON cannot.
    """
    return _dump(value, orjson.OPT_INDENT_2 if pretty else 0)


def from_json(data: bytes | bytearray | memoryview | str) -> Any:
    """Return parsed JSON.

    Raises:
        ValueError: the text is not JSON; the message names line and column.
    """
    return orjson.loads(data)


def digest(value: Any) -> str:
    """Return ``sha256:…`` over the canonical JSON of a value (sorted keys, no blanks)."""
    return f"sha256:{hashlib.sha256(_dump(value, orjson.OPT_SORT_KEYS)).hexdigest()}"


def _dump(value: Any, option: int) -> bytes:
    return orjson.dumps(value, default=_plain, option=option | orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    kind = type(value)
    if attrs.has(kind):
        return {field.name: getattr(value, field.name) for field in attrs.fields(kind)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{kind.__name__} is not a JSON value")
