"""The reference pages say all that the code does, and nothing that it does not."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import attrs
import click
import pytest

import inferometer
from inferometer import judge, metrics, stats, summary
from inferometer.cli import COMMANDS
from inferometer.codec import structure
from inferometer.engine import FinishReason
from inferometer.errors import ExitCode
from inferometer.failures import _SIGNAL_KINDS, PLATFORM_EVIDENCE
from inferometer.suite import Condition, Subjects, Suite, builtin_suites

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "reference"
TOOL = ROOT / "tools" / "reference_docs.py"
OURS = ("metrics", "results", "suites", "commands", "engines")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = loaded(TOOL)


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


def codes_in(text: str) -> set[str]:
    """Return every word that stands between single backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def section(text: str, title: str) -> str:
    """Return what stands under a heading, up to the next of its rank or above."""
    (rank, rest) = re.split(rf"^(#+) {re.escape(title)}$", text, flags=re.MULTILINE)[1:]
    return re.split(rf"^#{{1,{len(rank)}}} ", rest, flags=re.MULTILINE)[0]


# --- generated parts -----------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_no_generated_part_is_stale(name):
    text = page(name)
    assert docs.refreshed(text) == text, "run: python tools/reference_docs.py"


def test_every_part_that_can_be_made_is_on_exactly_one_page():
    used = [part for name in OURS for part in docs.parts_of(page(name))]
    assert sorted(used) == sorted(docs.PARTS)


@pytest.mark.parametrize("name", OURS)
def test_every_marker_is_opened_and_closed(name):
    text = page(name)
    opened = re.findall(r"<!-- generated: (\S+) -->", text)
    closed = re.findall(r"<!-- end of (\S+) -->", text)
    assert opened == closed == docs.parts_of(text)


def test_the_tool_says_when_nothing_is_stale():
    done = subprocess.run(
        [sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_tool_finds_a_stale_page_and_mends_it(tmp_path):
    stale = tmp_path / "page.md"
    stale.write_text(
        "before\n<!-- generated: exit-codes -->\nold\n<!-- end of exit-codes -->\nafter\n"
    )
    assert docs.stale(tmp_path) == [stale]
    mended = docs.refreshed(stale.read_text())
    assert mended.startswith("before\n")
    assert mended.endswith("\nafter\n")
    assert "| `130` | Interrupted" in mended
    stale.write_text(mended)
    assert docs.stale(tmp_path) == []


def test_every_field_of_a_file_speaks_for_itself():
    silent = {
        (kind.__name__, field.name)
        for kind in docs.reachable((*docs.RESULT_CLASSES, *docs.JOURNAL_CLASSES))
        for field in attrs.fields(kind)
        if docs.about_of(field) is None
    }
    assert silent == set()


@pytest.mark.parametrize("name", OURS)
def test_no_cell_of_a_table_is_empty(name):
    rows = [line for line in page(name).splitlines() if line.startswith("|")]
    assert [row for row in rows if re.search(r"\|\s*\|", row)] == []


@pytest.mark.parametrize("name", OURS)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(name):
    width = 0
    for line in page(name).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and width) or cells == width, line
        width = cells


# --- metrics -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", metrics.REGISTRY)
def test_every_metric_is_described(metric):
    (row,) = [line for line in page("metrics").splitlines() if line.startswith(f"| `{metric}` ")]
    found = metrics.REGISTRY[metric]
    assert found.doc in row
    assert found.undefined_when in row
    assert f"| {found.unit} |" in row


@pytest.mark.parametrize("reason", metrics.REASONS)
def test_every_reason_for_having_no_value_is_explained(reason):
    assert f"| `{reason}` | {metrics.REASONS[reason]}" in page("metrics")


@pytest.mark.parametrize("flag", summary.FLAGS)
def test_every_flag_is_explained(flag):
    assert f"`{flag}`" in section(page("metrics"), "Flags") + page("metrics")


@pytest.mark.parametrize("reason", {**judge.EXCLUSIONS, **judge.SHORTCOMINGS})
def test_every_reason_against_a_sample_is_explained(reason):
    assert f"`{reason}`" in section(page("metrics"), "Samples that do not count")


def test_every_vantage_is_explained():
    assert {str(v) for v in metrics.Vantage} <= codes_in(section(page("metrics"), "Who saw it"))


def test_every_event_and_count_of_a_formula_is_defined():
    defined = codes_in(section(page("metrics"), "What is timed"))
    used = {
        word
        for metric in metrics.REGISTRY.values()
        for word in re.findall(r"\b[tn]_\w+", metric.formula)
    }
    assert used <= defined


def test_the_numbers_of_the_statistics_are_those_of_the_code():
    text = section(page("metrics"), "Statistics")
    for rank, floor in stats.PERCENTILE_FLOORS.items():
        assert f"`p{rank}` needs {floor}" in text
    assert f"Below {judge.OVERHEAD_FACTOR} times that cost" in page("metrics")
    assert f"within {100 * metrics.CONTROL_TOLERANCE:.0f} %" in page("metrics")


# --- codes that stand in the source --------------------------------------------------------


CORE = Path(inferometer.__file__).parent


def sources(pattern: str = "*.py") -> Iterator[ast.AST]:
    for path in sorted(CORE.rglob(pattern)):
        if "testing" not in path.parts:
            yield from ast.walk(ast.parse(path.read_text("utf-8")))


def text_of(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def passed_as(keyword: str) -> set[str]:
    """Return the constants that the core passes or assigns under a name."""
    found: set[str] = set()
    for node in sources():
        if isinstance(node, ast.keyword) and node.arg == keyword:
            found.update(text_of(node.value))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == keyword:
            found.update(text_of(node.value))
    return found


def skip_codes() -> set[str]:
    """Return the codes that a plan gives in pairs with reasons, and a session in calls."""
    found: set[str] = passed_as("code")
    for node in sources():
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("._skip"):
            found.update(text for part in node.args for text in text_of(part))
    for node in sources("plan.py"):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            found.update(text_of(node.value.elts[0]))
    return {code for code in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", code)}


def test_every_code_of_a_skip_is_explained():
    explained = codes_in(section(page("results"), "Codes of skips"))
    assert {"context_exceeded", "needs_token_ids", "unsupported"} <= skip_codes()
    assert skip_codes() <= explained


def test_every_kind_of_failure_is_explained():
    kinds = passed_as("kind") | set(_SIGNAL_KINDS.values())
    kinds |= {evidence.kind for evidence in PLATFORM_EVIDENCE}
    explained = codes_in(section(page("results"), "Kinds of failures"))
    assert "hung" in kinds
    assert kinds <= explained


def test_every_finish_reason_is_explained():
    assert set(FinishReason) <= codes_in(section(page("results"), "Finish reasons"))


# --- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    docs.reachable((*docs.RESULT_CLASSES, *docs.JOURNAL_CLASSES, *docs.SUMMARY_CLASSES)),
    ids=lambda kind: kind.__name__,
)
def test_every_class_of_a_file_has_a_section_with_every_field(kind):
    text = section(page("results"), kind.__name__)
    missing = [f.name for f in attrs.fields(kind) if f"| `{f.name}` |" not in text]
    assert missing == []


@pytest.mark.parametrize("name", OURS)
def test_every_link_leads_somewhere(name):
    for file, fragment in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page(name)):
        target = PAGES / (file or f"{name}.md")
        assert target.exists(), file
        if fragment:
            titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), flags=re.MULTILINE)
            assert f"#{fragment}" in {docs.anchor(title) for title in titles}


def toml_examples() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", page("suites"), flags=re.DOTALL)


def test_the_example_of_a_suite_is_right_and_whole():
    suite = structure(tomllib.loads(toml_examples()[0]), Suite)
    assert {str(workload.prompt) for workload in suite.workloads} == {"chat", "raw", "ids"}
    written = set(tomllib.loads(toml_examples()[0]))
    assert written == {field.name for field in attrs.fields(Suite)}


def test_the_example_of_subjects_is_right():
    subjects = structure(tomllib.loads(toml_examples()[1]), Subjects)
    assert len(subjects.subjects) == 2


def test_every_built_in_suite_and_every_condition_is_named():
    assert {*builtin_suites(), *map(str, Condition)} <= codes_in(page("suites"))


# --- commands ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_every_option_and_argument(name):
    command = dict(docs.commands())[name]
    text = section(page("commands"), f"`inferometer {name}`")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert all(f"`{opt}" in text for opt in parameter.opts)
            assert parameter.help
            assert parameter.help in text
        elif not isinstance(parameter.type, click.Choice):
            assert str(parameter.name).upper() in text


def test_no_command_is_described_that_is_not_there():
    described = re.findall(r"^### `inferometer (\S+)`$", page("commands"), flags=re.MULTILINE)
    assert described == list(COMMANDS)


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_explained(code):
    assert re.search(rf"^\| `{int(code)}` \| [A-Z].+\. \|$", page("commands"), flags=re.MULTILINE)


def test_every_command_in_an_example_can_be_called_like_that():
    known = dict(docs.commands())
    for name in OURS:
        for line in re.findall(r"^inferometer (.+)$", page(name), flags=re.MULTILINE):
            called, *words = line.split()
            options = {o for p in known[called].params for o in p.opts if o.startswith("--")}
            if "[OPTIONS]" not in words:
                assert {word for word in words if word.startswith("--")} <= options
