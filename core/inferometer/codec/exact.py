"""Simple values, exactly: no string is taken for a number, and no boolean for an integer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from inferometer.codec.mistakes import INTEGERS, Unlike, Wrong, close

Hook = Callable[[Any, Any], Any]
"""What cattrs calls with a value and the type that it is wanted as."""


def exactly(noun: str, *types: type, read: Hook | None = None, only: type | None = None) -> Hook:
    """Return a hook that refuses values of other types, and then reads.

    cattrs asks the hook of a class for what is derived from it, too (a ``StrEnum`` is a
    ``str``): with ``only``, such a type goes where it belongs.
    """

    def hook(value: Any, kind: Any) -> Any:
        if only and kind is not only:
            return _derived(value, kind)
        if type(value) not in types:
            raise Unlike(noun, value)
        return read(value, kind) if read else value

    return hook


def refusal(what: str) -> Hook:
    """Return a hook that takes nothing."""

    def hook(_value: Any, _: Any) -> Any:
        raise Wrong(what)

    return hook


def unreadable(kind: Any) -> Hook:
    """Return the hook of a type that no file can hold."""
    return refusal(f"no file can hold its type, {kind}")


@cache
def choice(kind: Any) -> Hook:
    """Return the hook of an enum (read from the value of a member) or of a literal."""
    members = get_args(kind) or kind
    values = {member.value if isinstance(member, Enum) else member: member for member in members}
    names = [str(value) for value in values]
    noun = f"one of {', '.join(names)}"

    def read(value: Any, _: Any) -> Any:
        if value not in values:
            raise Wrong(f"{Unlike(noun, value)}{close(value, names)}")
        return values[value]

    return exactly(noun, *{type(value) for value in values}, read=read)


def _derived(value: Any, kind: type) -> Any:
    return (choice if issubclass(kind, Enum) else unreadable)(kind)(value, kind)


def _integer(value: int, _: Any) -> int:
    if value not in INTEGERS:
        raise Wrong("expected an integer of at most 64 bits")
    return value


def _number(value: float, kind: Any) -> float:
    # JSON has neither infinity nor not-a-number.
    if not math.isfinite(_integer(value, kind) if isinstance(value, int) else value):
        raise Wrong(f"expected a finite number, got {value}")
    return float(value)


def _path(value: str, _: Any) -> Path:
    if not value or "\0" in value:
        raise Unlike("a path", value)
    return Path(value)


SIMPLE: Mapping[type, Hook] = {
    int: exactly("an integer", int, read=_integer, only=int),
    float: exactly("a number", float, int, read=_number, only=float),
    str: exactly("a string", str, only=str),
    bool: exactly("true or false", bool),
    NoneType: exactly("null", NoneType),
    Path: exactly("a path", str, read=_path, only=Path),
    bytes: _derived,
    Enum: _derived,
}
"""The hook of each class that a field may have."""
