"""What a value in a suite or subjects file has to be, beyond its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Names become parts of file names: short, and no path in them."""

MAX_ROUNDS = 1000
MAX_WARMUP = 100
MAX_TOKENS = 2**24
"""More than any context holds; what is beyond these limits is a slip of the keyboard."""
MAX_SEED = 2**32 - 1
MAX_ID = 2**31 - 1


@frozen
class Check:
    """A validator that says in a JSON Schema, too, what it demands."""

    keywords: Mapping[str, Any]
    right: Callable[[Any], bool]
    demand: str

    def __call__(self, _: Any, __: Any, value: Any) -> None:
        if value is not None and not self.right(value):
            got = "" if isinstance(value, tuple) else f", got {value!r}"
            raise ValueError(f"{self.demand}{got}")


def between(low: int, high: int) -> Check:
    """Return a check of a number."""
    limits = {"minimum": low, "maximum": high}
    return Check(limits, lambda number: low <= number <= high, f"expected {low} to {high}")


def format_of(schema: str) -> Check:
    """Return a check of a file's format and version."""
    return Check({"const": schema}, schema.__eq__, f"this Inferometer reads {schema}")


name = Check(
    {"pattern": f"^{NAME_PATTERN}$"},
    lambda text: re.fullmatch(NAME_PATTERN, text) is not None,
    "expected letters, digits, '.', '_' and '-', 64 at most, a letter or a digit first",
)
some = Check({"minItems": 1}, bool, "name at least one")
filled = Check({"minLength": 1}, bool, "must not be empty")
encodable = Check(
    {},
    lambda path: path == Path(str(path).encode("utf-8", "replace").decode()),
    "no file can hold a path that is not UTF-8",
)
token_ids = Check(
    {"items": {"type": "integer", "minimum": 0, "maximum": MAX_ID}, "maxItems": MAX_TOKENS},
    lambda ids: len(ids) <= MAX_TOKENS and all(0 <= number <= MAX_ID for number in ids),
    f"expected at most {MAX_TOKENS} ids of 0 to {MAX_ID}",
)


def require_unique(what: str, names: Iterable[str]) -> None:
    """Refuse a name that is there twice, also where only case differs: some disks see no case.

    Raises:
        ValueError: naming it.
    """
    seen: set[str] = set()
    for text in names:
        if text.casefold() in seen:
            raise ValueError(f"two {what}s are named {str(text)!r}")
        seen.add(text.casefold())
