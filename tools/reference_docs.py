"""Refresh the generated parts of ``docs/reference`` from the code.

    python tools/reference_docs.py            write them
    python tools/reference_docs.py --check    say which are stale, and leave with 1

A generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``. The
words around it are written by hand and stay as they are.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import click

from inferometer import engine, journal, judge, metrics, plugins, results, stats, suite, summary
from inferometer.cli import COMMANDS, cli
from inferometer.codec import to_json
from inferometer.errors import ExitCode
from inferometer.fields import About, Role, about_of
from inferometer.identity import Scalar

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
PART = re.compile(r"<!-- generated: ([a-z-]+) -->\n(.*?)<!-- end of \1 -->", re.DOTALL)

Lines = Iterable[str]

RESULT_CLASSES = (results.Results,)
JOURNAL_CLASSES = tuple(typing.get_args(journal.Record))
SUMMARY_CLASSES = (summary.Summary,)


# --- Markdown ------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: object) -> str:
    """Return text as it is written in a file or a shell."""
    return f"`{text}`"


def anchor(title: str) -> str:
    """Return the link to a heading of the same page."""
    return f"#{title.lower().replace(' ', '-').replace('`', '').replace('.', '')}"


# --- metrics -------------------------------------------------------------------------------


def metric_table(found: Iterable[metrics.Metric]) -> Lines:
    """Yield one row per metric."""
    head = ("metric", "unit", "better", "seen by", "meaning and formula", "no value when")
    return table(head, map(_metric, found))


_SEEN_BY = {metrics.Vantage.ENGINE: "engine", metrics.Vantage.LAUNCHER: "launcher"}


def _metric(metric: metrics.Metric) -> tuple[str, ...]:
    version = f" (version {metric.version})" if metric.version > 1 else ""
    formula = "" if metric.formula in metric.doc else f" {code(metric.formula)}"
    return (
        code(metric.id) + version,
        metric.unit,
        {"neither": "-"}.get(metric.direction, str(metric.direction)),
        _SEEN_BY.get(metric.vantage(engine.Placement.SERVER), "caller"),
        metric.doc + formula,
        metric.undefined_when,
    )


def code_table(head: str, found: Mapping[str, str]) -> Lines:
    """Yield one row per code with its sentence."""
    return table((head, "meaning"), ((code(key), f"{words}.") for key, words in found.items()))


def sample_flags() -> Mapping[str, str]:
    """Return the flags of samples that are no shortcomings, which have a table of their own."""
    return {key: words for key, words in judge.FLAGS.items() if key not in judge.SHORTCOMINGS}


def subject_flags() -> Mapping[str, str]:
    """Return the flags that are neither of a sample nor of a row of rounds."""
    others = {**judge.FLAGS, **stats.FLAGS}
    return {key: words for key, words in summary.FLAGS.items() if key not in others}


# --- classes that files hold ---------------------------------------------------------------


def reachable(kinds: Iterable[type[Any]], *, known: Iterable[type[Any]] = ()) -> list[type[Any]]:
    """Return classes and all that they are made of, in the order in which a reader meets them."""
    found = dict.fromkeys(known)
    before = len(found)
    for kind in kinds:
        _reach(kind, found)
    return list(found)[before:]


def _reach(kind: type[Any], found: dict[type[Any], None]) -> None:
    if kind in found:
        return
    found[kind] = None
    attrs.resolve_types(kind)
    for field in attrs.fields(kind):
        for inner in _classes(field.type):
            _reach(inner, found)


def _classes(annotation: Any) -> list[type[Any]]:
    if isinstance(annotation, type) and attrs.has(annotation):
        return [annotation]
    return [kind for part in typing.get_args(annotation) for kind in _classes(part)]


def class_sections(kinds: Iterable[type[Any]]) -> Lines:
    """Yield a section per class with a table of its fields."""
    for kind in kinds:
        yield f"### {kind.__name__}"
        yield ""
        yield plain((kind.__doc__ or "").partition("\n")[0])
        yield ""
        yield from table(("field", "type", "role", "meaning"), _field_rows(kind))
        yield ""


def _field_rows(kind: type[Any]) -> Iterator[Sequence[str]]:
    for field in attrs.fields(kind):
        said = said_of(kind, field)
        yield code(field.name), words_for(field.type), str(said.role), plain(said.doc)


def key_table(kind: type[Any]) -> Lines:
    """Yield one row per key that a person may write."""
    attrs.resolve_types(kind)
    rows = [
        (code(f.name), words_for(f.type), default(f), plain(said_of(kind, f).doc) + limits(f))
        for f in attrs.fields(kind)
    ]
    return table(("key", "type", "default", "meaning"), rows)


def said_of(kind: type[Any], field: attrs.Attribute[Any]) -> About:
    """Return what a field says about itself.

    Raises:
        LookupError: it says nothing.
    """
    said = about_of(field)
    if said is None:
        raise LookupError(f"{kind.__name__}.{field.name} has no role and no sentence")
    return said


def limits(field: attrs.Attribute[Any]) -> str:
    """Return the smallest and the largest value of a key, where it has them."""
    demanded = getattr(field.validator, "keywords", {})
    if "minimum" not in demanded:
        return ""
    return f" From {demanded['minimum']:,} to {demanded['maximum']:,}."


def default(field: attrs.Attribute[Any]) -> str:
    """Return the default of a field as a file would say it."""
    if field.default is attrs.NOTHING:
        return "required"
    if field.default is None or callable(getattr(field.default, "factory", None)):
        return "-"
    return code(to_json(field.default).decode())


_NOUNS: Mapping[Any, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    Any: "anything",
    types.NoneType: "null",
}


def words_for(annotation: Any) -> str:
    """Return a type in words."""
    if annotation in _NOUNS:
        return _NOUNS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(code(member.value) for member in annotation)
    if isinstance(annotation, type) and attrs.has(annotation):
        return f"[{annotation.__name__}]({anchor(annotation.__name__)})"
    return _compound(typing.get_origin(annotation), typing.get_args(annotation))


def _compound(origin: Any, parts: tuple[Any, ...]) -> str:
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_alternatives(parts))
    if origin in (tuple, list):
        return f"array of {words_for(parts[0])}"
    return f"table of {words_for(parts[1])}"


def _alternatives(parts: tuple[Any, ...]) -> Iterator[str]:
    scalar = typing.get_args(Scalar)
    if set(scalar) <= set(parts):
        yield "plain value"
        parts = tuple(part for part in parts if part not in scalar)
    yield from map(words_for, parts)


# --- enums ---------------------------------------------------------------------------------


def enum_table(kind: type[Enum]) -> Lines:
    """Yield one row per member with the docstring below it."""
    return table(("value", "meaning"), ((code(m.value), docs_of(kind)[m.name]) for m in kind))


def docs_of(kind: type[Enum]) -> Mapping[str, str]:
    """Return the docstrings below the members of an enum, which only the source has."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for member, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            assert isinstance(below.value, ast.Constant)
            docs[ast.unparse(member.targets[0])] = plain(str(below.value.value))
    return {member.name: docs.get(member.name, "") for member in kind}


def plain(docstring: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(docstring.split()).replace("``", "`")


# --- engines -------------------------------------------------------------------------------


def adapter_sections() -> Lines:
    """Yield a section per adapter of ours: what it can do, and its options."""
    for registered in sorted(plugins.discover().adapters.items()):
        name, adapter = registered[0], registered[1].adapter
        if registered[1].distribution.startswith("inferometer "):
            yield f"### `{name}`"
            yield ""
            yield f"Placement: {code(adapter.placement)}. Capabilities: {_able(adapter)}."
            yield ""
            yield from table(("option", "type", "default", "meaning"), _options(adapter))
            yield ""


def _able(adapter: engine.Adapter) -> str:
    able = attrs.asdict(adapter.capabilities)
    return ", ".join(code(name) for name, value in able.items() if value is True)


def _options(adapter: engine.Adapter) -> Iterator[Sequence[str]]:
    kind = adapter.options_type
    attrs.resolve_types(kind)
    for field in attrs.fields(kind):
        meaning = plain(field.metadata.get("doc", ""))
        yield code(field.name), words_for(field.type), default(field), meaning


# --- suites --------------------------------------------------------------------------------


def builtin_table() -> Lines:
    """Yield one row per suite that comes along."""
    return table(
        ("suite", "workloads (prompt + output tokens)", "rounds", "digest"),
        map(_builtin, suite.builtin_suites()),
    )


def _builtin(name: str) -> tuple[str, ...]:
    read = suite.read_suite(name)
    shapes = [f"{w.length:,} + {w.output_tokens:,}" for w in read.workloads]
    return code(name), ", ".join(shapes), str(read.rounds), code(read.digest)


# --- commands ------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its name."""
    context = click.Context(cli, info_name="inferometer")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command


def command_sections() -> Lines:
    """Yield a section per command."""
    for name, command in commands():
        yield f"### `inferometer {name}`"
        yield ""
        yield from ("```", usage(name, command), "```", "", help_text(command), "")
        options = [p for p in command.params if isinstance(p, click.Option)]
        if options:
            yield from table(("option", "meaning"), map(_option, options))
            yield ""


def usage(name: str, command: click.Command) -> str:
    """Return how a command is called."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = [_argument(argument) for argument in arguments]
    return " ".join(["inferometer", name, "[OPTIONS]", *words])


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        name = "|".join(map(str, argument.type.choices))
    return name if argument.required else f"[{name}]"


def help_text(command: click.Command) -> str:
    """Return the help of a command as one paragraph per paragraph."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(plain(paragraph) for paragraph in paragraphs)


def _option(option: click.Option) -> tuple[str, str]:
    value = "" if option.is_flag else f" {option.metavar or 'N'}"
    shown = f" Default: {option.default:g}." if option.show_default else ""
    return code(", ".join(option.opts) + value), (option.help or "") + shown


def exit_codes() -> Lines:
    """Yield one row per exit code."""
    docs = docs_of(ExitCode)
    return table(("code", "meaning"), ((code(int(c)), docs[c.name]) for c in ExitCode))


# --- parts and pages -----------------------------------------------------------------------

PARTS: Mapping[str, Callable[[], Lines]] = {
    "request-metrics": lambda: metric_table(metrics.SAMPLE_METRICS),
    "loading-metrics": lambda: metric_table(metrics.LAUNCH_METRICS),
    "process-metrics": lambda: metric_table(metrics.ROUND_METRICS),
    "reasons": lambda: code_table("reason", metrics.REASONS),
    "exclusions": lambda: code_table("reason", judge.EXCLUSIONS),
    "shortcomings": lambda: code_table("reason and flag", judge.SHORTCOMINGS),
    "sample-flags": lambda: code_table("flag", sample_flags()),
    "round-flags": lambda: code_table("flag", stats.FLAGS),
    "subject-flags": lambda: code_table("flag", subject_flags()),
    "roles": lambda: enum_table(Role),
    "results-classes": lambda: class_sections(reachable(RESULT_CLASSES)),
    "journal-classes": lambda: class_sections(
        reachable(JOURNAL_CLASSES, known=reachable(RESULT_CLASSES))
    ),
    "summary-classes": lambda: class_sections(reachable(SUMMARY_CLASSES)),
    "suite-keys": lambda: key_table(suite.Suite),
    "workload-keys": lambda: key_table(suite.Workload),
    "sampling-keys": lambda: key_table(engine.Sampling),
    "subject-keys": lambda: key_table(suite.Subject),
    "conditions": lambda: enum_table(suite.Condition),
    "builtin-suites": builtin_table,
    "commands": command_sections,
    "exit-codes": exit_codes,
    "finish-reasons": lambda: enum_table(engine.FinishReason),
    "capabilities": lambda: key_table(engine.Capabilities),
    "adapters": adapter_sections,
}


def refreshed(page: str) -> str:
    """Return a page with its generated parts made anew."""
    return PART.sub(lambda found: _part(found[1]), page)


def _part(name: str) -> str:
    body = "\n".join(PARTS[name]()).strip()
    return f"<!-- generated: {name} -->\n\n{body}\n\n<!-- end of {name} -->"


def parts_of(page: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [found[1] for found in PART.finditer(page)]


def stale(folder: Path = FOLDER) -> list[Path]:
    """Return the pages whose generated parts are not what the code says."""
    pages = sorted(folder.glob("*.md"))
    return [page for page in pages if refreshed(page.read_text("utf-8")) != page.read_text("utf-8")]


def main() -> int:
    """Write, or only check."""
    found = stale()
    for page in found:
        print(f"stale: {page}" if "--check" in sys.argv else f"wrote {page}")
        if "--check" not in sys.argv:
            page.write_text(refreshed(page.read_text("utf-8")), "utf-8")
    return int(bool(found) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
