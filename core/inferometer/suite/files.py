"""Read suites and subjects from TOML files and from the package."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import TypeVar

from attrs import evolve

from inferometer.codec import StructureError, from_json, structure
from inferometer.errors import SuiteError, suggestion
from inferometer.suite.values import Subject, Subjects, Suite

T = TypeVar("T")


def builtin_suites() -> list[str]:
    """Return the names of the suites that come with the package."""
    folder = resources.files("inferometer") / "suites"
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_suite(name_or_path: str) -> Suite:
    """Return a built-in suite by name, or the suite in a TOML file.

    Raises:
        SuiteError: naming the file, the key and what to write instead.
    """
    if name_or_path in builtin_suites():
        entry = resources.files("inferometer") / "suites" / f"{name_or_path}.toml"
        return parse(entry.read_text("utf-8"), Suite, where=f"built-in suite {name_or_path}")
    if not _is_path(name_or_path):
        hint = suggestion(name_or_path, builtin_suites())
        raise SuiteError(
            f"no built-in suite is named {name_or_path[:80]!r}{hint} "
            "(a suite of your own is a file that ends in .toml)"
        )
    return parse(_text(Path(name_or_path)), Suite, where=name_or_path)


def read_subjects(path: Path) -> Subjects:
    """Return the subjects in a TOML file; relative paths in it start at the file's folder.

    Raises:
        SuiteError: naming the file, the key and what to write instead.
    """
    read = parse(_text(path), Subjects, where=str(path))
    home = path.resolve().parent
    try:
        return evolve(read, subjects=tuple(_located(subject, home) for subject in read.subjects))
    except RuntimeError as error:  # ~nobody
        raise SuiteError(f"{path}: {error}") from None


def parse(text: str, into: type[T], *, where: str) -> T:
    """Return TOML text (or JSON, in a file that ends so) as a suite or as subjects.

    Raises:
        SuiteError: with one line per mistake.
    """
    written = "JSON" if where.endswith(".json") else "TOML"
    try:
        return structure((from_json if written == "JSON" else tomllib.loads)(text), into)
    except StructureError as error:
        raise SuiteError("\n".join(f"{where}: {line}" for line in error.problems)) from None
    except ValueError as error:
        raise SuiteError(f"{where}: not valid {written}: {error}") from None
    except RecursionError:
        raise SuiteError(f"{where}: not valid {written}: nested too deeply") from None


def _located(subject: Subject, home: Path) -> Subject:
    # A bare word is found on PATH, as a shell finds it; links are left, for an environment's sake.
    python = subject.python
    if python and (os.sep in python or python.startswith("~")):
        python = str(home / Path(python).expanduser())
    return evolve(subject, model=home / subject.model.expanduser(), python=python)


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or os.sep in name or os.path.exists(name)  # noqa: PTH110 - never raises


def _text(path: Path) -> str:
    try:
        # A pipe or a device has no end to read to.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SuiteError(f"cannot read {path}: not a file")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise SuiteError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 text (byte {error.start})") from None
