"""``inferometer completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in SHELL.

    For example: inferometer completion zsh > ~/.inferometer-complete.zsh
    """
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(ctx.find_root().command, {}, "inferometer", "_INFEROMETER_COMPLETE")
    click.echo(completion.source())
