"""Suites and subjects: read strictly, told with every mistake, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from inferometer.codec import from_json, structure, to_json
from inferometer.engine import Sampling
from inferometer.errors import ExitCode, SuiteError
from inferometer.prompts import PromptSource
from inferometer.suite import (
    MAX_ROUNDS,
    Condition,
    Subject,
    Subjects,
    Suite,
    Workload,
    builtin_suites,
    parse,
    read_subjects,
    read_suite,
)

MINIMAL = """
name = "mine"
[[workloads]]
name = "w"
prompt_tokens = 10
output_tokens = 2
"""
NAME_DEMAND = "expected letters, digits, '.', '_' and '-', 64 at most, a letter or a digit first"
SUBJECT = """
[[subjects]]
name = "one"
engine = "llama-server"
model = "model.gguf"
"""


def mistakes(text: str, into: type = Suite) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parse(text, into, where="my.toml")
    assert caught.value.exit_code is ExitCode.USAGE
    lines = str(caught.value).splitlines()
    assert all(line.startswith("my.toml: ") for line in lines)
    return [line.removeprefix("my.toml: ") for line in lines]


def workload(**changes: object) -> Workload:
    return Workload(**{"name": "w", "prompt_tokens": 10, "output_tokens": 2, **changes})


def suite(**changes: object) -> Suite:
    return Suite(**{"name": "mine", "workloads": (workload(),), **changes})


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# --- the suites that come along ------------------------------------------------------------


def test_two_suites_come_along():
    assert builtin_suites() == ["prefill-decode", "quick"]


@pytest.mark.parametrize(
    ("name", "rounds", "lengths", "output"),
    [
        ("prefill-decode", 5, {"p512": 512, "p2048": 2048, "p8192": 8192}, 256),
        ("quick", 3, {"p128": 128, "p512": 512}, 32),
    ],
)
def test_a_built_in_suite_asks_exactly_this(name, rounds, lengths, output):
    found = read_suite(name)
    assert found.name == name
    assert found.rounds == rounds
    assert found.conditions == tuple(Condition)
    assert {w.name: w.prompt_tokens for w in found.workloads} == lengths
    for asked in found.workloads:
        assert asked.output_tokens == output
        assert asked.sampling.greedy
        assert asked.ignore_eos
        assert asked.warmup == 1
        assert asked.prompt is PromptSource.CHAT


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        (
            "prefill-decode",
            "sha256:e218ffe34e76bec45d9f4e06c38e6ba83a9586f3ef22e0f4ebe4af9b26ce60bd",
        ),
        ("quick", "sha256:984b0c034a69d5c1afc00022cb807f0d386b91660df7ddffc107754cb06b6eae"),
    ],
)
def test_a_built_in_suite_never_changes_what_it_asks(name, pinned):
    assert read_suite(name).digest == pinned, (
        f"suite {name} asks for something else now: results of old and new would share a name. "
        "Give the changed suite a new name and leave this one as it is"
    )


def test_a_built_in_suite_has_a_sentence_about_itself():
    for name in builtin_suites():
        assert read_suite(name).description.endswith(".")


# --- digest --------------------------------------------------------------------------------


def test_the_digest_does_not_depend_on_the_order_of_keys():
    turned = """
    seed = 7
    rounds = 2
    name = "mine"
    [[workloads]]
    output_tokens = 2
    prompt_tokens = 10
    name = "w"
    """
    assert parse(turned, Suite, where="").digest == suite(seed=7, rounds=2).digest


def test_a_default_that_is_written_out_changes_no_digest():
    written_out = MINIMAL + 'prompt = "chat"\nignore_eos = true\nsampling = { temperature = 0 }\n'
    assert parse(written_out, Suite, where="").digest == parse(MINIMAL, Suite, where="").digest


def test_the_order_in_which_conditions_are_written_changes_no_digest():
    turned = parse('conditions = ["control", "cold", "reuse", "load"]' + MINIMAL, Suite, where="")
    assert turned.conditions == tuple(Condition)
    assert turned.digest == suite().digest


def test_names_for_people_are_no_part_of_the_digest():
    assert suite(name="other", description="Another sentence.").digest == suite().digest


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 6},
        {"seed": 2},
        {"conditions": (Condition.COLD,)},
        {"workloads": (workload(name="v"),)},
        {"workloads": (workload(prompt_tokens=11),)},
        {"workloads": (workload(output_tokens=3),)},
        {"workloads": (workload(prompt=PromptSource.RAW),)},
        {"workloads": (workload(prompt=PromptSource.IDS, prompt_tokens=None, ids=(1, 2)),)},
        {"workloads": (workload(ignore_eos=False),)},
        {"workloads": (workload(warmup=2),)},
        {"workloads": (workload(sampling=Sampling(temperature=0.5)),)},
        {"workloads": (workload(sampling=Sampling(seed=1)),)},
        {"workloads": (workload(), workload(name="v"))},
    ],
)
def test_whatever_is_asked_is_part_of_the_digest(changes):
    assert suite(**changes).digest != suite().digest


def test_the_digest_survives_a_journey_through_a_results_file():
    for name in builtin_suites():
        found = read_suite(name)
        assert structure(from_json(to_json(found)), Suite).digest == found.digest


# --- a suite of one's own ------------------------------------------------------------------


def test_a_suite_needs_no_more_than_a_name_and_a_workload():
    found = parse(MINIMAL, Suite, where="")
    assert found == suite()
    assert (found.rounds, found.seed, found.conditions) == (5, 1, tuple(Condition))


def test_a_suite_is_read_from_a_file(tmp_path):
    path = written(tmp_path / "mine.toml", MINIMAL)
    assert read_suite(str(path)) == suite()


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    path = written(tmp_path / "mine.toml", "\ufeff" + MINIMAL)
    assert read_suite(str(path)) == suite()


def test_a_file_of_any_name_is_a_suite_when_it_is_there(tmp_path):
    path = written(tmp_path / "mine", MINIMAL)
    assert read_suite(str(path)) == suite()


def test_a_built_in_suite_wins_over_a_file_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "quick", MINIMAL)
    assert read_suite("quick").name == "quick"
    assert read_suite("./quick").name == "mine"


def test_a_prompt_may_be_given_as_ids():
    text = (
        'name = "s"\n[[workloads]]\nname = "w"\nprompt = "ids"\nids = [1, 2, 3]\noutput_tokens = 4'
    )
    (asked,) = parse(text, Suite, where="").workloads
    assert (asked.prompt, asked.ids) == (PromptSource.IDS, (1, 2, 3))
    assert (asked.length, asked.total_tokens) == (3, 7)


def test_a_workload_knows_the_room_it_needs():
    assert workload(prompt_tokens=8192, output_tokens=256).total_tokens == 8448


# --- every mistake, with its path ----------------------------------------------------------


def test_every_mistake_of_a_file_is_told_at_once():
    text = """
    name = "my suite"
    round = 3
    seed = -1
    conditions = ["cold", "hot"]
    [[workloads]]
    name = "a"
    prompt_tokens = "512"
    output_tokens = 0
    [[workloads]]
    name = "b"
    output_tokens = 1
    [workloads.sampling]
    temprature = 1
    """
    assert mistakes(text) == [
        "$.conditions[1]: expected one of load, cold, reuse, control, got 'hot'",
        "$.workloads[0].prompt_tokens: expected an integer, got '512'",
        "$.workloads[0].output_tokens: expected 1 to 16777216, got 0",
        "$.workloads[1].sampling.temprature: unknown key; did you mean 'temperature'?",
        "$.round: unknown key; did you mean 'rounds'?",
        f"$.name: {NAME_DEMAND}, got 'my suite'",
        "$.seed: expected 0 to 4294967295, got -1",
    ]


def test_the_file_is_named_in_every_line(tmp_path):
    path = written(tmp_path / "mine.toml", "rounds = 0\nsed = 1\n")
    with pytest.raises(SuiteError) as caught:
        read_suite(str(path))
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"{path}: $.") for line in lines)


@pytest.mark.parametrize("key", ["model", "path", "python", "engine", "options"])
def test_a_suite_names_nothing_of_one_machine(key):
    (mistake,) = mistakes(f'{key} = "/models/a.gguf"' + MINIMAL)
    assert mistake.startswith(f"$.{key}: unknown key")


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("rounds = 0", "$.rounds: expected 1 to 1000, got 0"),
        ("rounds = 1001", "$.rounds: expected 1 to 1000, got 1001"),
        ("rounds = 1000000000", "$.rounds: expected 1 to 1000, got 1000000000"),
        ("rounds = true", "$.rounds: expected an integer, got true"),
        ("rounds = 3.0", "$.rounds: expected an integer, got 3.0"),
        ("seed = 123456789012345678901234567890", "$.seed: expected an integer of at most 64 bits"),
        ("conditions = []", "$.conditions: name at least one"),
        ('conditions = "cold"', "$.conditions: expected an array, got 'cold'"),
        ("description = 2024-01-01", "$.description: expected a string, got 2024-01-01"),
    ],
)
def test_a_wrong_value_is_told_with_what_would_be_right(line, mistake):
    assert mistakes(line + MINIMAL) == [mistake]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("warmup = -1", "warmup: expected 0 to 100, got -1"),
        ("warmup = 101", "warmup: expected 0 to 100, got 101"),
        ("ids = [1]", 'prompt = "chat" takes `prompt_tokens` and no `ids`'),
        ('prompt = "ids"', 'prompt = "ids" takes `ids` and no `prompt_tokens`'),
        (
            'prompt = "raww"',
            "prompt: expected one of chat, raw, ids, got 'raww'; did you mean 'raw'?",
        ),
        ("sampling.temperature = -1", "sampling.temperature: must be >= 0.0: -1.0"),
        ("sampling.temperature = inf", "sampling.temperature: expected a finite number, got inf"),
        ("sampling.temperature = nan", "sampling.temperature: expected a finite number, got nan"),
        ("sampling.seed = 4294967296", "sampling.seed: must be < 4294967296: 4294967296"),
    ],
)
def test_a_wrong_value_of_a_workload_is_told_with_its_place(line, mistake):
    (found,) = mistakes(MINIMAL + line)
    assert found.removeprefix("$.workloads[0]").lstrip(".: ") == mistake


@pytest.mark.parametrize("key", ["prompt_tokens", "output_tokens"])
@pytest.mark.parametrize("length", [0, -5, 2**24 + 1, 10**18])
def test_a_length_that_no_context_can_hold_is_refused(key, length):
    text = MINIMAL.replace(f"{key} = {10 if key == 'prompt_tokens' else 2}", f"{key} = {length}")
    (found,) = mistakes(text)
    assert found.startswith(f"$.workloads[0].{key}: expected 1 to 16777216, got ")


@pytest.mark.parametrize("ids", ["[]", "[-1]", "[2147483648]"])
def test_ids_that_no_vocabulary_has_are_refused(ids):
    text = f'name = "s"\n[[workloads]]\nname = "w"\nprompt = "ids"\nids = {ids}\noutput_tokens = 1'
    (found,) = mistakes(text)
    assert found.startswith("$.workloads[0]")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", ".a", "-a", "a\\n", "ä", "n" * 65])
def test_a_name_that_could_not_be_a_file_name_everywhere_is_refused(name):
    (found,) = mistakes(MINIMAL.replace('"mine"', f'"{name}"'))
    assert found.startswith(f"$.name: {NAME_DEMAND}, got ")


@pytest.mark.parametrize("other", ["w", "W"])
def test_two_workloads_of_one_name_are_refused_also_where_only_case_differs(other):
    text = MINIMAL + f'[[workloads]]\nname = "{other}"\nprompt_tokens = 5\noutput_tokens = 1\n'
    assert mistakes(text) == [f"$: two workloads are named {other!r}"]


def test_a_condition_is_named_once():
    assert mistakes('conditions = ["cold", "cold"]' + MINIMAL) == [
        "$: two conditions are named 'cold'"
    ]


def test_a_suite_without_workloads_is_refused():
    assert mistakes('name = "s"\nworkloads = []') == ["$.workloads: name at least one"]
    assert mistakes('name = "s"') == ["$.workloads: required, but missing"]


def test_a_suite_of_a_later_format_says_so():
    assert mistakes('schema = "inferometer.suite/2"' + MINIMAL) == [
        "$.schema: this Inferometer reads inferometer.suite/1, got 'inferometer.suite/2'"
    ]


def test_subjects_given_as_a_suite_say_so():
    (found,) = mistakes('schema = "inferometer.subjects/1"' + MINIMAL)
    assert found.endswith("reads inferometer.suite/1, got 'inferometer.subjects/1'")


# --- files that are not even TOML ----------------------------------------------------------


def test_invalid_toml_names_the_line():
    (found,) = mistakes('name = "s"\n\nrounds = = 3\n')
    assert found.startswith("not valid TOML: ")
    assert "line 3" in found


def test_a_key_that_is_written_twice_is_refused():
    (found,) = mistakes('name = "a"\nname = "b"\n')
    assert found.startswith("not valid TOML: ")


def test_toml_that_is_nested_without_end_is_refused():
    assert mistakes("a = " + "[" * 5000 + "]" * 5000) == ["not valid TOML: nested too deeply"]


def test_a_number_too_long_to_be_read_is_refused():
    (found,) = mistakes("rounds = " + "9" * 5000)
    assert found.startswith("not valid TOML: ")
    (found,) = mistakes("rounds = 0x" + "f" * 5000 + MINIMAL)
    assert found == "$.rounds: expected an integer of at most 64 bits"


@pytest.mark.parametrize("text", ["", "# nothing but a remark\n"])
def test_an_empty_file_is_told_what_it_lacks(text):
    assert mistakes(text) == [
        "$.name: required, but missing",
        "$.workloads: required, but missing",
    ]


def test_a_file_that_is_not_utf8_is_refused_with_the_place(tmp_path):
    path = written(tmp_path / "mine.toml", b'name = "\xff"\n')
    with pytest.raises(SuiteError, match=r"mine\.toml: not UTF-8 text \(byte 8\)"):
        read_suite(str(path))


def test_a_folder_is_not_a_suite(tmp_path):
    with pytest.raises(SuiteError, match=r"cannot read .*: Is a directory"):
        read_suite(str(tmp_path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SuiteError, match=r"cannot read .*no\.toml: No such file"):
        read_suite(str(tmp_path / "no.toml"))
    with pytest.raises(SuiteError, match=r"cannot read .*no: No such file"):
        read_suite(str(tmp_path / "no"))


def test_an_unknown_built_in_suite_is_answered_with_a_close_one():
    with pytest.raises(SuiteError, match="no built-in suite is named 'quik'; did you mean 'quick'"):
        read_suite("quik")


@pytest.mark.parametrize("name", ["zzz", "", "n" * 5000, "a\0b"])
def test_a_name_that_is_nothing_is_answered_with_what_there_is(name):
    with pytest.raises(SuiteError, match=r"known: prefill-decode, quick \(a suite of your own"):
        read_suite(name)


# --- subjects ------------------------------------------------------------------------------


def subjects_at(folder: Path, text: str) -> Subjects:
    return read_subjects(written(folder / "subjects.toml", text))


def test_a_relative_model_path_starts_at_the_file(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "there" / "subjects.toml", SUBJECT)
    (subject,) = read_subjects(Path("there/subjects.toml")).subjects
    assert subject.model == tmp_path / "there" / "model.gguf"


def test_an_absolute_model_path_stays(tmp_path):
    text = SUBJECT.replace("model.gguf", "/models/model.gguf")
    assert subjects_at(tmp_path, text).subjects[0].model == Path("/models/model.gguf")


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (subject,) = subjects_at(tmp_path, SUBJECT.replace("model.gguf", "~/model.gguf")).subjects
    assert subject.model == tmp_path / "home" / "model.gguf"


def test_the_home_of_nobody_is_refused(tmp_path):
    with pytest.raises(SuiteError, match=r"subjects\.toml: Could not determine home"):
        subjects_at(tmp_path, SUBJECT.replace("model.gguf", "~nobody-of-that-name/model.gguf"))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("python3.12", "python3.12"),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
        (".venv/bin/python", "{home}/.venv/bin/python"),
    ],
)
def test_an_interpreter_is_a_word_for_the_shell_or_a_path_from_the_file(tmp_path, given, found):
    (subject,) = subjects_at(tmp_path, SUBJECT + f'python = "{given}"').subjects
    assert subject.python == found.format(home=tmp_path)


def test_options_keep_the_types_that_toml_gave_them(tmp_path):
    options = 'options = { threads = 4, mmap = false, scale = 1.5, kv = "q8_0", split = [1, 2] }'
    (subject,) = subjects_at(tmp_path, SUBJECT + options).subjects
    assert subject.options == {
        "threads": 4,
        "mmap": False,
        "scale": 1.5,
        "kv": "q8_0",
        "split": [1, 2],
    }
    assert type(subject.options["threads"]) is int


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("modle = 1", "$.subjects[0].modle: unknown key; did you mean 'model'?"),
        ("prompt_tokens = 1", "$.subjects[0].prompt_tokens: unknown key; known: "),
        ('python = ""', "$.subjects[0].python: must not be empty, got ''"),
        ("options = [1]", "$.subjects[0].options: expected a table, got an array"),
        ("options.a.b = 1", "$.subjects[0].options.a: expected a string, "),
        ("options.a = nan", "$.subjects[0].options.a: expected a finite number, got nan"),
        ("options.a = 0xfffffffffffffffff", "$.subjects[0].options.a: expected an integer of at"),
    ],
)
def test_a_mistake_about_a_subject_is_told_with_its_place(line, mistake):
    (found,) = mistakes(SUBJECT + line, Subjects)
    assert found.startswith(mistake)


@pytest.mark.parametrize("model", ["", "a\\u0000b"])
def test_a_model_that_cannot_be_a_path_is_refused(model):
    (found,) = mistakes(SUBJECT.replace("model.gguf", model), Subjects)
    assert found.startswith("$.subjects[0].model: expected a path, got ")


@pytest.mark.parametrize("other", ["one", "ONE"])
def test_two_subjects_of_one_name_are_refused_since_each_has_a_log_of_its_name(other):
    again = SUBJECT.replace('"one"', f'"{other}"')
    assert mistakes(SUBJECT + again, Subjects) == [f"$: two subjects are named {other!r}"]


def test_a_file_without_subjects_is_refused():
    assert mistakes("subjects = []", Subjects) == ["$.subjects: name at least one"]


def test_subjects_of_a_later_format_say_so():
    (found,) = mistakes('schema = "inferometer.subjects/2"' + SUBJECT, Subjects)
    assert found.endswith("reads inferometer.subjects/1, got 'inferometer.subjects/2'")


def test_a_missing_subjects_file_is_named(tmp_path):
    with pytest.raises(SuiteError, match=r"cannot read .*no\.toml"):
        read_subjects(tmp_path / "no.toml")


def test_a_path_that_no_file_of_ours_could_hold_is_refused():
    with pytest.raises(ValueError, match="not UTF-8"):
        Subject(name="a", engine="e", model=Path("/models/\udcff.gguf"))


def test_what_python_code_makes_is_held_to_the_same_rules():
    for changes in ({"rounds": 0}, {"rounds": MAX_ROUNDS + 1}, {"workloads": ()}, {"name": "a b"}):
        with pytest.raises(ValueError):
            suite(**changes)
    with pytest.raises(ValueError):
        evolve(Subject(name="a", engine="e", model=Path("m")), engine="")
