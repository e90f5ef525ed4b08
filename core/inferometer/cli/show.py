"""``inferometer show``."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from inferometer.cli.output import console, json_option, print_json
from inferometer.load import load_results
from inferometer.report import DEFAULT_METRICS, render
from inferometer.summary import summarize


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Show every metric.")
@json_option
def command(run: Path, *, everything: bool, as_json: bool) -> None:
    """Print RUN (a run's folder or a results file) as tables: median, range, and why not."""
    # What is read lives until we leave: looking for garbage in it again and again takes longer
    # than reading it.
    gc.disable()
    try:
        _show(run, everything=everything, as_json=as_json)
    finally:
        gc.enable()


def _show(run: Path, *, everything: bool, as_json: bool) -> None:
    results = load_results(run)
    if as_json:
        print_json(summarize(results))
        return
    console().print(render(results, metrics=None if everything else DEFAULT_METRICS))
