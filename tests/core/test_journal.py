"""The journal: appended and synced, cut where it is torn, and folded into results."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from inferometer import journal
from inferometer.artifact import ModelArtifact, ModelFormat
from inferometer.codec import from_json, to_json
from inferometer.engine import Capabilities, Placement, Sampling, Usage
from inferometer.errors import ExitCode, ResultsError
from inferometer.failures import Failure
from inferometer.host import read_host
from inferometer.identity import EngineIdentity
from inferometer.journal import (
    Ended,
    Journal,
    Launched,
    Opened,
    Ready,
    Record,
    Sampled,
    Skipped,
    planned_id,
)
from inferometer.journal import file as file_module
from inferometer.load import load_results, write_results
from inferometer.plan import make_plan
from inferometer.results import Launch, LoadPhases, Sample, Skip, SubjectRecord
from inferometer.suite import Condition, Subject, Suite, Workload
from inferometer.wire import Loaded

SUITE = Suite(
    name="small",
    rounds=2,
    workloads=(
        Workload(name="short", prompt_tokens=64, output_tokens=4),
        Workload(name="huge", prompt_tokens=10_000, output_tokens=4),
    ),
)
SUBJECT = SubjectRecord(
    subject=Subject(
        name="x", engine="x", model=Path("/home/me/models/m.gguf"), python="/home/me/bin/python"
    ),
    placement=Placement.IN_PROCESS,
    capabilities=Capabilities(token_ids_in=True),
    artifact=ModelArtifact(
        format=ModelFormat.GGUF, name="m.gguf", files=1, size_bytes=5, context_tokens=512
    ),
)
OPENED = Opened(
    run_id="run",
    tool_version="0.1",
    started_at="2026-01-01T00:00:00+00:00",
    suite=SUITE,
    host=read_host(),
    subjects=(SUBJECT,),
    plan=make_plan(SUITE, [SUBJECT], rounds=2, order_seed=5),
    corpus_version="sha256:0",
    prompt_date="2024-07-26",
)


def launched(name: str = "r1-x") -> Launched:
    return Launched(launch=Launch(id=name, round=1, subject="x", started_at="2026"))


def sampled(launch: str = "r1-x", condition: Condition = Condition.COLD) -> Sampled:
    return Sampled(
        sample=Sample(
            request_id=f"{launch}/short/{condition}",
            launch=launch,
            round=1,
            subject="x",
            workload="short",
            condition=condition,
            prompt_digest="sha256:1",
            prompt_tokens=64,
            max_output_tokens=4,
            ignore_eos=True,
            sampling=Sampling(),
            cache_mode="cold",
            started_ns=1,
        )
    )


def loaded(launch: str = "r1-x") -> Ready:
    return Ready(
        launch=launch,
        spawn_ns=9,
        loaded=Loaded(
            python="3.11.7",
            phases=LoadPhases(import_ns=1, prepare_ns=2, load_ns=3),
            identity=EngineIdentity(engine="x"),
            harness_overhead_ns=100,
        ),
    )


SKIP = Skip(subject="x", workload="short", condition=Condition.REUSE, code="c", reason="r")
WHOLE: list[Record] = [
    OPENED,
    launched(),
    loaded(),
    sampled(),
    Skipped(skip=SKIP),
    Ended(launch="r1-x", usage=Usage(peak_memory_bytes=7, source="x")),
]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run" / journal.NAME


def write(path: Path, *records: Record) -> Path:
    path.parent.mkdir(exist_ok=True)
    book = Journal(path)
    try:
        for record in records:
            book.append(record)
    finally:
        book.close()
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ResultsError) as caught:
        journal.load(path)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


# --- appending and reading --------------------------------------------------------------------


def test_records_are_read_as_they_were_appended(path):
    write(path, *WHOLE[:3])
    write(path, *WHOLE[3:])
    assert list(journal.read(path)) == WHOLE


def test_a_record_is_a_line_of_plain_json(path):
    lines = write(path, *WHOLE).read_bytes().splitlines()
    assert [from_json(line)["kind"] for line in lines] == [type(r).__name__ for r in WHOLE]


def test_a_record_is_on_the_disk_before_the_next_begins(path, monkeypatch):
    events = []
    fsync, write_some = os.fsync, os.write
    monkeypatch.setattr(file_module.os, "fsync", lambda fd: events.append("sync") or fsync(fd))
    monkeypatch.setattr(
        file_module.os, "write", lambda fd, data: events.append("write") or write_some(fd, data)
    )
    write(path, OPENED, launched())
    assert events == ["write", "sync", "write", "sync"]


def test_a_write_that_takes_only_a_part_goes_on_with_the_rest(path, monkeypatch):
    write_some = os.write
    monkeypatch.setattr(file_module.os, "write", lambda fd, data: write_some(fd, data[:100]))
    write(path, *WHOLE)
    assert list(journal.read(path)) == WHOLE


def test_only_one_process_writes_a_journal(path):
    write(path, OPENED)
    book = Journal(path)
    try:
        with pytest.raises(ResultsError, match="another process is writing this run"):
            Journal(path)
    finally:
        book.close()
    Journal(path).close()


def test_a_file_system_without_locks_is_no_obstacle(path, monkeypatch):
    def flock(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_module.fcntl, "flock", flock)
    assert list(journal.read(write(path, OPENED))) == [OPENED]


# --- a disk that refuses -----------------------------------------------------------------------


def full_after(count: int, monkeypatch) -> None:
    """Let the disk be full after so many bytes."""
    left = [count]
    write_some = os.write

    def write(fd, data):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write_some(fd, data[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(file_module.os, "write", write)


@pytest.mark.parametrize("more", [0, 1, 200])
def test_a_full_disk_leaves_everything_before_whole(path, monkeypatch, more):
    write(path, *WHOLE[:2])
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        full_after(more, patch)
        with pytest.raises(ResultsError) as caught:
            write(path, sampled())
    assert str(caught.value) == (
        f"cannot write {path}: No space left on device. Everything measured before is kept; "
        f"free some space, then: inferometer run --resume {path.parent}"
    )
    assert path.read_bytes() == before
    write(path, sampled())
    assert list(journal.read(path)) == [*WHOLE[:2], sampled()]


def test_a_sync_that_fails_takes_its_record_back(path, monkeypatch):
    write(path, OPENED)

    def fsync(fd):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(file_module.os, "fsync", fsync)
        with pytest.raises(ResultsError, match="Input/output error"):
            write(path, launched())
    assert list(journal.read(path)) == [OPENED]


LIMITED = """
import resource, signal, sys
from pathlib import Path
from inferometer.errors import ResultsError
from inferometer.journal import Journal, read
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
records = list(read(path))
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
book = Journal(path)
try:
    book.append(records[-1])
except ResultsError as error:
    sys.exit(f"told: {error}")
"""


def test_a_real_limit_on_the_size_of_files_is_told_and_leaves_no_torn_line(path):
    before = write(path, *WHOLE).read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith(f"told: cannot write {path}: File too large. Everything")
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is always full")
def test_a_device_that_is_always_full_is_told(path, monkeypatch):
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    monkeypatch.setattr(file_module.os, "ftruncate", lambda fd, size: None)
    with pytest.raises(ResultsError, match="No space left on device"):
        write(path, OPENED)


@pytest.mark.parametrize("kind", ["a folder", "no folder around it"])
def test_a_journal_that_cannot_be_opened_is_told(path, kind):
    if kind == "a folder":
        path.mkdir(parents=True)
    with pytest.raises(ResultsError, match=f"cannot write {path}: "):
        Journal(path)


# --- a torn end, a damaged middle ---------------------------------------------------------------


@pytest.mark.parametrize("torn", [b"{", b'{"kind":"Ended","body":{"launch":"r1-x"}}', b"\0\0\0"])
def test_a_torn_last_line_is_left_out_and_cut_before_appending(path, torn):
    write(path, *WHOLE[:3])
    with path.open("ab") as file:
        file.write(torn)
    assert list(journal.read(path)) == WHOLE[:3]
    assert path.read_bytes().endswith(torn), "reading changes nothing"
    write(path, *WHOLE[3:])
    assert list(journal.read(path)) == WHOLE


def test_a_journal_of_one_torn_line_is_empty(path):
    write(path)
    path.write_bytes(b'{"kind":"Opened"')
    assert list(journal.read(path)) == []
    write(path, OPENED)
    assert list(journal.read(path)) == [OPENED]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\0\0\0\0", "not valid JSON"),
        (b"[1]", "$: "),
        (b'{"kind":"Sampled"}', "$.body: "),
        (b'{"kind":"Sampled","body":{}}', "$.sample: "),
        (b'{"kind":"Ended","body":{"launch":7}}', "$.launch: "),
        (b'{"kind":"Telemetry","body":{}}', "no journal record is named 'Telemetry'"),
    ],
)
def test_a_damaged_line_in_the_middle_is_an_error_with_file_and_line(path, damage, words):
    lines = write(path, *WHOLE).read_bytes().split(b"\n")
    lines[2] = damage
    path.write_bytes(b"\n".join(lines))
    assert refusal(path).startswith(f"{path}:3: {words}")


def test_what_a_newer_minor_version_adds_is_skipped(path):
    lines = write(path, *WHOLE).read_bytes().replace(b'"launch":"r1-x"', b'"launch":"r1-x","n":1')
    path.write_bytes(lines)
    assert list(journal.read(path)) == WHOLE


def test_a_journal_of_a_future_version_is_refused_naming_both(path):
    write(path, evolve(OPENED, schema="inferometer.journal/2"), launched())
    assert refusal(path) == (
        f"{path}:1: this is inferometer.journal/2, and this Inferometer reads inferometer.journal "
        "up to version 1: install a newer one"
    )


def test_another_format_is_refused_naming_both(path):
    write(path, evolve(OPENED, schema="something.else/1"))
    assert "expected schema 'inferometer.journal/1', found 'something.else/1'" in refusal(path)


# --- folding -----------------------------------------------------------------------------------


def test_results_are_what_the_journal_amounts_to(path):
    results = journal.load(write(path, *WHOLE))
    (launch,) = results.launches
    assert launch == Launch(
        id="r1-x",
        round=1,
        subject="x",
        started_at="2026",
        python="3.11.7",
        phases=LoadPhases(spawn_ns=9, import_ns=1, prepare_ns=2, load_ns=3),
        identity=EngineIdentity(engine="x"),
        harness_overhead_ns=100,
        usage=Usage(peak_memory_bytes=7, source="x"),
        ended=True,
    )
    assert results.samples == (sampled().sample,)
    assert [skip.workload for skip in results.skips] == ["huge", "short"]
    assert (results.suite_digest, results.order_seed, results.rounds) == (SUITE.digest, 5, 2)


def test_a_run_is_complete_when_every_planned_launch_has_ended(path):
    write(path, OPENED, launched(), launched("r2-x"), Ended(launch="r1-x"))
    assert not journal.load(path).complete
    write(path, launched("r2-x+1"), Ended(launch="r2-x+1"))
    assert journal.load(path).complete


def test_a_launch_that_failed_has_ended(path):
    failure = Failure(kind="killed", message="m", stage="load", exit_code=-9, signal="SIGKILL")
    results = journal.load(write(path, OPENED, launched(), Ended(launch="r1-x", failure=failure)))
    (launch,) = results.launches
    assert (launch.failure, launch.ended) == (failure, True)


def test_the_same_skip_in_every_round_is_one_skip(path):
    results = journal.load(write(path, *WHOLE[:-1], Skipped(skip=SKIP)))
    assert results.skips.count(SKIP) == 1


def test_results_name_no_folder_of_this_machine(path):
    results = journal.load(write(path, *WHOLE))
    (record,) = results.subjects
    assert record.subject.model == Path("m.gguf")
    assert record.subject.python == "python"
    assert b"/home/me" not in to_json(results)


def test_a_second_attempt_is_of_the_same_planned_launch():
    assert [planned_id(name) for name in ("r1-x", "r1-x+1", "r1-x+12")] == ["r1-x"] * 3


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "empty: the run ended before anything was measured"),
        ([launched()], "does not begin with its opening record"),
        ([OPENED, OPENED], "has two opening records: two runs wrote into it"),
        ([OPENED, launched(), OPENED], "has two opening records: two runs wrote into it"),
        ([OPENED, sampled()], "speaks of launch 'r1-x' before it began"),
        ([OPENED, loaded()], "speaks of launch 'r1-x' before it began"),
        ([OPENED, Ended(launch="r1-x")], "speaks of launch 'r1-x' before it began"),
    ],
)
def test_records_that_make_up_no_run_are_refused_naming_the_file(path, records, words):
    assert refusal(write(path, *records)) == f"{path}: {words}"


# --- a run's folder -----------------------------------------------------------------------------


def test_a_folder_is_read_from_its_journal_whatever_its_results_file_says(path):
    write(path, *WHOLE)
    written = write_results(path.parent)
    assert load_results(path.parent) == load_results(path.parent / "results.json") == written
    (path.parent / "results.json").write_text("{")
    assert load_results(path.parent) == written == load_results(path)


def test_a_results_file_stands_alone(path):
    write(path, *WHOLE)
    written = write_results(path.parent)
    path.unlink()
    assert load_results(path.parent) == written


@pytest.mark.parametrize("content", [None, b""])
def test_a_folder_without_a_run_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / journal.NAME).write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        load_results(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "expected schema 'inferometer.results/1', found None"),
        (b'{"schema":"inferometer.results/2"}', "reads inferometer.results up to version 1"),
        (b'{"schema":"inferometer.results/1"}', "$.run_id: "),
    ],
)
def test_a_results_file_that_is_none_is_refused_naming_it(tmp_path, data, words):
    path = tmp_path / "results.json"
    path.write_bytes(data)
    with pytest.raises(ResultsError) as caught:
        load_results(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_a_results_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot read .*none\.json: No such file"):
        load_results(tmp_path / "none.json")


def test_results_that_do_not_fit_leave_the_older_ones_alone(path, monkeypatch):
    write(path, *WHOLE[:3])
    write_results(path.parent)
    before = (path.parent / "results.json").read_bytes()
    write(path, *WHOLE[3:])

    def fsync(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("inferometer.load.os.fsync", fsync)
    with pytest.raises(ResultsError) as caught:
        write_results(path.parent)
    assert "The journal beside it is whole: `inferometer show" in str(caught.value)
    assert (path.parent / "results.json").read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == [journal.NAME, "results.json"]


def test_an_interrupt_while_writing_results_leaves_no_half_of_them(path, monkeypatch):
    write(path, *WHOLE)

    def fsync(fd):
        raise KeyboardInterrupt

    monkeypatch.setattr("inferometer.load.os.fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        write_results(path.parent)
    assert [file.name for file in path.parent.iterdir()] == [journal.NAME]
