"""What parent and worker say to each other, and what happens when they do not speak alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferometer.codec import from_json, to_json
from inferometer.engine import Capabilities, LogEvidence, Placement, Probe, Sampling, Usage
from inferometer.errors import PluginError
from inferometer.failures import Failure
from inferometer.identity import EngineIdentity
from inferometer.results import Arrivals, LoadPhases, Sample
from inferometer.suite import Condition, Workload
from inferometer.wire import (
    WIRE_VERSION,
    Broken,
    Cell,
    Describe,
    Described,
    Description,
    Done,
    Failed,
    Hello,
    Job,
    Loaded,
    Measured,
    Option,
    Skipped,
    Stage,
    check_hello,
    decode_message,
    decode_order,
    encode,
)

WORKLOAD = Workload(name="short", prompt_tokens=64, output_tokens=2)
SAMPLE = Sample(
    request_id="r1-x/short/cold",
    launch="r1-x",
    round=1,
    subject="x",
    workload="short",
    condition=Condition.COLD,
    prompt_digest="sha256:0",
    prompt_tokens=64,
    max_output_tokens=2,
    ignore_eos=True,
    sampling=Sampling(),
    cache_mode="cold",
    started_ns=1,
    arrivals=Arrivals(offsets_ns=(5, 9), tokens=(1, 1), kinds="aa"),
    failure=Failure(kind="k", message="two\nlines and a \N{SNOWMAN}", detail={"status": 400}),
)
MESSAGES = [
    Hello(wire=1, tool_version="0.1", python="3.11"),
    Described(
        adapters=(
            Description(
                name="x",
                distribution="x 1.0",
                placement=Placement.SERVER,
                engine_api=1,
                capabilities=Capabilities(token_ids_in=True),
                options=(Option(name="n", type="int", default=None, doc=""),),
                log_evidence=(LogEvidence(pattern="p", kind="k", hint="h"),),
                probe=Probe(usable=False, reason="no"),
            ),
        ),
        broken=(Broken(name="b", distribution="b 2.0", reason="r"),),
        missing="m",
        options_error="o",
    ),
    Stage(name="load"),
    Stage(name="cold", workload="short"),
    Loaded(
        python="3.11",
        phases=LoadPhases(import_ns=1, prepare_ns=2, load_ns=3),
        identity=EngineIdentity(engine="x"),
        harness_overhead_ns=100,
    ),
    Measured(sample=SAMPLE),
    Skipped(workload="short", condition=Condition.REUSE, code="c", reason="r"),
    Failed(failure=Failure(kind="k", message="m", stage="load", exit_code=-9, signal="SIGKILL")),
    Done(usage=Usage(peak_memory_bytes=5, source="x")),
    Done(),
]
ORDERS = [
    Describe(),
    Describe(adapter="x", options={"a": [1, "b"], "c": None}),
    Job(
        launch="r1-x",
        round=1,
        subject="x",
        engine="x",
        model=Path("/models/m.gguf"),
        options={"threads": 2},
        context_tokens=66,
        seed=1,
        cells=(Cell(workload=WORKLOAD, conditions=(Condition.COLD, Condition.REUSE)),),
        first_request=WORKLOAD,
        log_path=Path("log"),
        cache_dir=Path("cache"),
    ),
]


def refusal(line: bytes) -> str:
    with pytest.raises(PluginError) as caught:
        decode_message(line)
    return str(caught.value)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_arrives_as_it_was_sent(message):
    assert decode_message(encode(message)) == message


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
def test_an_order_arrives_as_it_was_given(order):
    assert decode_order(encode(order)) == order


@pytest.mark.parametrize("thing", [*MESSAGES, *ORDERS], ids=lambda m: type(m).__name__)
def test_everything_said_is_one_line(thing):
    line = encode(thing)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("order", ORDERS, ids=lambda o: type(o).__name__)
def test_a_worker_gives_no_orders(order):
    assert f"'{type(order).__name__}' is unknown here" in refusal(encode(order))


def test_a_parent_reports_nothing():
    with pytest.raises(PluginError, match="'Done' is unknown here"):
        decode_order(encode(Done()))


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"Loading model ...\n", b"[]\n", b"5\n", b'{"kind":"Done"}\n', b'{"kind":1}\n'],
)
def test_what_is_no_message_is_refused(line):
    assert refusal(line).startswith("parent and worker do not speak alike: ")


def test_a_message_nobody_knows_is_named():
    assert "'Goodbye' is unknown here" in refusal(b'{"kind":"Goodbye","body":{}}\n')


def test_a_wrong_field_is_named_with_its_path():
    line = b'{"kind":"Stage","body":{"name":5}}\n'
    assert "$.name: " in refusal(line)


def test_what_a_newer_peer_adds_is_skipped():
    line = b'{"kind":"Stage","body":{"name":"load","mood":"good"}}\n'
    assert decode_message(line) == Stage(name="load")


def test_another_wire_version_is_refused_naming_both_sides():
    hello = Hello(wire=WIRE_VERSION + 1, tool_version="9.9", python="3.99")
    with pytest.raises(PluginError) as caught:
        check_hello(hello, "0.1")
    words = str(caught.value)
    for part in ("9.9", "3.99", f"version {WIRE_VERSION + 1}", "0.1", f"speaks {WIRE_VERSION}:"):
        assert part in words


def test_another_tool_version_with_the_same_wire_is_welcome():
    check_hello(Hello(wire=WIRE_VERSION, tool_version="9.9", python="3.99"), "0.1")


def test_the_hello_of_a_later_version_can_be_read():
    body = {"wire": 2, "tool_version": "9.9", "python": "3.99", "abilities": ["x"]}
    line = b'{"kind":"Hello","body":%b}\n' % to_json(body)
    assert decode_message(line) == Hello(wire=2, tool_version="9.9", python="3.99")


def test_what_json_cannot_hold_is_refused_before_anything_is_sent():
    with pytest.raises(TypeError):
        encode(Failed(failure=Failure(kind="k", message="m", detail={"engine": object()})))


def test_a_line_is_plain_json_for_whoever_debugs():
    assert from_json(encode(Stage(name="load"))) == {
        "kind": "Stage",
        "body": {"name": "load", "workload": None},
    }
