"""What was written once can be read for ever.

The files were made by real runs of the version that their names tell. They are never made anew:
when one of them cannot be read, it is the reader that is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from inferometer import journal, results
from inferometer.cli.validate import check
from inferometer.codec import from_json, structure, to_json
from inferometer.errors import ResultsError
from inferometer.load import load_results, parse_results
from inferometer.metrics import SAMPLE_METRICS
from inferometer.results import Results
from inferometer.schema import json_schema
from inferometer.suite import Condition
from inferometer.summary import summarize
from support import tiny_run

DATA = Path(__file__).parent.parent / "data"
OLD_RESULTS = sorted(DATA.glob("results-v*.json"))
OLD_JOURNALS = sorted(DATA.glob("journal-v*.jsonl"))
every_file = pytest.mark.parametrize("path", [*OLD_RESULTS, *OLD_JOURNALS], ids=lambda p: p.name)
every_result = pytest.mark.parametrize("path", OLD_RESULTS, ids=lambda path: path.name)
every_journal = pytest.mark.parametrize("path", OLD_JOURNALS, ids=lambda path: path.name)


def latest(schema: str) -> int:
    return int(schema.rpartition("/")[2])


# --- the files are there -------------------------------------------------------------------


def test_there_is_a_file_of_every_version_of_the_results():
    expected = {f"results-v{number}.json" for number in range(1, latest(results.SCHEMA) + 1)}
    assert {path.name for path in OLD_RESULTS} == expected


def test_there_is_a_file_of_every_version_of_the_journal():
    expected = {f"journal-v{number}.jsonl" for number in range(1, latest(journal.SCHEMA) + 1)}
    assert {path.name for path in OLD_JOURNALS} == expected


@every_file
def test_a_kept_file_names_no_machine(path):
    loaded = load_results(path)
    assert loaded.host.chip == tiny_run.HOST["chip"]
    assert "/home" not in path.read_text("utf-8")
    assert "/tmp" not in path.read_text("utf-8")


# --- and can be read -----------------------------------------------------------------------


@every_file
def test_an_old_file_is_read(path):
    loaded = load_results(path)
    assert loaded.complete
    assert [record.subject.name for record in loaded.subjects] == ["good", "failing", "dying"]
    assert {launch.subject for launch in loaded.launches} == {"good", "failing", "dying"}
    assert all(launch.ended for launch in loaded.launches)


@every_file
def test_what_went_well_and_what_did_not_is_still_told_apart(path):
    loaded = load_results(path)
    launches = {launch.subject: launch for launch in loaded.launches}
    assert launches["good"].failure is None
    assert launches["dying"].failure is not None
    assert launches["dying"].failure.kind == "connection_lost"
    failed = {s.failure.kind for s in loaded.samples if s.subject == "failing" and s.failure}
    assert failed == {"request_rejected"}
    assert {skip.code for skip in loaded.skips} == {
        "context_exceeded",
        "control_needs_another_prompt",
        "earlier_request_failed",
    }


@every_file
def test_the_digest_of_an_old_suite_is_what_it_was(path):
    loaded = load_results(path)
    assert loaded.suite.digest == loaded.suite_digest, (
        "the digest of a suite changed: results of old and new versions would not be comparable"
    )


@every_file
def test_every_metric_of_an_old_file_is_computed_or_has_a_reason(path):
    rows = summarize(load_results(path)).metrics
    assert {row.metric for row in rows} >= {metric.id for metric in SAMPLE_METRICS}
    assert all((row.median is None) == (row.undefined is not None) for row in rows)


@every_file
def test_a_number_of_an_old_file_is_made_of_what_was_recorded_then(path):
    loaded = load_results(path)
    (sample,) = (
        sample
        for sample in loaded.samples
        if (sample.subject, sample.workload, sample.condition) == ("good", "short", Condition.COLD)
        and not sample.warmup
    )
    (row,) = (
        row
        for row in summarize(loaded).metrics
        if (row.subject, row.workload, row.condition, row.metric)
        == ("good", "short", Condition.COLD, "ttft")
    )
    assert row.median == pytest.approx(sample.arrivals.offsets_ns[0] / 1e9)


@every_result
def test_old_results_are_valid_by_todays_schema(path):
    validator = Draft202012Validator(json_schema("results"))
    assert list(validator.iter_errors(from_json(path.read_bytes()))) == []


@every_journal
def test_an_old_journal_is_valid_by_todays_schema(path):
    validator = Draft202012Validator(json_schema("journal"))
    for line in path.read_bytes().splitlines():
        assert list(validator.iter_errors(from_json(line))) == []


def test_no_field_that_was_written_is_forgotten_within_a_version():
    """A removed field would be skipped in silence: old values would be lost."""
    newest = DATA / f"results-v{latest(results.SCHEMA)}.json"
    assert structure(from_json(newest.read_bytes()), Results, strict=True)


def test_results_and_journal_of_one_run_tell_the_same():
    newest = DATA / f"results-v{latest(results.SCHEMA)}.json"
    beside = DATA / f"journal-v{latest(journal.SCHEMA)}.jsonl"
    assert load_results(newest) == load_results(beside)


@every_file
def test_an_old_file_passes_the_validate_command(path):
    assert check(path).startswith("inferometer.")


@every_file
def test_an_old_file_is_shown_by_the_command_line(path, tmp_path):
    shown = tiny_run.command(tmp_path, "show", str(path), "--json")
    assert shown.returncode == 0, shown.stderr
    assert from_json(shown.stdout)["metrics"]


# --- what is not old but new, or not ours --------------------------------------------------


def test_results_of_a_later_version_are_refused_with_both_versions():
    later = evolve(load_results(OLD_RESULTS[-1]), schema="inferometer.results/99")
    with pytest.raises(ResultsError, match=r"results/99.*up to version 1"):
        parse_results(to_json(later), where="later.json")


@pytest.mark.parametrize("data", [b"{}", b"[]", b"null", b'{"schema": "somebody/1"}', b"\xff"])
def test_a_file_of_somebody_else_is_refused(data):
    with pytest.raises(ResultsError, match=r"other\.json"):
        parse_results(data, where="other.json")


@pytest.mark.parametrize("rounds", [0, -1, 10**9])
def test_a_file_with_an_absurd_number_of_rounds_is_refused(tmp_path, rounds):
    damaged = json.loads((DATA / "results-v1.json").read_text()) | {"rounds": rounds}
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(ResultsError, match="rounds"):
        load_results(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"offsets_ns": [1, 2], "kinds": "aaa", "tokens": [1, 1]}, "differ in length"),
        ({"offsets_ns": [1, 2], "kinds": "aa", "tokens": [1]}, "differ in length"),
        ({"offsets_ns": [1], "kinds": "z", "tokens": [1]}, "letters of no meaning: z"),
        ({"offsets_ns": [2, 1], "kinds": "aa", "tokens": [1, 1]}, "runs backwards"),
        ({"offsets_ns": [-1, 1], "kinds": "aa", "tokens": [1, 1]}, "runs backwards"),
        ({"offsets_ns": [1, 2], "kinds": "aa", "tokens": [-1, 3]}, "negative count"),
    ],
)
def test_columns_of_arrivals_that_do_not_fit_are_refused_by_name(tmp_path, change, told):
    damaged = json.loads((DATA / "results-v1.json").read_text())
    damaged["samples"][1]["arrivals"] = change
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(ResultsError, match=told) as caught:
        load_results(path)
    assert "samples[1].arrivals" in str(caught.value)


def test_a_file_with_two_subjects_of_one_name_is_refused(tmp_path):
    damaged = json.loads((DATA / "results-v1.json").read_text())
    damaged["subjects"].append(damaged["subjects"][0])
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(ResultsError, match="two subjects have one name"):
        load_results(path)


def test_a_phase_of_loading_cannot_have_taken_less_than_no_time(tmp_path):
    damaged = json.loads((DATA / "results-v1.json").read_text())
    damaged["launches"][0]["phases"]["load_ns"] = -1
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged))
    with pytest.raises(ResultsError, match="load_ns"):
        load_results(path)


def test_a_journal_with_two_subjects_of_one_name_is_refused_as_well(tmp_path):
    first, _, rest = (DATA / "journal-v1.jsonl").read_text().partition("\n")
    opened = json.loads(first)
    opened["body"]["subjects"].append(opened["body"]["subjects"][0])
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{json.dumps(opened)}\n{rest}")
    with pytest.raises(ResultsError, match="two subjects have one name"):
        load_results(path)
