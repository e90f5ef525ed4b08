"""``inferometer plan``."""

from __future__ import annotations

import click

from inferometer.cli import subjects
from inferometer.cli.output import json_option, print_json
from inferometer.plan import Plan, make_plan
from inferometer.suite import Suite, read_suite
from inferometer.survey import survey

_ORDER_SEED = 0


@click.command()
@click.argument("suite", default="quick")
@subjects.subject_options
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds instead of the suite's own.")
@json_option
def command(suite: str, rounds: int | None, *, as_json: bool, **named: object) -> None:
    """Say what a run would do, and what it would skip and why. Starts nothing."""
    read = read_suite(suite)
    records = survey(subjects.read(**named)).records  # type: ignore[arg-type]
    plan = make_plan(read, records, rounds=rounds or read.rounds, order_seed=_ORDER_SEED)
    if as_json:
        print_json(
            {
                "schema": "inferometer.plan/1",
                "suite_digest": read.digest,
                "estimated_requests": plan.requests,
                "plan": plan,
            }
        )
        return
    for line in describe(read, plan):
        click.echo(line)


def describe(suite: Suite, plan: Plan) -> list[str]:
    """Return a plan in words, one line each."""
    first = [launch for launch in plan.launches if launch.round == 1]
    lines = [f"suite {suite.name}, digest {suite.digest}"]
    for launch in first:
        longest = f"longest request {launch.context_tokens} tokens"
        lines.append(f"  {launch.subject}: {longest}")
        # As the suite has them: every round shuffles its own order.
        cells = {cell.workload.name: cell for cell in launch.cells}
        lines += [
            f"    {w.name}: {w.length} prompt + {w.output_tokens} output tokens; "
            f"{', '.join(cells[w.name].conditions)}"
            for w in suite.workloads
            if w.name in cells
        ]
    lines += [f"  skip {s.subject} {s.workload}: {s.reason}" for s in plan.skips]
    lines.append(
        f"{plan.rounds} rounds, {len(plan.launches)} launches, about {plan.requests} requests"
    )
    return lines
