"""``inferometer suites``."""

from __future__ import annotations

import click

from inferometer.cli.output import json_option, print_json
from inferometer.suite import Suite, builtin_suites, read_suite


@click.command()
@json_option
def command(*, as_json: bool) -> None:
    """List the built-in suites. A suite of your own is a TOML file: `inferometer run my.toml`."""
    suites = [read_suite(name) for name in builtin_suites()]
    if as_json:
        listed = [{"digest": suite.digest, "suite": suite} for suite in suites]
        print_json({"schema": "inferometer.suites/1", "suites": listed})
        return
    for suite in suites:
        click.echo(_entry(suite))


def _entry(suite: Suite) -> str:
    shapes = ", ".join(f"{w.name} ({w.length} + {w.output_tokens})" for w in suite.workloads)
    return "\n".join(
        (
            f"{suite.name}: {suite.description}",
            f"  workloads (prompt + output tokens): {shapes}",
            f"  conditions: {', '.join(suite.conditions)}; rounds: {suite.rounds}",
            f"  digest: {suite.digest}",
        )
    )
