"""Options that name what is measured, shared by ``run`` and ``plan``."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from inferometer.errors import SuiteError
from inferometer.suite import Subject, read_subjects

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--engine", metavar="NAME", help="Adapter to measure; see `inferometer engines`."),
    click.option("--model", metavar="PATH", help="Model file or folder."),
    click.option(
        "--option",
        "options",
        metavar="K=V",
        multiple=True,
        help="An option of the adapter; may be given several times.",
    ),
    click.option("--python", metavar="PY", help="Interpreter to run the engine in."),
    click.option(
        "--subjects",
        "subjects_file",
        metavar="FILE.toml",
        type=click.Path(path_type=Path),
        help="Several subjects instead of --engine and --model.",
    ),
)


def subject_options(command: F) -> F:
    """Add the options that name subjects to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read(
    engine: str | None,
    model: str | None,
    options: Sequence[str],
    python: str | None,
    subjects_file: Path | None,
) -> Sequence[Subject]:
    """Return what the command line names.

    Raises:
        SuiteError: it names nothing, or two things at once.
    """
    if subjects_file:
        if engine or model or options or python:
            raise SuiteError("--subjects stands alone: write engine, model and options into it")
        return read_subjects(subjects_file).subjects
    if not engine or not model:
        raise SuiteError(
            "name what to measure: --engine NAME --model PATH, or --subjects FILE.toml"
        )
    written = _options(options)
    try:
        path = Path(model).expanduser().resolve()
        return [Subject(name=engine, engine=engine, model=path, options=written, python=python)]
    except (ValueError, RuntimeError, OSError) as error:
        raise SuiteError(f"--engine {engine!r} --model {model!r}: {error}") from None


def _options(options: Sequence[str]) -> dict[str, Any]:
    pairs = [_pair(option) for option in options]
    written = dict(pairs)
    if len(written) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise SuiteError(f"--option {twice}: given twice; which one is meant?")
    return written


def _pair(option: str) -> tuple[str, Any]:
    key, equals, text = option.partition("=")
    if not equals or not key.strip():
        raise SuiteError(f"--option {option!r}: write it as key=value")
    return key.strip(), _value(text)


def _value(text: str) -> Any:
    """Return a value as TOML reads it, and a bare word as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
