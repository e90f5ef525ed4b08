"""Commands that print: data to standard output, in text and as JSON."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from inferometer._version import __version__
from inferometer.cli import COMMANDS, cli
from inferometer.cli.progress import _Lines
from inferometer.codec import to_json
from inferometer.failures import Failure
from inferometer.metrics import REGISTRY
from inferometer.plan import PlannedLaunch
from inferometer.schema import SCHEMAS
from inferometer.suite import builtin_suites, read_suite

DATA = Path(__file__).parent.parent / "data"
RESULTS, JOURNAL = DATA / "results-v1.json", DATA / "journal-v1.jsonl"

SUMMARY_KEYS = {
    "subject",
    "workload",
    "condition",
    "metric",
    "unit",
    "vantage",
    "n",
    "median",
    "min",
    "max",
    "undefined",
    "flags",
}


def printed(*words: object) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def printed_json(*words: object):
    return json.loads(printed(*words, "--json"))


def test_help_names_every_command_with_a_sentence():
    help_text = " ".join(printed("--help").split())
    for name, sentence in COMMANDS.items():
        assert f"{name} {sentence}" in help_text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    assert "Usage:" in printed(name, "--help")


def test_the_version_is_printed():
    assert printed("--version") == f"inferometer {__version__}\n"


def test_the_module_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "inferometer", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"inferometer {__version__}\n"


def test_suites_are_listed_with_their_digests():
    told = printed_json("suites")
    assert told["schema"] == "inferometer.suites/1"
    listed = told["suites"]
    assert [entry["suite"]["name"] for entry in listed] == builtin_suites()
    text = printed("suites")
    assert all(entry["digest"] in text for entry in listed)


def test_engines_are_listed_in_text_and_as_data():
    text, data = printed("engines"), printed_json("engines")
    assert data["schema"] == "inferometer.engines/1"
    names = {adapter["name"] for adapter in data["adapters"]}
    assert {"llama-cpp", "llama-server"} <= names
    assert all(name in text for name in names)


def test_an_unusable_engine_says_why_and_what_to_type():
    for adapter in printed_json("engines")["adapters"]:
        if not adapter["probe"]["usable"]:
            assert adapter["probe"]["reason"]
            assert adapter["probe"]["install"].startswith("pip install ")


def test_the_summary_has_one_object_per_metric_with_all_its_keys():
    summary = printed_json("show", RESULTS)
    assert summary["schema"] == "inferometer.summary/1"
    for row in summary["metrics"]:
        assert row.keys() >= SUMMARY_KEYS
        assert (row["median"] is None) == (row["undefined"] is not None)
        assert row["metric"] in REGISTRY
    identities = [
        (row["subject"], row["workload"], row["condition"], row["metric"])
        for row in summary["metrics"]
    ]
    assert len(identities) == len(set(identities))


def test_all_metrics_are_shown_only_when_asked_for():
    assert "ttft_outside_prefill" not in printed("show", RESULTS)
    assert "ttft_outside_prefill" in printed("show", RESULTS, "--all")


def test_a_journal_and_its_results_show_the_same():
    assert printed("show", JOURNAL) == printed("show", RESULTS)


def test_a_folder_without_results_is_shown_from_its_journal(tmp_path):
    shutil.copy(JOURNAL, tmp_path / "journal.jsonl")
    assert printed("show", tmp_path) == printed("show", RESULTS)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_schema_is_printed(name):
    assert json.loads(printed("schema", name))["$id"] == SCHEMAS[name][0]


@pytest.mark.parametrize(
    ("file", "schema"), [(RESULTS, "inferometer.results/1"), (JOURNAL, "inferometer.journal/1")]
)
def test_a_right_file_is_called_valid_by_its_format(file, schema):
    assert printed("validate", file) == f"{file}: valid {schema}\n"
    assert printed_json("validate", file)["format"] == schema


def test_a_wrong_file_lists_every_problem_as_data(tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('name = "x"\nround = 3\n[[workloads]]\nname = "w"\nprompt_tokens = 8\n')
    done = CliRunner().invoke(cli, ["validate", str(wrong), "--json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 2
    assert told["valid"] is False
    assert any("rounds" in problem for problem in told["problems"])
    assert any("output_tokens" in problem for problem in told["problems"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell):
    assert "_INFEROMETER_COMPLETE" in printed("completion", shell)


def test_commands_are_completed():
    words = {"COMP_WORDS": "inferometer sui", "COMP_CWORD": "1"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'inferometer'; from inferometer.cli import main; main()",
        ],
        env={**os.environ, **words, "_INFEROMETER_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,suites\n"


def test_a_reader_that_has_seen_enough_causes_no_complaint():
    done = subprocess.run(
        f"{sys.executable} -m inferometer schema results | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "soon"])
def test_a_time_limit_that_is_none_is_refused(limit):
    done = CliRunner().invoke(cli, ["run", "--idle-limit", limit])
    assert done.exit_code == 2
    assert "--idle-limit" in done.output


def test_an_option_given_twice_is_refused(tmp_path):
    words = [
        "plan",
        "--engine",
        "x",
        "--model",
        str(tmp_path),
        "--option",
        "a=1",
        "--option",
        "a=2",
    ]
    done = CliRunner().invoke(cli, words)
    assert "--option a: given twice" in str(done.exception)


def test_the_copy_of_a_suite_in_a_run_can_be_checked_and_run_again(tmp_path):
    copy = tmp_path / "suite.json"
    copy.write_bytes(to_json(read_suite("quick")))
    assert printed("validate", copy) == f"{copy}: valid inferometer.suite/1\n"
    assert read_suite(str(copy)).digest == read_suite("quick").digest


@pytest.mark.parametrize("words", [("show",), ("validate",), ("plan",)])
def test_a_pipe_is_not_waited_for(tmp_path, words):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    done = CliRunner().invoke(
        cli, [*words, str(pipe), "--engine=x", "--model=y"][: 2 + 2 * (words[0] == "plan")]
    )
    assert "not a file" in str(done.exception)


def test_words_of_an_engine_that_look_like_markup_do_not_end_a_run():
    printed_words = io.StringIO()
    lines = _Lines(Console(file=printed_words, force_terminal=False))
    failure = Failure(kind="engine_error", message="the log says [/red] and [bold]\x1b[2J")
    launch = PlannedLaunch(id="r1-a", round=1, subject="a", context_tokens=1, cells=())
    lines.launch_ended(launch, failure)
    assert "[/red] and [bold]\\x1b[2J" in printed_words.getvalue()
