"""``inferometer run``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from inferometer import runner
from inferometer.cli import subjects
from inferometer.cli.output import console, json_option, mute, print_json, say
from inferometer.cli.plan import describe
from inferometer.cli.progress import observer
from inferometer.errors import ExitCode, SuiteError
from inferometer.judge import judge
from inferometer.launcher import Limits
from inferometer.load import RESULTS_NAME
from inferometer.report import DEFAULT_METRICS, render
from inferometer.results import Results, Sample
from inferometer.suite import Subject, Suite, read_suite
from inferometer.summary import summarize
from inferometer.survey import survey

# Skips that the plan foresaw are no failure; these turned up while running.
_FAILED_SKIPS = {"prompt_rejected", "earlier_request_failed"}


def _seconds(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not value > 0:  # `nan` is a float, and no time
        raise click.BadParameter(f"{value:g} is not a time above 0 seconds", ctx, param)
    return value


@click.command()
@click.argument("suite", required=False)
@subjects.subject_options
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds instead of the suite's own.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the run; otherwise runs/DATE-SUITE.",
)
@click.option(
    "--resume",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Go on with an interrupted run; nothing measured is repeated.",
)
@click.option("--order-seed", type=click.IntRange(min=0), help="Repeat the order of another run.")
@click.option(
    "--idle-limit",
    metavar="S",
    type=float,
    callback=_seconds,
    default=Limits().idle_s,
    show_default=True,
    help="Longest silence of a worker in seconds: no single request may take longer.",
)
@click.option(
    "--launch-limit",
    metavar="S",
    type=float,
    callback=_seconds,
    default=Limits().total_s,
    show_default=True,
    help="Longest launch in seconds.",
)
@json_option
def command(
    *,
    suite: str | None,
    rounds: int | None,
    out: Path | None,
    resume: Path | None,
    order_seed: int | None,
    idle_limit: float,
    launch_limit: float,
    as_json: bool,
    **named: object,
) -> int:
    """Measure SUITE (a built-in name or a TOML file; `quick` unless given).

    Every round starts a fresh process per subject and measures each workload once: cold, with
    the prompt reused, and a control. Everything is on the disk before the next request.
    """
    limits = Limits(idle_s=idle_limit, total_s=launch_limit)
    if resume:
        if suite or any(named.values()) or rounds or out or order_seed is not None:
            raise SuiteError("--resume stands alone: the run's folder knows the rest")
        run = _reopened(resume, limits)
    else:
        run = _created(
            read_suite(suite or "quick"),
            subjects.read(**named),  # type: ignore[arg-type]
            rounds=rounds,
            out=out,
            order_seed=order_seed,
            limits=limits,
        )
    code = ExitCode.FAILED
    try:
        results = _execute(run)
        code = exit_code(results)
        _print(results, run.folder, as_json=as_json)
    except BrokenPipeError:
        # Nobody reads us any more: the code still tells whether all was measured.
        mute()
    return code


def exit_code(results: Results) -> ExitCode:
    """Return whether all that was planned has been measured."""
    failed = any(launch.failure for launch in results.launches)
    failed |= any(_gave_no_number(sample) for sample in results.samples if not sample.warmup)
    failed |= any(skip.code in _FAILED_SKIPS for skip in results.skips)
    return ExitCode.FAILED if failed or not results.complete else ExitCode.OK


def _gave_no_number(sample: Sample) -> bool:
    verdict = judge(sample)
    return bool(verdict.excluded or verdict.short)


def _created(
    read: Suite,
    named: Sequence[Subject],
    *,
    rounds: int | None,
    out: Path | None,
    order_seed: int | None,
    limits: Limits,
) -> runner.Run:
    surveyed = survey(named)
    run = runner.create(
        out or _new_folder(read.name),
        read,
        surveyed.records,
        rounds=rounds or read.rounds,
        order_seed=runner.new_order_seed() if order_seed is None else order_seed,
        evidence=surveyed.evidence,
        limits=limits,
    )
    for line in describe(read, run.plan):
        say(line)
    return run


def _reopened(folder: Path, limits: Limits) -> runner.Run:
    run = runner.reopen(folder, evidence={}, limits=limits)
    left = sum(1 for _ in runner.remaining(run))
    say(f"resuming {folder}: {left} of {len(run.plan.launches)} launches are left")
    surveyed = survey(list(run.subjects.values()))
    return runner.reopen(
        folder, evidence=surveyed.evidence, limits=limits, subjects=surveyed.records
    )


def _execute(run: runner.Run) -> Results:
    say(f"writing to {run.folder}")
    try:
        with observer(console(error=True), run) as watching:
            return runner.execute(run, watching)
    except KeyboardInterrupt:
        say(
            f"\ninterrupted: what was measured is in {run.folder}\n"
            f"to go on: inferometer run --resume {shlex.quote(str(run.folder))}"
        )
        raise


def _new_folder(suite: str) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{stamp}-{suite}"


def _print(results: Results, folder: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(summarize(results))
    else:
        console().print(render(results, metrics=DEFAULT_METRICS))
    again = shlex.quote(str(folder))
    say(f"results: {folder / RESULTS_NAME}\nagain:   inferometer show {again}")
