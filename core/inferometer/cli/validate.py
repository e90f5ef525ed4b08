"""``inferometer validate``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from inferometer import journal
from inferometer.cli.output import json_option, print_json
from inferometer.errors import InferometerError, ResultsError
from inferometer.load import load_results
from inferometer.suite import SUBJECTS_SCHEMA, SUITE_SCHEMA, read_subjects, read_suite

_FIRST_KEY = re.compile(rb'\s*\{\s*"schema"\s*:\s*"([^"]*)"')


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path, *, as_json: bool) -> None:
    """Check FILE: a suite or subjects file (TOML), results (JSON) or a journal (JSONL)."""
    try:
        what = check(file)
    except InferometerError as error:
        if not as_json:
            raise
        print_json(_verdict(file, None, str(error).splitlines()))
        ctx.exit(error.exit_code)
    if as_json:
        print_json(_verdict(file, what, []))
    else:
        click.echo(f"{file}: valid {what}")


def _verdict(file: Path, what: str | None, problems: list[str]) -> dict[str, object]:
    return {
        "schema": "inferometer.validation/1",
        "file": str(file),
        "valid": what is not None,
        "format": what,
        "problems": problems,
    }


def check(file: Path) -> str:
    """Return the format of a file that is right.

    Raises:
        InferometerError: with one line per mistake.
    """
    if not file.exists():
        raise ResultsError(f"cannot read {file}: no such file")
    if not file.is_file() and not file.is_dir():
        raise ResultsError(f"cannot read {file}: not a file")
    if file.is_dir():
        return load_results(file).schema
    if file.suffix == ".toml":
        return _toml(file)
    if file.suffix == ".json" and _is_suite(file):
        return read_suite(str(file)).schema
    if file.suffix == ".jsonl":
        journal.load(file)
        return journal.SCHEMA
    return load_results(file).schema


def _toml(file: Path) -> str:
    if _names_subjects(file):
        return read_subjects(file).schema
    return read_suite(str(file)).schema


def _is_suite(file: Path) -> bool:
    # The copy in a run's folder; a damaged one is refused as results, with its own mistake.
    with file.open("rb") as data:
        head = _FIRST_KEY.match(data.read(200))
    return head is not None and head[1] == SUITE_SCHEMA.encode()


def _names_subjects(file: Path) -> bool:
    text = file.read_text("utf-8", errors="replace")
    return SUBJECTS_SCHEMA.rpartition("/")[0] in text or "[[subjects]]" in text
