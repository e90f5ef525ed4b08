"""Lines for a person: why a cell is empty, and nothing in them that data could steer."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from attrs import evolve
from rich.cells import cell_len
from rich.console import Console

from inferometer import EngineIdentity, FinishReason, Placement
from inferometer.failures import Failure
from inferometer.judge import EXCLUSIONS, SHORTCOMINGS
from inferometer.load import load_results
from inferometer.metrics import REASONS, REGISTRY
from inferometer.report import DEFAULT_METRICS, render
from inferometer.report.layout import wrapped
from inferometer.report.text import (
    counted,
    counts,
    label,
    meaning,
    plain,
    reason,
    size,
    value,
    weights,
)
from inferometer.results import Results
from inferometer.suite import Condition
from inferometer.summary import FLAGS, summarize
from support.samples import (
    ending,
    failed,
    launch,
    record,
    results,
    sample,
    skip,
    suite,
    timed,
    workload,
)

REQUESTS = (Condition.COLD, Condition.REUSE, Condition.CONTROL)
HOSTILE = "[bold]x[/] [/] [link=http://e.vil]y\x1b[31m\x07\r\n\u202eabc"
SPELLED = r"[bold]x[/] [/] [link=http://e.vil]y\x1b[31m\x07\r\n\u202eabc"


def shown(run: Results, *, metrics=None, width: int = 220, **console) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, **console).print(render(run, metrics=metrics))
    return out.getvalue()


def block(text: str, condition: str) -> list[str]:
    """Return the lines of the first block of a condition, its heading left out."""
    lines = text.splitlines()
    begin = next(i for i, each in enumerate(lines) if re.match(rf"  {condition}\b", each)) + 1
    return lines[begin : lines.index("", begin) if "" in lines[begin:] else None]


def line(text: str, condition: str, *words: str) -> list[str]:
    """Return the words of the one row of a condition that begins with these, and of its notes."""
    (found,) = (
        row
        for row in re.split(r"\n {4}(?=\S)", "\n" + "\n".join(block(text, condition)))
        if row.split()[: len(words)] == [*words]
    )
    return found.split()


def flowing(text: str) -> str:
    """Return a text as if none of its lines had been wrapped."""
    return " ".join(text.split())


# --- what is shown -------------------------------------------------------------------------


def test_a_row_shows_vantage_n_median_min_and_max():
    run = results([timed(at, round=n) for n, at in enumerate((130, 100, 110), 1)])
    assert line(shown(run), "cold", "ttft")[1:] == (
        ["in_process", "3", "110", "ms", "100", "ms", "130", "ms", "spread"]
    )


def test_a_row_of_a_server_is_seen_through_http():
    text = shown(results([sample()], subjects=[record(placement=Placement.SERVER)]))
    assert line(text, "cold", "ttft")[1] == "http"
    assert line(text, "cold", "cached_tokens")[1] == "engine"


def test_finish_reasons_are_counted_and_flags_of_all_requests_told_once():
    stop = ending(reason=FinishReason.STOP_EOS)
    run = results([timed(100), timed(100, round=2, ending=stop)])
    assert line(shown(run), "cold", "finish") == (
        ["finish", "reasons", "engine", "2", "length", "x1,", "stop_eos", "x1"]
    )
    assert "    all of them: finish_reason_suspect, limit_reached" in block(shown(run), "cold")
    assert "finish_reason_suspect" not in " ".join(line(shown(run), "cold", "ttft"))


def test_excluded_requests_are_counted_and_explained_with_the_numbers():
    cut = timed(100, round=2, ending=ending(prompt_tokens=50))
    again = timed(100, round=3, ending=ending(prompt_tokens=50))
    text = shown(results([timed(100), cut, again]))
    assert "excluded: prompt_count_differs x2" in text
    assert (
        "r2-alpha/p128/cold excluded: the engine counted another prompt than was sent: "
        "asked for 128 prompt and 8 output tokens, the engine counts 50 and 8, 0 from cache; "
        "8 arrived"
    ) in text
    assert "r3-alpha/p128/cold excluded" not in text


def test_an_empty_cell_says_why():
    text = shown(results([sample(ending=ending(cached_prompt_tokens=None))]))
    assert " ".join(line(text, "cold", "cached_tokens")[1:]) == (
        "engine 0 no value: the engine does not report it"
    )
    assert "no value: the engine did not say how much of the prompt it processed" in text


def test_rounds_without_a_value_are_told_beside_the_value():
    samples = [
        timed(at, condition=condition, round=n, ending=ending(cached_prompt_tokens=cached))
        for n, control in ((1, 300), (2, 90))
        for condition, at, cached in zip(REQUESTS, (300, 40, control), (0, 100, 0), strict=True)
    ]
    text = shown(results(samples, asked=suite(conditions=REQUESTS)))
    assert "rounds without a value: control_differs x1" in text
    assert "control_differs: the control prompt did not cost what cold cost" in text


def test_a_round_that_is_missing_is_told_once_for_its_condition():
    killed = launch(2, failure=Failure(kind="killed", message="gone"))
    text = shown(results([timed(100)], [launch(1), killed], rounds=2))
    assert text.count("rounds without a value: failed: killed x1") == 1
    assert "r2-alpha failed: killed: gone" in text


def test_a_workload_that_was_skipped_says_why_in_the_place_of_its_rows():
    run = results(asked=suite(workload(), workload("p512")), skips=(skip(),))
    text = shown(run)
    assert "p128: 128 prompt tokens, 8 output tokens: not measured, 128 + 8 do not fit 100" in text
    assert text.count("do not fit") == 1
    assert "p512: 128 prompt tokens, 8 output tokens: not measured, the run ended" in text


def test_a_condition_that_was_skipped_says_why_below():
    left_out = skip(condition=Condition.REUSE, code="unsupported", reason="it keeps no cache")
    run = results([timed(100)], asked=suite(conditions=REQUESTS), skips=(left_out,))
    text = shown(run)
    assert "no value: skipped: unsupported" in text
    assert "alpha/p128/reuse skipped: it keeps no cache" in text


def test_failures_that_are_alike_are_told_once_with_their_number():
    text = shown(results([failed(round=1), failed(round=2), failed("other", round=3)]))
    assert "r1-alpha/p128/cold failed: connection_lost: gone (and 1 more)" in text
    assert "r2-alpha/p128/cold failed" not in text
    assert "r3-alpha/p128/cold failed: other: gone" in text.splitlines()


def test_a_workload_that_failed_everywhere_still_has_its_rows():
    assert "no value: failed: connection_lost" in shown(results([failed()]))


def test_every_flag_that_is_shown_is_explained_below():
    text = shown(results([timed(100, condition=Condition.LOAD), timed(100, output_ids=None)]))
    assert "what the flags say:" in text
    assert "  ids_withheld: the engine did not tell the ids of all tokens" in text
    assert "  file_cache_warm: the model's file was in the OS file cache before loading" in text
    assert "overhead_floor" not in text


def test_a_run_with_nothing_to_tell_explains_nothing():
    assert "what the flags say" not in shown(results([timed(100)]))


def test_only_the_metrics_asked_for_are_shown():
    run = results([timed(100), timed(100, condition=Condition.LOAD)])
    text = shown(run, metrics={"ttft"})
    assert line(text, "cold", "ttft")
    assert "decode_rate" not in text
    assert "load: from nothing" not in text
    assert "p128:" not in shown(run, metrics=())


def test_the_metrics_shown_by_default_exist_and_all_others_on_demand():
    assert set(DEFAULT_METRICS) <= REGISTRY.keys()
    run = results([timed(100)], asked=suite(conditions=tuple(Condition)))
    text = shown(run)
    assert all(f" {metric} " in text for metric in REGISTRY)


# --- as wide as the console ----------------------------------------------------------------


OLD = Path(__file__).parents[1] / "data" / "results-v1.json"


def eventful() -> Results:
    """Return a run with flags, reasons, failures, skips and long names."""
    samples = [
        timed(at * number, condition=condition, round=number, output_ids=None)
        for number in (1, 2, 3)
        for condition, at in zip(REQUESTS, (300, 40, 90), strict=True)
    ]
    samples += [failed(round=4), timed(100, round=4, condition=Condition.LOAD)]
    options = {f"an_option_{number}": "of some length" for number in range(12)}
    known = EngineIdentity(engine="scripted", options=options)
    return results(
        samples,
        [launch(number, identity=known) for number in (1, 2, 3, 4)],
        asked=suite(workload(), workload("p512"), conditions=tuple(Condition)),
        skips=(skip(workload="p512", reason="word " * 40),),
        rounds=5,
    )


@pytest.mark.parametrize("width", [60, 80, 100, 220])
@pytest.mark.parametrize("run", [eventful(), load_results(OLD)], ids=["eventful", "old"])
@pytest.mark.parametrize("metrics", [DEFAULT_METRICS, None], ids=["default", "all"])
def test_nothing_is_cut_and_no_line_is_wider_than_the_console(width, run, metrics):
    text = shown(run, width=width, metrics=metrics)
    assert max(len(each) for each in text.splitlines()) <= width
    assert not [each for each in text.splitlines() if each != each.rstrip()]
    flat = flowing(text)
    left_out = {(each.subject, each.workload) for each in run.skips if each.condition is None}
    for row in summarize(run, only=metrics or REGISTRY.keys()).metrics:
        if (row.subject, row.workload) in left_out:
            continue  # the reason stands in the place of its rows
        assert row.metric in flat
        assert all(flag.removeprefix("excluded:") in flat for flag in row.flags if row.n)
        assert all(code in flat or reason(code) in flat for code in row.missing)
        for number in (row.median, row.min, row.max):
            assert number is None or value(number, row.unit) in flat


@pytest.mark.parametrize("run", [eventful(), load_results(OLD)], ids=["eventful", "old"])
def test_all_of_a_row_is_in_its_row_on_80_columns(run):
    text = shown(run, width=80)
    first = run.subjects[0].subject.name
    workloads = (None, run.suite.workloads[0].name)
    rows = summarize(run, only=DEFAULT_METRICS).metrics
    for row in (row for row in rows if row.subject == first and row.workload in workloads):
        words = line(text, row.condition, row.metric)
        assert words[1:3] == [row.vantage, str(row.n)]
        told = flowing("\n".join(block(text, row.condition)))
        assert all(flag.removeprefix("excluded:") in told for flag in row.flags)
        if row.undefined:
            assert f"no value: {reason(row.undefined)}" in " ".join(words)
        for number in (row.median, row.min, row.max):
            assert number is None or value(number, row.unit) in " ".join(words)


def test_what_all_rows_of_loading_share_is_told_once():
    text = shown(results([timed(100, condition=Condition.LOAD)]), width=80)
    assert block(text, "load")[-1] == "    all of them: file_cache_warm"
    assert text.count("file_cache_warm") == len(["below the block", "in the legend"])
    assert line(text, "load", "load.ready")[-4:] == ["median", "of", "the", "sums"]


def test_a_workload_that_was_skipped_stands_between_empty_lines():
    run = results([timed(100)], asked=suite(workload(), workload("p512")), skips=(skip(),))
    lines = shown(run, width=80).splitlines()
    (at,) = (number for number, each in enumerate(lines) if each.startswith("p128:"))
    assert "not measured" in shown(results(asked=run.suite, skips=run.skips), width=80)
    assert lines[at - 1] == ""
    assert lines[at + 1] == ""


def test_a_number_too_wide_for_its_column_goes_below():
    odd = launch(1, phases=evolve(launch().phases, load_ns=10**30))
    text = shown(results([timed(100, condition=Condition.LOAD)], [odd]), width=80)
    number = f"{10**21} s"
    assert f"        median {number}, min" in text
    assert flowing(text).count(number) >= 3


def test_one_of_a_kind_has_no_plural():
    text = shown(results([timed(100)], asked=suite(workload(output_tokens=1))))
    assert "1 round, " in text
    assert "p128: 128 prompt tokens, 1 output token\n" in text


@pytest.mark.parametrize("width", [1, 2, 7, 20, 33, 60, 80])
def test_words_are_wrapped_and_none_is_lost(width):
    words = f"{'模型' * 30} a  b {'x' * 100} {'word ' * 9}"
    lines = list(wrapped(words, width, 4, 8))
    assert "".join(words.split()) == "".join("".join(lines).split())
    assert all(cell_len(each) <= max(width, 3) for each in lines)
    assert all(each == each.rstrip() for each in lines)


# --- who and where -------------------------------------------------------------------------


def test_the_heading_says_what_ran_where_and_whether_all_of_it():
    heading = shown(results([timed(100)])).splitlines()[:2]
    assert heading[0].startswith("plain, 1 round, suite sha256:")
    assert heading[1] == (
        "chip unknown, unknown cores, memory unknown, Linux; 2026-01-02T03:04:05+00:00"
    )
    assert "INCOMPLETE: resume it with --resume" in shown(results(complete=False))
    host = evolve(results().host, chip="M9", physical_cores=8, memory_bytes=64 * 10**9)
    assert "\nM9, 8 cores, 64 GB memory, Linux;" in shown(results(host=host))


def test_a_label_names_build_backend_and_what_the_weights_are():
    run = results([timed(100)])
    assert label(run.subjects[0], run) == (
        "scripted 1.0 on cpu, model.gguf [79 % Q4_1, 21 % Q8_0; 98.4 MB]"
    )


def test_an_engine_that_never_loaded_has_no_build():
    run = results(launches=[launch(identity=None)])
    assert label(run.subjects[0], run).startswith("scripted (never loaded), ")
    unknown = results(launches=[launch(identity=EngineIdentity(engine="x"))])
    assert label(unknown.subjects[0], unknown).startswith("scripted (x of unknown version), ")


@pytest.mark.parametrize(
    ("types", "mix"),
    [
        (None, "weights unknown"),
        ({}, "weights unknown"),
        ({"F16": 0}, "weights unknown"),
        ({"F16": 1}, "100 % F16"),
        ({"Q8_0": 1, "F32": 199}, "100 % F32"),
        ({"Q8_0": 2, "F32": 198}, "99 % F32, 1 % Q8_0"),
    ],
)
def test_weights_are_what_the_tensors_are(types, mix):
    assert weights(record(tensor_types=types, size_bytes=2 * 10**9)) == f"model.gguf [{mix}; 2 GB]"


@pytest.mark.parametrize(
    ("name", "adapter", "engine", "words"),
    [
        ("alpha", "llama-cpp", "llama.cpp", "llama-cpp (llama.cpp 1.0 on cpu), "),
        ("llama-cpp", "llama-cpp", "llama.cpp", "llama.cpp 1.0 on cpu, "),
        ("alpha", "scripted", "scripted", "scripted 1.0 on cpu, "),
        ("scripted", "scripted", "scripted", "1.0 on cpu, "),
    ],
)
def test_a_label_tells_no_name_twice(name, adapter, engine, words):
    known = EngineIdentity(engine=engine, version="1.0", backend="cpu")
    planned = record(name=name)
    planned = evolve(planned, subject=evolve(planned.subject, engine=adapter))
    run = results(launches=[launch(subject=name, identity=known)], subjects=[planned])
    assert label(planned, run).startswith(words)


def test_options_in_effect_are_told_and_written_ones_that_differ():
    known = EngineIdentity(engine="x", options={"threads": 1, "mmap": True, "batch": None})
    planned = record()
    subject = evolve(planned.subject, options={"threads": 1, "mmap": False, "path": "\n"})
    planned = evolve(planned, subject=subject)
    text = shown(results(launches=[launch(identity=known)], subjects=[planned]))
    assert "\n  threads=1, mmap=true, batch=unknown\n  written: mmap=false, path=\\n\n" in text
    unloaded = shown(results(launches=[launch(identity=None)], subjects=[planned]))
    assert "\n  written: threads=1, mmap=false, path=\\n\n" in unloaded
    assert "written" not in shown(results([timed(100)]))


@pytest.mark.parametrize(
    ("number_of_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (896, "896 bytes"),
        (12_345, "12.3 kB"),
        (98_362_432, "98.4 MB"),
        (999_400_000, "999 MB"),
        (999_900_000, "1 GB"),
        (25_000_000_000, "25 GB"),
        (1_234_000_000_000, "1234 GB"),
    ],
)
def test_a_size_is_shown_in_a_unit_fit_for_it(number_of_bytes, words):
    assert size(number_of_bytes) == words


# --- hostile data --------------------------------------------------------------------------


def hostile() -> Results:
    identity = EngineIdentity(engine=HOSTILE, version=HOSTILE, backend=HOSTILE)
    trouble = Failure(kind=HOSTILE, message=HOSTILE)
    run = results(
        [
            timed(100),
            failed(HOSTILE, HOSTILE, round=2),
            timed(9, round=3, request_id=HOSTILE, ending=ending(prompt_tokens=1)),
        ],
        [launch(1, identity=identity), launch(2, failure=trouble)],
        subjects=[record(name="alpha", tensor_types={HOSTILE: 1})],
        asked=suite(workload(), workload("p512"), conditions=REQUESTS),
        skips=(
            skip(workload="p512", code=HOSTILE, reason=HOSTILE),
            skip(condition=Condition.REUSE, code=HOSTILE, reason=HOSTILE),
        ),
        started_at=HOSTILE,
        suite_digest=HOSTILE,
    )
    host = evolve(run.host, chip=HOSTILE, os_name=HOSTILE, os_version=HOSTILE)
    subject = evolve(run.subjects[0].subject, engine=HOSTILE)
    artifact = evolve(run.subjects[0].artifact, name=HOSTILE)
    return evolve(
        run,
        host=host,
        subjects=(evolve(run.subjects[0], subject=subject, artifact=artifact),),
    )


@pytest.mark.parametrize("console", [{}, {"force_terminal": True, "color_system": "truecolor"}])
def test_names_that_look_like_markup_are_shown_as_they_are_and_steer_nothing(console):
    text = shown(hostile(), width=4_000, **console)
    assert SPELLED in text
    assert "\x1b[31m\\x07" not in text
    for sign in ("\x07", "\r", "\u202e", "\x1b]"):
        assert sign not in text
    places = ("chip", "engine", "artifact", "tensor", "failure", "request", "skip")
    assert text.count("[bold]x[/] [/]") >= len(places)


def test_a_hostile_name_makes_no_line_of_its_own():
    lines = shown(hostile(), width=4_000).splitlines()
    assert not any(each.startswith("abc") for each in lines)


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x7f", "\x9b", "\n", "\u2028", "\u202e"])
def test_a_letter_that_is_not_printable_is_spelled_out(letter):
    assert plain(f"a{letter}b").startswith("a\\")
    assert plain(f"a{letter}b").isprintable()


def test_letters_of_all_languages_stay_as_they_are():
    assert plain("größer 模型 модель") == "größer 模型 модель"


# --- empty and odd runs --------------------------------------------------------------------


def test_a_run_without_launches_or_samples_can_be_shown():
    text = shown(results(asked=suite(conditions=tuple(Condition)), complete=False))
    assert "INCOMPLETE" in text
    assert "load.ready" in text
    assert "no value: the run ended before it was measured" in text


def test_a_run_without_subjects_can_be_shown():
    assert "plain" in shown(evolve(results(), subjects=()))


@pytest.mark.parametrize("width", [20, 80])
def test_a_narrow_terminal_is_no_error(width):
    assert shown(hostile(), width=width)


def test_a_huge_number_can_be_shown():
    odd = launch(1, phases=evolve(launch().phases, load_ns=2**62))
    text = shown(results([timed(100, condition=Condition.LOAD)], [odd]))
    assert "4611686018 s" in text


# --- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "unit", "words"),
    [
        (0.0, "s", "0 s"),
        (4e-10, "s", "0.4 ns"),
        (2.5e-7, "s", "250 ns"),
        (1.25e-6, "s", "1.25 µs"),
        (0.000999, "s", "999 µs"),
        (0.11, "s", "110 ms"),
        (0.9999, "s", "999.9 ms"),
        (1.0, "s", "1 s"),
        (12.3456, "s", "12.35 s"),
        (123456.7, "s", "123457 s"),
        (-0.02, "s", "-20 ms"),
        (49.996, "tokens/s", "50 tok/s"),
        (123.456, "tokens/s", "123.5 tok/s"),
        (1234.56, "tokens/s", "1235 tok/s"),
        (0.0123456, "tokens/s", "0.01235 tok/s"),
        (96, "tokens", "96"),
        (12_345_678, "tokens", "12345678"),
        (1_234.5, "tokens", "1234.5"),
        (0.75, "ratio", "0.75"),
        (6.7512, "ratio", "6.751"),
        (12345.6, "ratio", "12346"),
    ],
)
def test_a_number_is_shown_in_a_unit_fit_for_its_size(number, unit, words):
    assert value(number, unit) == words


def test_every_code_of_ours_has_a_sentence():
    for code in (*REASONS, *EXCLUSIONS, *SHORTCOMINGS, "not_measured"):
        assert reason(code) != code
        assert meaning(code)
    for code in FLAGS:
        assert meaning(code)


def test_a_code_of_an_adapter_is_told_as_it_is():
    assert reason("failed: gpu_out_of_memory") == "failed: gpu_out_of_memory"
    assert reason("skipped: prompt_rejected") == "skipped: prompt_rejected"
    assert meaning("failed: gpu_out_of_memory") is None
    assert counted({"failed: x\n": 2, "length": 1}) == r"failed: x\n x2, length x1"


def test_counts_that_are_not_known_are_told_as_such():
    assert counts(sample(ending=None, arrivals=evolve(sample().arrivals, tokens=None))) == (
        "asked for 128 prompt and 8 output tokens, the engine counts unknown and unknown, "
        "unknown from cache; unknown arrived"
    )
