"""JSON Schemas: made from the classes, committed, and true of what we read and write."""

from __future__ import annotations

import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import field, frozen
from jsonschema import Draft202012Validator

import inferometer_schemas
from inferometer import results, schema, summary
from inferometer.codec import from_json, structure, to_json
from inferometer.fields import about_of
from inferometer.load import load_results
from inferometer.schema import SCHEMAS, file_name, json_schema, write_schemas
from inferometer.suite import Subjects, Suite, builtin_suites, read_suite
from support import tiny_run

COMMITTED = Path(inferometer_schemas.__file__).parent
every_format = pytest.mark.parametrize("name", SCHEMAS)


def problems(name: str, data: Any) -> list[str]:
    validator = Draft202012Validator(json_schema(name))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_run.tiny_run(tmp_path_factory.mktemp("run"))


def journal_lines(run: Path) -> list[Any]:
    return [from_json(line) for line in (run / "journal.jsonl").read_bytes().splitlines()]


# --- the committed files -------------------------------------------------------------------


@every_format
def test_the_committed_schema_is_the_one_the_classes_make(name):
    path = COMMITTED / file_name(name, SCHEMAS[name][0])
    assert from_json(path.read_bytes()) == json_schema(name), (
        "the classes changed: python -m inferometer schema --write schemas/inferometer_schemas, "
        "and look whether old files can still be read"
    )


def test_every_format_has_a_file_and_every_file_a_format():
    expected = sorted(file_name(name, identifier) for name, (identifier, _) in SCHEMAS.items())
    assert inferometer_schemas.names() == expected


def test_the_data_package_reads_its_files_by_name():
    for name in inferometer_schemas.names():
        assert inferometer_schemas.read(name)["$schema"] == schema.DRAFT


def test_writing_makes_the_same_files_again(tmp_path):
    for path in write_schemas(tmp_path):
        assert path.read_bytes() == (COMMITTED / path.name).read_bytes()


# --- each schema by itself -----------------------------------------------------------------


@every_format
def test_a_schema_is_valid_itself(name):
    Draft202012Validator.check_schema(json_schema(name))


@every_format
def test_a_schema_is_named_after_its_format_and_version(name):
    made = json_schema(name)
    assert made["$id"] == made["title"] == SCHEMAS[name][0]
    assert file_name(name, made["$id"]) == f"{name}.v1.schema.json"


@every_format
def test_every_reference_leads_somewhere_and_every_definition_is_used(name):
    made = json_schema(name)
    used = {ref.removeprefix("#/$defs/") for ref in references(made)}
    assert used == set(made["$defs"])


def references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [ref for item in node for ref in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [ref for item in node.values() for ref in references(item)]


@every_format
def test_what_a_field_says_about_itself_is_in_its_schema(name):
    made = json_schema(name)
    for kind in SCHEMAS[name][1]:
        properties = made["$defs"][kind.__name__]["properties"]
        for attribute in attrs.fields(kind):
            about = about_of(attribute)
            if about:
                assert properties[attribute.name]["description"] == about.doc
                assert properties[attribute.name]["x-role"] == about.role


def test_a_default_is_in_the_schema_and_a_field_without_one_is_required():
    made = json_schema("suite")["$defs"]
    assert made["Suite"]["required"] == ["name", "workloads"]
    assert made["Suite"]["properties"]["rounds"]["default"] == 5
    assert made["Suite"]["properties"]["conditions"]["default"] == [
        "load",
        "cold",
        "reuse",
        "control",
    ]
    assert made["Workload"]["properties"]["sampling"]["default"] == {"temperature": 0.0, "seed": 0}
    assert "default" not in json_schema("subjects")["$defs"]["Subject"]["properties"]["options"]


def test_two_classes_of_one_name_cannot_share_a_schema():
    def twin() -> type:
        @frozen
        class Twin:
            n: int = 0

        return Twin

    builder = schema._Builder(closed=False)
    builder.reference(twin())
    with pytest.raises(AssertionError, match="two classes are named Twin"):
        builder.reference(twin())


def test_a_class_may_hold_itself():
    builder = schema._Builder(closed=True)
    builder.reference(Linked)
    assert builder.definitions["Linked"]["properties"]["following"] == {
        "anyOf": [{"$ref": "#/$defs/Linked"}, {"type": "null"}],
        "default": None,
    }


@frozen
class Linked:
    """Holds another of its kind."""

    following: Linked | None = field(default=None)


# --- what people write is closed -----------------------------------------------------------


@pytest.mark.parametrize("name", builtin_suites())
def test_a_built_in_suite_is_valid_as_it_is_written(name):
    text = (resources.files("inferometer") / "suites" / f"{name}.toml").read_text("utf-8")
    assert problems("suite", tomllib.loads(text)) == []


@pytest.mark.parametrize("name", builtin_suites())
def test_a_built_in_suite_is_valid_as_it_is_recorded(name):
    assert problems("suite", from_json(to_json(read_suite(name)))) == []


def test_an_extra_key_in_a_suite_is_refused_as_the_reader_refuses_it():
    data = from_json(to_json(read_suite("quick")))
    data["workloads"][0]["prompt_token"] = 1
    (problem,) = problems("suite", data)
    assert problem.startswith("$.workloads[0]: Additional properties")


def test_subjects_are_valid_as_they_are_written():
    data = tomllib.loads(tiny_run.SUBJECTS)
    assert problems("subjects", data) == []
    assert structure(data, Subjects)
    data["subjects"][0]["modle"] = "x"
    assert problems("subjects", data)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("rounds", "3"),
        ("rounds", 1.5),
        ("rounds", 0),
        ("rounds", 1001),
        ("seed", -1),
        ("conditions", ["hot"]),
        ("conditions", []),
        ("workloads", {}),
        ("workloads", []),
        ("workloads", [{"name": "w", "prompt_tokens": 0, "output_tokens": 1}]),
        ("workloads", [{"name": "w", "prompt": "ids", "ids": [-1], "output_tokens": 1}]),
        ("name", 1),
        ("name", "a b"),
        ("schema", "inferometer.suite/2"),
    ],
)
def test_schema_and_reader_refuse_the_same(key, wrong):
    data = {**from_json(to_json(read_suite("quick"))), key: wrong}
    assert problems("suite", data)
    with pytest.raises(ValueError):
        structure(data, Suite)


# --- what we write is open to later versions -----------------------------------------------


def test_the_results_of_a_real_run_are_valid(run):
    assert problems("results", from_json((run / "results.json").read_bytes())) == []


def test_every_line_of_a_real_journal_is_valid(run):
    for line in journal_lines(run):
        assert problems("journal", line) == []


def test_a_real_journal_has_every_kind_of_record(run):
    kinds = Counter(line["kind"] for line in journal_lines(run))
    assert set(kinds) == {kind.__name__ for kind in SCHEMAS["journal"][1]}


def test_the_summary_of_a_real_run_is_valid(run):
    made = summary.summarize(load_results(run))
    assert problems("summary", from_json(to_json(made))) == []


def test_a_key_that_a_later_version_adds_to_results_is_let_pass_as_the_reader_does(run):
    data = from_json((run / "results.json").read_bytes())
    data["later"] = {"a": 1}
    data["samples"][0]["later"] = 1
    assert problems("results", data) == []
    assert structure(data, results.Results, strict=False) == load_results(run)


def test_a_record_that_the_journal_does_not_know_is_refused(run):
    first = journal_lines(run)[0]
    assert problems("journal", {**first, "kind": "Closed"})
    assert problems("journal", {"kind": "Ended", "body": {}})
    assert problems("journal", first["body"])


def test_what_was_written_is_read_again_as_it_was(run):
    assert load_results(run / "results.json") == load_results(run / "journal.jsonl")
