"""The command line: data to standard output, everything for a person to standard error.

Commands are imported when they are called, so that ``--help`` and ``engines`` pay for no more
than they use.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from inferometer.errors import ExitCode, InferometerError

COMMANDS = {
    "run": "Measure: a suite, on one engine and model or on several.",
    "plan": "Say what a run would do, and what it would skip and why. Starts nothing.",
    "engines": "List the engines: usable, unusable and why, broken.",
    "suites": "List the built-in suites.",
    "show": "Print a run as tables, or as JSON.",
    "validate": "Check a suite, subjects, results or journal file.",
    "schema": "Print the JSON Schema of a file format.",
    "completion": "Print a script that completes commands in a shell.",
}


class _Lazy(click.Group):
    """A group that knows its commands' names and first sentences without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"inferometer.cli.{cmd_name}").command
        command.short_help = COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from inferometer.errors import suggestion  # noqa: PLC0415 - only for this mistake

            ctx.fail(f"no command is named {args[0]!r}{suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from inferometer._version import __version__  # noqa: PLC0415

        click.echo(f"inferometer {__version__}")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and leave.",
)
def cli() -> None:
    """Measure local LLM inference honestly.

    Tells waiting for the answer to start from waiting for it to go on, a reused prompt from a
    fast engine, and what the engine says from what you receive.
    """


def main() -> NoReturn:
    """Run the command line; every way out has its exit code."""
    _steady_streams()
    # Ending a run from outside, or closing its terminal, must end its worker as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for it
            signal.signal(number, _interrupt)
    try:
        code = cli.main(standalone_mode=False) or ExitCode.OK
    except click.exceptions.Abort:
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = ExitCode.USAGE
    except InferometerError as error:
        _complain(error)
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us (head, less) has seen enough.
        import_module("inferometer.cli.output").mute()
        code = ExitCode.OK
    except (OSError, RuntimeError) as error:  # a name too long, a loop of links, a closed folder
        _complain(error)
        code = ExitCode.USAGE
    sys.exit(int(code))


def _complain(error: Exception) -> None:
    # What a file says in an error must not steer the terminal.
    words = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(error))
    click.echo(f"inferometer: {words}", err=True)


def _steady_streams() -> None:
    """Have streams that take every word: one that is closed, or knows few letters, loses none."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
