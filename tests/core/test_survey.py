"""Whether every subject can be measured, asked before anything runs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from attrs import evolve

from inferometer._version import __version__
from inferometer.engine import Placement
from inferometer.errors import ExitCode, InferometerError, ModelError, PluginError, SuiteError
from inferometer.suite import Subject
from inferometer.survey import describe_interpreter, survey
from inferometer.wire import WIRE_VERSION, Describe, Done, Hello, encode
from support import gguf_bytes
from support.plugin_folder import ADAPTER, installed, write_plugin, write_scripted
from support.scripted_run import subject


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory) -> Iterator[None]:
    with installed(write_scripted(tmp_path_factory.mktemp("plugin"))):
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch) -> Iterator[None]:
    """Fail a test that leaves a process or a temporary file behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []
    assert psutil.Process().children() == []


def refusal(kind: type[InferometerError], *subjects: Subject) -> str:
    with pytest.raises(kind) as caught:
        survey(subjects)
    return str(caught.value)


# --- all is well -----------------------------------------------------------------------------


def test_a_survey_says_what_adapters_and_models_are(tmp_path):
    found = survey([subject(tmp_path, "a"), subject(tmp_path, "b", after=2)])
    assert [record.subject.name for record in found.records] == ["a", "b"]
    record = found.records[0]
    assert record.placement is Placement.IN_PROCESS
    assert record.capabilities.token_ids_in
    assert record.adapter_distribution == "inferometer-scripted 1.0"
    assert record.artifact.context_tokens == 2048
    assert [evidence.kind for evidence in found.evidence["b"]] == ["chatty"]


def test_an_interpreter_that_is_named_says_the_same_as_this_one(tmp_path):
    here = subject(tmp_path)
    named = evolve(here, python=sys.executable)
    (one,), (other,) = survey([here]).records, survey([named]).records
    assert evolve(other, subject=here) == one
    assert describe_interpreter(sys.executable, Describe()) == describe_interpreter(
        None, Describe()
    )


# --- adapters --------------------------------------------------------------------------------


def test_an_unknown_engine_is_told_with_a_suggestion(tmp_path):
    words = refusal(PluginError, evolve(subject(tmp_path, "mine"), engine="scriptd"))
    assert words.startswith("subject mine: no adapter is named 'scriptd'; did you mean 'scripted'?")


def test_an_unknown_engine_of_another_interpreter_is_told_as_well(tmp_path):
    wrong = evolve(subject(tmp_path, "mine"), engine="scriptd", python=sys.executable)
    assert "did you mean 'scripted'?" in refusal(PluginError, wrong)


def test_an_engine_that_is_not_usable_is_told_with_what_to_install(tmp_path):
    answer = 'Probe(usable=False, reason="no runtime", install="pip install runtime")'
    source = ADAPTER.replace('Probe(usable=True, version="1")', answer)
    with installed(write_plugin(tmp_path, "absent", source)):
        words = refusal(PluginError, evolve(subject(tmp_path, "mine"), engine="plain"))
    assert words == (
        "subject mine: engine plain is not usable here: no runtime\n"
        "  to install it: pip install runtime"
    )


def test_a_probe_sees_the_options(tmp_path):
    answer = 'Probe(usable=options is None or options.threads < 9, reason="too many threads")'
    source = ADAPTER.replace('Probe(usable=True, version="1")', answer)
    mine = evolve(subject(tmp_path, "mine"), engine="plain", options={"threads": 9})
    with installed(write_plugin(tmp_path, "picky", source)):
        assert "too many threads" in refusal(PluginError, mine)
        assert survey([evolve(mine, options={"threads": 2})]).records


def test_every_wrong_option_is_told_with_its_subject(tmp_path):
    wrong = subject(tmp_path, "mine", fautl="none", after="two", exit_code=True)
    lines = sorted(refusal(SuiteError, wrong).splitlines())
    assert lines[0].startswith("subject mine: option after: expected an integer")
    assert lines[1].startswith("subject mine: option exit_code: expected an integer")
    assert lines[2] == "subject mine: option fautl: unknown key; did you mean 'fault'?"


def test_an_option_of_a_wrong_value_is_told(tmp_path):
    words = refusal(SuiteError, subject(tmp_path, "mine", fault="explodes"))
    assert words.startswith("subject mine: option ")
    assert "explodes" in words


def test_the_engine_is_looked_at_before_the_model(tmp_path):
    both = evolve(subject(tmp_path), engine="none", model=tmp_path / "none.gguf")
    assert "no adapter is named 'none'" in refusal(PluginError, both)


# --- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"hello, I am a text", "GGUF"),
        (gguf_bytes.gguf()[:40], "cut short"),
        (gguf_bytes.gguf()[:-200], "cut short"),
    ],
)
def test_a_model_that_is_none_is_told_with_its_path(tmp_path, content, words):
    path = tmp_path / "other.gguf"
    if content is not None:
        path.write_bytes(content)
    told = refusal(ModelError, evolve(subject(tmp_path), model=path))
    assert str(path) in told
    assert words.lower() in told.lower()


def test_a_folder_without_a_model_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    told = refusal(ModelError, evolve(subject(tmp_path), model=tmp_path / "empty"))
    assert str(tmp_path / "empty") in told


def test_each_kind_of_refusal_has_its_exit_code():
    codes = [kind.exit_code for kind in (PluginError, SuiteError, ModelError)]
    assert codes == [ExitCode.PLUGIN, ExitCode.USAGE, ExitCode.USAGE]


# --- other interpreters ------------------------------------------------------------------------

FAKE = f"""#!{sys.executable}
import os, sys
orders, reports = int(sys.argv[4]), int(sys.argv[6])
os.write(reports, {encode(Hello(wire=WIRE_VERSION, tool_version=__version__, python="3"))!r})
os.read(orders, 1 << 16)
"""


def fake(folder: Path, lines: str) -> str:
    path = folder / "python"
    path.write_text(FAKE + lines)
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_is_not_there_is_told(tmp_path):
    words = refusal(PluginError, evolve(subject(tmp_path), python="/no/such/python"))
    assert words == "cannot start the interpreter /no/such/python: No such file or directory"


def test_an_interpreter_that_dies_while_it_describes_is_told_with_its_last_words(tmp_path):
    python = fake(tmp_path, "print('out of luck', flush=True); os._exit(3)")
    words = refusal(PluginError, evolve(subject(tmp_path), python=python))
    assert words.startswith(f"{python}: the process ended with exit code 3")
    assert words.endswith("\n  out of luck")


def test_an_interpreter_that_answers_something_else_is_told(tmp_path):
    python = fake(tmp_path, f"os.write(reports, {encode(Done())!r}); os.read(orders, 1)")
    words = refusal(PluginError, evolve(subject(tmp_path), python=python))
    assert words == f"{python}: answered with Done"


def test_an_interpreter_that_describes_nothing_is_told(tmp_path):
    nothing = b'{"kind":"Described","body":{}}\n'
    python = fake(tmp_path, f"os.write(reports, {nothing!r}); os.read(orders, 1)")
    words = refusal(PluginError, evolve(subject(tmp_path, "mine"), python=python))
    assert words == f"subject mine: {python} described no adapter"
