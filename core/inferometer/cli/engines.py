"""``inferometer engines``."""

from __future__ import annotations

import click

from inferometer.engine import Adapter, Probe
from inferometer.plugins import BrokenPlugin, Registered, discover, probe


@click.command()
@click.option("--python", metavar="PY", help="Ask another interpreter for its engines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(python: str | None, *, as_json: bool) -> None:
    """List the engines: usable, unusable and why, broken. No engine is loaded."""
    if python or as_json:
        _described(python, as_json=as_json)
        return
    registry = discover()
    for _, registered in sorted(registry.adapters.items()):
        click.echo(_lines(registered.adapter, probe(registered.adapter), registered))
    for broken in registry.broken:
        click.echo(_broken(broken))
    if not registry.adapters and not registry.broken:
        click.echo("no adapter is installed")


def _described(python: str | None, *, as_json: bool) -> None:
    # Structured descriptions cost an import that the plain list does not need.
    from inferometer.cli.output import print_json  # noqa: PLC0415
    from inferometer.survey import describe_interpreter  # noqa: PLC0415
    from inferometer.wire import Describe  # noqa: PLC0415

    described = describe_interpreter(python, Describe())
    if as_json:
        print_json(
            {
                "schema": "inferometer.engines/1",
                "adapters": described.adapters,
                "broken": described.broken,
            }
        )
        return
    for item in described.adapters:
        click.echo(_entry(item.name, item.placement, item.distribution, item.probe))
    for broken in described.broken:
        click.echo(_broken(BrokenPlugin(broken.name, broken.distribution, broken.reason)))


def _lines(adapter: Adapter, answer: Probe, registered: Registered) -> str:
    return _entry(adapter.name, adapter.placement, registered.distribution, answer)


def _entry(name: str, placement: str, distribution: str, answer: Probe) -> str:
    state = "usable" if answer.usable else "unusable"
    version = f" {answer.version}" if answer.version else ""
    lines = [
        f"{name:<16} {state:<9} {placement:<11} {distribution}{version and ', runtime' + version}"
    ]
    if not answer.usable:
        lines.append(f"{'':<16} why: {answer.reason}")
        if answer.install:
            lines.append(f"{'':<16} to install: {answer.install}")
    return "\n".join(lines)


def _broken(broken: BrokenPlugin) -> str:
    return f"{broken.name:<16} broken    {broken.distribution}\n{'':<16} why: {broken.reason}"
