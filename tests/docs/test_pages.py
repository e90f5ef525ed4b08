"""Every page outside the reference: links lead somewhere, commands are real."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from inferometer.cli import COMMANDS, cli
from inferometer.suite import Subjects, Suite, read_suite
from inferometer.suite import parse as parse_toml

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_inside_the_repository_leads_to_a_file(page):
    targets = [t for t in LINK.findall(page.read_text("utf-8")) if "://" not in t]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for _, block in FENCE.findall(page.read_text("utf-8")):
            joined = block.replace("\\\n", " ")
            found += [
                (name_of(page), line.strip())
                for line in joined.splitlines()
                if re.match(r"\s*(\.venv/bin/)?inferometer ", line)
            ]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_in_a_page_has_only_options_that_exist(page, line):
    words = shlex.split(line.partition(" #")[0])[1:]
    if words[0].startswith("-"):
        return
    assert words[0] in COMMANDS, page
    command = cli.get_command(None, words[0])
    known = {name for param in command.params for name in param.opts}
    assert {word for word in words if word.startswith("--")} <= known | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_suite_and_subjects_file_in_a_page_can_be_read(page):
    for language, block in FENCE.findall(page.read_text("utf-8")):
        if language == "toml" and "schema =" in block:
            kind = Subjects if "[[subjects]]" in block else Suite
            assert parse_toml(block, kind, where=name_of(page))


def test_every_decision_is_in_the_list_of_decisions():
    folder = ROOT / "docs" / "decisions"
    listed = LINK.findall((folder / "README.md").read_text("utf-8"))
    assert sorted(listed) == sorted(p.name for p in folder.glob("[0-9]*.md"))


def test_the_table_in_the_readme_is_of_a_real_run_on_a_named_machine():
    text = (ROOT / "README.md").read_text("utf-8")
    (table,) = re.findall(
        r"<!-- demo table: begin -->(.*?)<!-- demo table: end -->", text, re.DOTALL
    )
    for part in (" cores, ", "suite sha256:", "ttft", "decode_rate", "finish reasons"):
        assert part in table
    assert read_suite("quick").digest[:19] in table, "the suite has changed: run `make demo` again"
