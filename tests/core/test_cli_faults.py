"""What a person at the command line sees when something is wrong, or is cut off."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferometer import cli, journal
from inferometer.codec import from_json
from inferometer.load import load_results
from inferometer.results import Results
from inferometer.wire import WIRE_VERSION, Hello, encode
from support import gguf_bytes
from support.plugin_folder import ADAPTER, installed, write_plugin, write_scripted
from support.scripted_run import (
    CHILD_LIMIT_S,
    arguments,
    command,
    fifo,
    interrupt,
    is_alive,
    is_gone,
    model_file,
    started,
    told,
)

SUITE = """
schema = "inferometer.suite/1"
name = "small"
rounds = 2
[[workloads]]
name = "short"
prompt_tokens = 64
output_tokens = 4
warmup = 0
[[workloads]]
name = "longer"
prompt_tokens = 90
output_tokens = 4
warmup = 0
"""
REQUESTS = 2 * (1 + 2 * 3)
"""What a run of it sends for each subject."""

Outcome = tuple[int, str, str]
"""Exit code, standard output, standard error."""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory) -> Iterator[None]:
    with installed(write_scripted(tmp_path_factory.mktemp("plugin"))):
        yield


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """Work in a folder with a model and a suite."""
    monkeypatch.chdir(tmp_path)
    model_file(tmp_path)
    (tmp_path / "small.toml").write_text(SUITE)
    return tmp_path


@pytest.fixture
def run_here(monkeypatch, capfd) -> Iterator[Callable[..., Outcome]]:
    """Return the command line as a function, for what starts no run of many launches."""
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["inferometer", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return (int(left.value.code or 0), *capfd.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def wanted(*words: object, engine: str = "scripted", **options: object) -> list[object]:
    """Return the words of a run of the small suite."""
    pairs = [f"--option={name}={value}" for name, value in options.items()]
    line = ["run", "small.toml", "--engine", engine, "--model", "model.gguf", "--out", "out"]
    return [*line, *pairs, *words]


def counts(results: Results) -> Counter[tuple[int, str, str]]:
    return Counter((s.round, s.workload, s.condition) for s in results.samples if not s.warmup)


# --- all is well ------------------------------------------------------------------------------


def test_a_run_in_which_all_is_measured_exits_with_zero(here):
    done = command(*wanted("--json"))
    assert done.returncode == 0, done.stderr
    assert from_json(done.stdout)["schema"].startswith("inferometer.summary/")
    results = load_results(here / "out")
    assert results.complete
    assert set(counts(results).values()) == {1}
    assert len(results.samples) == REQUESTS
    assert "results: out/results.json" in done.stderr


def test_a_subject_can_have_an_interpreter_of_its_own(here):
    done = command(*wanted("--rounds=1", "--python", sys.executable))
    assert done.returncode == 0, done.stderr
    (record,) = load_results(here / "out").subjects
    assert record.subject.python == Path(sys.executable).name


# --- some of it failed -----------------------------------------------------------------------


def test_a_run_in_which_a_worker_was_killed_exits_with_one_and_keeps_the_rest(here):
    done = command(*wanted(fault="killed", after=3, once_file="once"))
    assert done.returncode == 1
    assert "failed: killed: the process ended with SIGKILL during" in done.stderr
    results = load_results(here / "out")
    assert results.complete
    assert len(results.samples) == 3 + REQUESTS // 2


def test_a_prompt_that_the_template_rejects_exits_with_one(here):
    done = command(*wanted("--rounds=1", template="{{ raise_exception('never') }}"))
    assert done.returncode == 1, done.stderr
    assert {skip.code for skip in load_results(here / "out").skips} == {"prompt_rejected"}


# --- wrong on the command line ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "name what to measure"),
        (["run", "quik", "--engine", "x", "--model", "y"], "did you mean 'quick'?"),
        (["run", "none.toml", "--engine", "x", "--model", "y"], "cannot read none.toml"),
        (wanted("--option", "fault"), "write it as key=value"),
        (wanted(fautl="none"), "option fautl: unknown key; did you mean 'fault'?"),
        (wanted(after="two"), "option after: expected an integer"),
        (wanted("--idle-limit", "0"), "--idle-limit"),
        (wanted("--rounds", "0"), "--rounds"),
        (wanted("--subjects", "x.toml"), "--subjects stands alone"),
        (wanted("--model", "m\udcff.gguf"), "not UTF-8"),
        (wanted("--engine", "bad name"), "bad name"),
        (wanted("--resume", "out"), "--resume stands alone"),
        (["run", "--resume", "out"], "cannot read out/journal.jsonl"),
        (["run", "--resume", "out", "--rounds", "3"], "--resume stands alone"),
        (["run", "--resume", "out", "--order-seed", "0"], "--resume stands alone"),
        (["run", "--resume", "out", "--engine", "x"], "--resume stands alone"),
        (["show", "out"], "out"),
    ],
)
def test_a_wrong_command_exits_with_two_and_says_what_is_wrong(run_here, words, told):
    code, out, words_said = run_here(*words)
    assert code == 2
    assert told in words_said
    assert out == ""
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"PK\3\4 not a model at all", "GGUF"),
        (gguf_bytes.gguf()[:50], "cut short"),
        (gguf_bytes.gguf()[:-100], "cut short"),
    ],
)
def test_a_model_that_is_none_exits_with_two(run_here, here, content, told):
    if content is not None:
        (here / "other.gguf").write_bytes(content)
    code, _, words = run_here(*wanted("--model", "other.gguf"))
    assert code == 2
    assert "other.gguf" in words
    assert told.lower() in words.lower()
    assert not Path("out").exists()


def test_nothing_to_measure_exits_with_two_listing_the_reasons(run_here):
    code, _, words = run_here(*wanted(context_tokens=20))
    assert code == 2
    assert "nothing to measure" in words
    assert "scripted short: 64 prompt + 4 output tokens do not fit" in words
    assert "scripted longer: " in words
    assert not Path("out").exists()


def test_a_folder_that_holds_a_run_exits_with_two(run_here, here):
    (here / "out").mkdir()
    (here / "out" / journal.NAME).write_text("something\n")
    code, _, words = run_here(*wanted())
    assert code == 2
    assert "out holds a run already: choose another --out, or use --resume out" in words
    assert (here / "out" / journal.NAME).read_text() == "something\n"


# --- plugins and interpreters ------------------------------------------------------------------


def test_an_unknown_engine_exits_with_three_and_a_suggestion(run_here):
    code, _, words = run_here(*wanted(engine="scriptd"))
    assert code == 3
    assert "no adapter is named 'scriptd'; did you mean 'scripted'?" in words


def test_a_broken_plugin_is_listed_and_hides_nobody(run_here, here):
    with installed(write_plugin(here / "bad", "bad", "raise RuntimeError('too old')")):
        code, out, _ = run_here("engines")
    assert code == 0
    assert "RuntimeError: too old" in out
    assert "scripted" in out


def test_a_broken_plugin_exits_with_three_when_its_engine_is_asked_for(run_here, here):
    with installed(write_plugin(here / "bad", "bad", "raise RuntimeError('too old')")):
        code, _, words = run_here(*wanted(engine="bad"))
    assert code == 3
    assert "broken: bad (bad 1.0): RuntimeError: too old" in words


def test_two_packages_of_one_name_exit_with_three_naming_both(run_here, here):
    one = write_plugin(here / "1", "first", ADAPTER, entry_points={"plain": "first"})
    two = write_plugin(here / "2", "second", ADAPTER, entry_points={"plain": "second"})
    with installed(one, two):
        code, _, words = run_here(*wanted(engine="plain"))
    assert code == 3
    assert "plain (first 1.0 and second 1.0): two packages claim" in words


def test_an_unusable_engine_exits_with_three_and_its_reason(run_here, here):
    source = ADAPTER.replace(
        'Probe(usable=True, version="1")', 'Probe(usable=False, reason="no such card")'
    )
    with installed(write_plugin(here / "off", "off", source)):
        code, _, words = run_here(*wanted(engine="plain"))
    assert code == 3
    assert "engine plain is not usable here: no such card" in words


def test_a_python_without_inferometer_exits_with_three(run_here, here, monkeypatch):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], check=True)
    monkeypatch.delenv("PYTHONPATH")
    code, _, words = run_here(*wanted("--python", "bare/bin/python"))
    assert code == 3
    assert "bare/bin/python: the worker did not start" in words
    assert "bare/bin/python -m pip install inferometer" in words


def test_a_python_that_is_none_exits_with_three(run_here):
    code, _, words = run_here(*wanted("--python", "/no/such/python"))
    assert code == 3
    assert "cannot start the interpreter /no/such/python: No such file" in words


def test_a_python_with_another_wire_version_exits_with_three_naming_both(run_here, here):
    hello = encode(Hello(wire=WIRE_VERSION + 1, tool_version="9.9", python="3.99"))
    fake = here / "python"
    fake.write_text(
        f"#!{sys.executable}\nimport os, sys\nos.write(int(sys.argv[6]), {hello!r})\n"
        "os.read(int(sys.argv[4]), 1)\n"
    )
    fake.chmod(0o755)
    code, _, words = run_here(*wanted("--python", fake))
    assert code == 3
    assert f"wire version {WIRE_VERSION + 1}" in words
    assert f"speaks {WIRE_VERSION}: install the same Inferometer" in words


# --- interrupted ---------------------------------------------------------------------------------


def hanging(here: Path, fault: str = "hangs", **options: object) -> subprocess.Popen[str]:
    """Start a run whose fourth request hangs, and only the first time it comes to that."""
    fifo(here)
    return started(*wanted(fault=fault, after=3, once_file="once", tell="told", **options))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_an_interrupted_run_keeps_everything_and_is_resumed_to_the_end(here, run_here, number):
    run = hanging(here)
    worker = told(here / "told")
    code, words = interrupt(run, number)
    assert code == 130, words
    assert "interrupted: what was measured is in out" in words
    assert "to go on: inferometer run --resume out" in words
    assert not is_alive(worker)
    before = load_results(here / "out" / "results.json")
    assert len(before.samples) == 3
    assert not before.complete
    assert run_here("show", "out")[0] == 0

    done = command("run", "--resume", "out")
    assert done.returncode == 0, done.stderr
    after = load_results(here / "out" / "results.json")
    assert after.complete
    assert after == journal.load(here / "out" / journal.NAME)
    assert after.samples[:3] == before.samples, "nothing is lost"
    assert set(counts(after).values()) == {1}, "nothing is measured twice"
    assert len(counts(after)) == REQUESTS

    assert run_here("run", "--resume", "out")[0] == 0, "there is nothing left to do"
    assert load_results(here / "out" / "results.json") == after


def test_a_second_interrupt_kills_a_worker_that_will_not_end(here):
    run = hanging(here, fault="hangs_and_ignores_sigterm")
    worker = told(here / "told")
    run.send_signal(signal.SIGINT)
    assert told(here / "told") == worker, "it was asked to end, and did not"
    code, words = interrupt(run, signal.SIGINT)
    assert code == 130, words
    assert not is_alive(worker)
    assert len(journal.load(here / "out" / journal.NAME).samples) == 3


def test_a_worker_and_its_children_die_when_the_run_is_killed(here):
    run = hanging(here, fault="hangs_with_a_child")
    child = told(here / "told")
    worker = child.parent()
    assert worker is not None
    run.kill()
    run.communicate(timeout=CHILD_LIMIT_S)
    assert is_gone(worker)
    assert is_gone(child)
    done = command("run", "--resume", "out")
    assert done.returncode == 0, done.stderr
    assert set(counts(load_results(here / "out")).values()) == {1}


def test_a_run_whose_worker_hangs_in_a_request_is_ended_by_its_limit(here):
    done = command(*wanted("--rounds=1", "--launch-limit=2", fault="hangs", after=1))
    assert done.returncode == 1
    assert "failed: hung: the launch took longer than 2 s" in done.stderr
    assert "(see --launch-limit)" in done.stderr


# --- a disk that is full --------------------------------------------------------------------------


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_journal_that_may_not_grow_ends_the_run_and_can_be_resumed(here):
    full = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments(*wanted())],
        capture_output=True,
        text=True,
        timeout=CHILD_LIMIT_S,
        check=False,
    )
    assert full.returncode == 2, full.stderr
    assert "cannot write out/journal.jsonl: File too large. Everything measured" in full.stderr
    assert "inferometer run --resume out" in full.stderr
    path = here / "out" / journal.NAME
    assert path.read_bytes().endswith(b"}\n"), "no line is torn"
    kept = journal.load(path).samples
    assert 0 < len(kept) < REQUESTS

    done = command("run", "--resume", "out")
    assert done.returncode == 0, done.stderr
    results = load_results(here / "out")
    assert results.samples[: len(kept)] == kept
    assert set(counts(results).values()) == {1}
