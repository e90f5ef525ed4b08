"""``inferometer schema``."""

from __future__ import annotations

from pathlib import Path

import click

from inferometer.cli.output import print_json, say
from inferometer.schema import SCHEMAS, json_schema, write_schemas


@click.command()
@click.argument("name", type=click.Choice(sorted(SCHEMAS)), required=False)
@click.option(
    "--write",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write all schemas into DIR instead.",
)
def command(name: str | None, write: Path | None) -> None:
    """Print the JSON Schema of a file format, made from the classes that read and write it."""
    if write:
        for path in write_schemas(write):
            say(f"wrote {path}")
        return
    if not name:
        raise click.UsageError(f"name one of: {', '.join(sorted(SCHEMAS))}")
    print_json(json_schema(name))
