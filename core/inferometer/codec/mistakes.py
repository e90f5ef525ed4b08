"""What is wrong in data: found all at once, each mistake with its path."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any

import attrs
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
    StructureHandlerNotFoundError,
)

from inferometer.errors import suggestion

INTEGERS = range(-(2**63), 2**64)
"""Beyond these, JSON libraries disagree about a number."""

_MOST_PROBLEMS = 50
_SHOWN_LENGTH = 60


class StructureError(ValueError):
    """Data does not have the asked shape; ``problems`` are ``path: what`` lines."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Wrong(ValueError):  # noqa: N818 - a finding on its way up, never seen outside
    """What is wrong in a value, for a person."""


class Unlike(Wrong):
    """A value is of another type than ``noun`` says."""

    def __init__(self, noun: str, value: Any) -> None:
        super().__init__(f"expected {noun}, got {shown(value)}")
        self.noun = noun


MISTAKES = (Wrong, BaseValidationError, StructureHandlerNotFoundError)
"""What is raised for data that is wrong."""


def problems(error: Exception) -> list[str]:
    """Return the mistakes as ``path: what`` lines; of very many, the first."""
    lines = list(_lines(error, "$"))
    more = len(lines) - _MOST_PROBLEMS
    return lines if more <= 0 else [*lines[:_MOST_PROBLEMS], f"and {more} more mistakes"]


def _lines(error: Exception, path: str) -> Iterator[str]:
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _lines(inner, path + _step(inner, error.cl))
    elif isinstance(error, ForbiddenExtraKeysError):
        known = [field.alias for field in attrs.fields(error.cl) if field.init]
        for key in sorted(error.extra_fields, key=str):
            yield f"{path}.{key}: unknown key{suggestion(str(key), known)}"
    elif isinstance(error, KeyError) and hasattr(error, "__notes__"):
        yield f"{path}: required, but missing"
    else:
        yield f"{path}: {reason(error)}"


def _step(error: Exception, kind: Any) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f".{attrs.fields_dict(kind)[note.name].alias}"
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]" if isinstance(note.index, int) else f".{note.index}"
    return ""


def reason(error: Exception) -> str:
    """Return what an error says; some validators put more behind their sentence."""
    return str(error.args[0]) if error.args else type(error).__name__


def close(name: Any, known: list[str]) -> str:
    """Return ``; did you mean 'x'?`` for a close name, or nothing."""
    hint = suggestion(str(name), known)
    return hint if hint.startswith("; did") else ""


def one_of(nouns: list[str]) -> str:
    """Return ``a, b or c``."""
    return " or ".join(part for part in (", ".join(nouns[:-1]), *nouns[-1:]) if part)


def shown(value: Any) -> str:
    """Return a parsed value as its writer would know it."""
    if isinstance(value, bool | NoneType):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, int) and value not in INTEGERS:
        return "an integer beyond 64 bits"
    text = repr(value[: _SHOWN_LENGTH + 1]) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
