"""Where commands print: data to standard output, words to standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from inferometer.codec import to_json

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 100
"""Columns of what goes to a file or a pipe, where there is no terminal and no COLUMNS to ask."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output."""
    sys.stdout.write(to_json(value, pretty=True).decode() + "\n")


def say(message: str) -> None:
    """Print words for a person to standard error."""
    click.echo(message, err=True)


def console(*, error: bool = False) -> Console:
    """Return a rich console; one that is not a terminal is plain."""
    from rich.console import Console  # noqa: PLC0415 - rich is slow to import

    stream = sys.stderr if error else sys.stdout
    asked = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(file=stream, width=None if asked else PIPE_WIDTH, highlight=False)


def mute() -> None:
    """Send what is left to be said nowhere, so that a flush at exit does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
