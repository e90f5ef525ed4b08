"""How a benchmark tells what it found."""

from __future__ import annotations

from statistics import median

from attrs import frozen


@frozen
class Line:
    """One finding beside what it must reach."""

    what: str
    found: str
    wanted: str

    def __str__(self) -> str:
        wanted = f"   (must reach: {self.wanted})" if self.wanted else ""
        return f"{self.what:<58} {self.found}{wanted}"


def spread(values: list[float], digits: int = 3) -> str:
    """Return median, range and n of values, as text."""
    low, middle, high = (f"{v:.{digits}g}" for v in (min(values), median(values), max(values)))
    return f"{middle} [{low} .. {high}], n={len(values)}"
