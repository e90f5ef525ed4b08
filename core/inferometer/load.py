"""Read and write results: a results file, or a run's folder with whatever its journal holds."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inferometer import journal
from inferometer.codec import StructureError, from_json, structure, to_json
from inferometer.errors import ResultsError
from inferometer.results import SCHEMA, Results

RESULTS_NAME = "results.json"


def load_results(path: Path) -> Results:
    """Return the results of a run's folder, of a results file, or of a journal.

    Raises:
        ResultsError: naming the file and what is wrong with it.
    """
    if path.is_dir():
        return _from_folder(path)
    if path.suffix == ".jsonl":
        return journal.load(path)
    return parse_results(_read(path), where=str(path))


def parse_results(data: bytes, *, where: str) -> Results:
    """Return results from JSON; unknown keys of a newer minor version are skipped.

    Raises:
        ResultsError: naming every mistake.
    """
    try:
        parsed = from_json(data)
    except ValueError as error:
        raise ResultsError(f"{where}: not valid JSON: {error}") from None
    try:
        journal.check_schema(parsed, SCHEMA)
        with _collector_at_rest():
            return structure(parsed, Results, strict=False)
    except StructureError as error:
        raise ResultsError("\n".join(f"{where}: {line}" for line in error.problems)) from None
    except ResultsError as error:
        raise ResultsError(f"{where}: {error}") from None


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    # Hundreds of thousands of values are made and none is garbage: looking for some among
    # them again and again takes longer than making them.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def write_results(folder: Path) -> Results:
    """Fold the journal of a run into its results file, atomically.

    Raises:
        ResultsError: the journal is damaged, or the disk refuses.
    """
    results = journal.load(folder / journal.NAME)
    whole = folder / RESULTS_NAME
    try:
        _replace(whole, to_json(results) + b"\n")
    except OSError as error:
        raise ResultsError(
            f"cannot write {whole}: {error.strerror}. The journal beside it is whole: "
            f"`inferometer show {folder}` reads it"
        ) from None
    return results


def _replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _from_folder(folder: Path) -> Results:
    # The journal is the truth: a results file is made of it, and only stands alone.
    book, whole = folder / journal.NAME, folder / RESULTS_NAME
    if book.exists():
        return journal.load(book)
    if whole.exists():
        return parse_results(_read(whole), where=str(whole))
    raise ResultsError(f"{folder} holds neither {RESULTS_NAME} nor {journal.NAME}")


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device has no end to read to
            raise ResultsError(f"{path} is not a file")
        return path.read_bytes()
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from None
