"""The append-only truth of a run: one JSON line per event, synced before the next begins.

Results are a fold of it. A torn last line (the machine went down, the disk was full) is left
out and cut off before anything is appended; a damaged line elsewhere is an error with its
number, since what follows it cannot be trusted to be complete.
"""

from __future__ import annotations

from pathlib import Path

from inferometer.journal.file import NAME, Journal, read
from inferometer.journal.fold import fold, planned_id
from inferometer.journal.records import (
    SCHEMA,
    Ended,
    Launched,
    Opened,
    Ready,
    Record,
    Sampled,
    Skipped,
    check_schema,
)
from inferometer.results import Results

__all__ = [
    "NAME",
    "SCHEMA",
    "Ended",
    "Journal",
    "Launched",
    "Opened",
    "Ready",
    "Record",
    "Sampled",
    "Skipped",
    "check_schema",
    "fold",
    "load",
    "planned_id",
    "read",
]


def load(path: Path) -> Results:
    """Return the results that the journal in a file amounts to.

    Raises:
        ResultsError: naming the file, and the line where there is one.
    """
    return fold(read(path), where=str(path))
