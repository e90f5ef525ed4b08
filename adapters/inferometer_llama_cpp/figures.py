"""Values out of a server's JSON, each of the type it must have, or None where it is not told.

Every function raises ``EngineError`` of kind ``bad_response`` for a value of another type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from inferometer import EngineError

Told = Mapping[str, Any]


def count(told: Told, name: str) -> int | None:
    """Return a whole number, 0 or more."""
    value = told.get(name)
    if value is None or (_is_int(value) and value >= 0):
        return value
    raise unreadable(name, value, "a count")


def number(told: Told, name: str) -> float | None:
    """Return a finite number, 0 or more."""
    value = told.get(name)
    if value is None or ((_is_int(value) or isinstance(value, float)) and 0 <= value < math.inf):
        return value
    raise unreadable(name, value, "a duration or a rate")


def text(told: Told, name: str) -> str | None:
    """Return a text."""
    value = told.get(name)
    if value is None or isinstance(value, str):
        return value
    raise unreadable(name, value, "a text")


def token_ids(told: Told, name: str) -> list[int]:
    """Return a list of token ids, empty where none is told."""
    value = told.get(name)
    if value is None:
        return []
    if isinstance(value, list) and all(map(_is_int, value)):
        return value
    raise unreadable(name, value, "a list of token ids")


def table(told: Told, name: str) -> Told:
    """Return an object, empty where none is told."""
    value = told.get(name)
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise unreadable(name, value, "an object")


def unreadable(name: str, value: Any, wanted: str) -> EngineError:
    """Return the error for a value that cannot be what its name says."""
    return EngineError(
        f"llama-server streamed {name} = {repr(value)[:80]}, which is not {wanted}",
        kind="bad_response",
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
