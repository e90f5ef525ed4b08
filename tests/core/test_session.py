"""One launch without a process: a virtual clock, and every message in its order."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from inferometer.engine import (
    Adapter,
    CacheMode,
    Capabilities,
    Chunk,
    Finished,
    FinishReason,
    Placement,
    Probe,
    Usage,
)
from inferometer.errors import (
    ContractViolation,
    EngineError,
    EngineFault,
    ModelError,
    Refused,
    Unsupported,
)
from inferometer.identity import EngineIdentity, Tokenizer
from inferometer.results import Arrivals, LoadPhases, Sample
from inferometer.session import Session
from inferometer.suite import Condition, Workload
from inferometer.testing import Pause, ScriptedEngine, VirtualClock
from inferometer.wire import Cell, Done, Failed, Job, Loaded, Measured, Message, Skipped, Stage

MS = 1_000_000
IDENTITY = EngineIdentity(
    engine="scripted",
    tokenizer=Tokenizer(vocab_size=256, adds_bos=False),
    chat_template="{% for m in messages %}<{{ m.content }}>{% endfor %}",
)
SHORT = Workload(name="short", prompt_tokens=40, output_tokens=2)
LONG = Workload(name="long", prompt_tokens=60, output_tokens=2)
COLD, REUSE, CONTROL = Condition.COLD, Condition.REUSE, Condition.CONTROL


@frozen
class NoOptions:
    pass


def answered(request) -> Iterable[Any]:
    """Answer any request: the first token after 30 ms, each further one after 10 ms."""
    wanted = request.max_output_tokens
    steps: list[Any] = [Pause(30)]
    for number in range(wanted):
        steps += [Chunk(tokens=1, token_ids=(65 + number,)), Pause(10)]
    end = Finished(
        reason=FinishReason.LENGTH,
        prompt_tokens=len(request.prompt.ids),
        output_tokens=wanted,
        cached_prompt_tokens=0,
    )
    return [*steps, end]


class Stand:
    """A session with everything around it: engine, clock, and what was said."""

    def __init__(self, script=answered, *, engine=None, create=None, job=None, **capabilities):
        self.clock = VirtualClock()
        self.engine = engine or ScriptedEngine(
            script, self.clock, load_ms=(5, 70), identity=IDENTITY
        )
        self.create = create or self._create
        self.capabilities = Capabilities(token_ids_in=True, token_ids_out=True, **capabilities)
        self.job = job or job_of(cell(SHORT, COLD))
        self.said: list[Message] = []

    def _create(self, options, context):
        self.clock.advance_ms(200)
        self.context = context
        return self.engine

    def run(self, say: Callable[[Message], None] | None = None) -> Stand:
        adapter = Adapter(
            name="scripted",
            placement=Placement.IN_PROCESS,
            capabilities=self.capabilities,
            create=self.create,
            probe=lambda options: Probe(usable=True),
            options_type=NoOptions,
        )
        Session(self.job, adapter, say or self.said.append, self.clock).run()
        return self

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.said if isinstance(message, kind)]

    @property
    def samples(self) -> list[Sample]:
        return [message.sample for message in self.of(Measured)]

    @property
    def failure(self):
        (failed,) = self.of(Failed)
        assert self.said[-1] == failed
        return failed.failure

    def script_of(self) -> list[str]:
        """Return what was said, one word or two for each message."""
        return [_words(message) for message in self.said]


def _words(message: Message) -> str:
    match message:
        case Stage(name=name, workload=workload):
            return f"{name} {workload}" if workload else name
        case Measured(sample=sample):
            return f"= {sample.request_id.removeprefix('r3-it/')}"
        case Skipped(workload=workload, condition=condition, code=code):
            return f"! {workload}/{condition} {code}"
        case _:
            return type(message).__name__


def cell(workload: Workload, *conditions: Condition, warmup: int = 0) -> Cell:
    return Cell(workload=evolve(workload, warmup=warmup), conditions=conditions)


def job_of(*cells: Cell, **changes: Any) -> Job:
    parts: dict[str, Any] = {
        "launch": "r3-it",
        "round": 3,
        "subject": "it",
        "engine": "scripted",
        "model": Path("model.gguf"),
        "context_tokens": 62,
        "seed": 7,
        "cells": cells,
        "log_path": Path("launch.log"),
        "cache_dir": Path("/dev/null/cache"),
    }
    return Job(**{**parts, **changes})


# --- a launch in which all is well -------------------------------------------------------------


def test_messages_come_in_the_order_of_the_launch():
    cells = (cell(SHORT, COLD, REUSE, CONTROL, warmup=1), cell(LONG, COLD, warmup=2))
    stand = Stand(job=job_of(*cells, first_request=SHORT), disables_cache=True).run()
    assert stand.script_of() == [
        *("import", "prepare", "load", "identify", "Loaded"),
        *("prompt short", "first request short", "= short/load"),
        *("prompt short", "warm-up short", "= short/warmup0"),
        *("cold short", "= short/cold"),
        *("reuse short", "= short/reuse"),
        *("control short", "= short/control"),
        *("prompt long", "warm-up long", "= long/warmup0", "warm-up long", "= long/warmup1"),
        *("cold long", "= long/cold"),
        *("usage", "Done"),
    ]
    assert stand.engine.unloads == 1


def test_the_phases_of_loading_are_timed_apart():
    stand = Stand().run()
    (loaded,) = stand.of(Loaded)
    assert loaded.phases == LoadPhases(import_ns=200 * MS, prepare_ns=5 * MS, load_ns=70 * MS)
    assert loaded.identity == IDENTITY
    assert loaded.harness_overhead_ns == 0


def test_a_request_is_timed_from_its_sending():
    (sample,) = Stand().run().samples
    assert sample.arrivals == Arrivals(offsets_ns=(30 * MS, 40 * MS), tokens=(1, 1), kinds="gg")
    assert (sample.setup_ns, sample.end_ns) == (0, 50 * MS)
    assert sample.started_ns == (200 + 5 + 70) * MS
    assert sample.output_ids == (65, 66)


def test_a_sample_says_what_was_asked():
    (sample,) = Stand().run().samples
    assert (sample.launch, sample.round, sample.subject) == ("r3-it", 3, "it")
    assert (sample.workload, sample.condition, sample.warmup) == ("short", COLD, False)
    assert (sample.prompt_tokens, sample.max_output_tokens, sample.ignore_eos) == (40, 2, True)
    assert sample.request_id == "r3-it/short/cold"


def test_the_first_request_asks_for_one_token():
    stand = Stand(job=job_of(first_request=SHORT)).run()
    (request,) = stand.engine.requests
    assert request.max_output_tokens == 1
    (sample,) = stand.samples
    assert (sample.condition, sample.warmup) == (Condition.LOAD, False)


def test_warm_ups_are_marked_and_get_prompts_of_their_own():
    stand = Stand(job=job_of(cell(SHORT, COLD, warmup=2))).run()
    assert [sample.warmup for sample in stand.samples] == [True, True, False]
    assert len({sample.prompt_digest for sample in stand.samples}) == 3
    assert {request.max_output_tokens for request in stand.engine.requests} == {2}


def test_reuse_repeats_the_cold_prompt_and_control_does_not():
    cold, reuse, control = Stand(job=job_of(cell(SHORT, COLD, REUSE, CONTROL))).run().samples
    assert reuse.prompt_digest == cold.prompt_digest != control.prompt_digest
    modes = (cold.cache_mode, reuse.cache_mode, control.cache_mode)
    assert modes == (CacheMode.COLD, CacheMode.REUSE, CacheMode.COLD)


def test_reuse_without_cold_is_primed_with_the_same_prompt():
    prime, reuse = Stand(job=job_of(cell(SHORT, REUSE))).run().samples
    assert (prime.warmup, reuse.warmup) == (True, False)
    assert prime.request_id == "r3-it/short/prime"
    assert prime.prompt_digest == reuse.prompt_digest
    assert prime.cache_mode is CacheMode.COLD


def test_every_subject_gets_the_same_prompts_and_every_round_other_ones():
    def digests(**changes):
        job = job_of(cell(SHORT, COLD, CONTROL, warmup=1), first_request=SHORT, **changes)
        return [sample.prompt_digest for sample in Stand(job=job).run().samples]

    assert digests() == digests(launch="r3-other", subject="other")
    assert digests() == digests(launch="r3-it+1"), "a second attempt asks the same"
    assert not set(digests()) & set(digests(round=4))
    assert not set(digests()) & set(digests(seed=8))


def test_the_garbage_collector_is_off_while_measuring_and_on_again_afterwards():
    stand, on = Stand(), []

    def say(message: Message) -> None:
        stand.said.append(message)
        on.append((_words(message), gc.isenabled()))

    stand.run(say)
    assert ("identify", True) in on
    assert ("Loaded", False) in on, "our own cost is measured as the requests are"
    assert ("cold short", False) in on
    assert ("Done", True) in on


def test_an_engine_is_told_its_window_and_where_it_may_write(tmp_path):
    stand = Stand(job=job_of(cell(SHORT, COLD), cache_dir=tmp_path / "a" / "b")).run()
    assert stand.context.context_tokens == 62
    assert stand.context.log_path == Path("launch.log")
    assert (tmp_path / "a" / "b").is_dir()


# --- cold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "resets"),
    [
        ({}, 0),
        ({"disables_cache": True}, 0),
        ({"resets_cache": True}, 2),
        ({"resets_cache": True, "disables_cache": True}, 0),
    ],
)
def test_cold_resets_the_cache_only_of_an_engine_that_cannot_leave_it_unused(capabilities, resets):
    stand = Stand(job=job_of(cell(SHORT, COLD, REUSE, CONTROL)), **capabilities).run()
    assert stand.engine.resets == resets
    assert len(stand.samples) == 3


class Resetting(ScriptedEngine):
    """Raises when it is told to forget."""

    def __init__(self, fault: Exception) -> None:
        super().__init__(answered, VirtualClock(), identity=IDENTITY)
        self._fault = fault

    def reset_cache(self) -> None:
        super().reset_cache()
        if self.resets > 1:
            raise self._fault


def test_a_refused_reset_fails_that_request_and_the_next_cell_goes_on():
    engine = Resetting(Refused("slots are in use"))
    cells = (cell(SHORT, COLD), cell(LONG, COLD, REUSE), cell(SHORT, COLD))
    stand = Stand(engine=engine, job=job_of(*cells), resets_cache=True).run()
    first, second, third = stand.samples
    assert first.failure is None
    assert second.failure.kind == third.failure.kind == "refused"
    assert second.failure.message == "slots are in use"
    assert (second.arrivals, second.ending) == (Arrivals(), None), "no request was sent"
    assert "! long/reuse earlier_request_failed" in stand.script_of()
    assert stand.said[-1] == Done(usage=Usage())
    assert len(engine.requests) == 1


def test_an_engine_that_cannot_reset_after_all_skips_cold():
    engine = Resetting(Unsupported("built without it"))
    stand = Stand(engine=engine, job=job_of(cell(SHORT, COLD, REUSE, CONTROL)), resets_cache=True)
    assert stand.run().script_of()[-4:] == [
        *("control short", "! short/control unsupported", "usage", "Done"),
    ]


# --- requests that fail -----------------------------------------------------------------------


def failing_at(number: int, fault: BaseException):
    """Return a script whose request number so-and-so (from 0) fails after its first token."""
    seen = []

    def script(request):
        seen.append(request)
        steps = list(answered(request))
        return [*steps[:2], fault] if len(seen) == number + 1 else steps

    return script


def test_a_failed_request_skips_the_rest_of_its_cell_and_the_next_cell_goes_on():
    script = failing_at(1, EngineError("too long", kind="rejected", detail={"status": 400}))
    cells = (cell(SHORT, COLD, REUSE, CONTROL), cell(LONG, COLD))
    stand = Stand(script, job=job_of(*cells)).run()
    assert stand.script_of()[5:] == [
        *("prompt short", "cold short", "= short/cold", "reuse short", "= short/reuse"),
        "! short/control earlier_request_failed",
        *("prompt long", "cold long", "= long/cold", "usage", "Done"),
    ]
    failure = stand.samples[1].failure
    assert (failure.kind, failure.message, failure.stage) == ("rejected", "too long", "reuse short")
    assert failure.detail == {"status": 400}
    assert stand.samples[1].arrivals.offsets_ns == (30 * MS,), "what arrived is kept"


def test_a_failed_warm_up_skips_all_of_its_cell():
    job = job_of(cell(SHORT, COLD, REUSE, warmup=2))
    stand = Stand(failing_at(0, ValueError("a bug")), job=job).run()
    assert stand.samples[0].failure.kind == "adapter_crashed"
    assert stand.script_of()[-4:] == [
        "! short/cold earlier_request_failed",
        "! short/reuse earlier_request_failed",
        *("usage", "Done"),
    ]


def test_a_failed_first_request_does_not_end_the_launch():
    job = job_of(cell(SHORT, COLD), first_request=SHORT)
    stand = Stand(failing_at(0, EngineError("not yet")), job=job).run()
    assert stand.script_of()[-5:] == ["prompt short", "cold short", "= short/cold", "usage", "Done"]


def test_a_fatal_error_ends_the_launch():
    script = failing_at(1, EngineError("gone", kind="connection_lost", fatal=True))
    stand = Stand(script, job=job_of(cell(SHORT, COLD, REUSE), cell(LONG, COLD))).run()
    assert stand.failure == stand.samples[1].failure
    assert (stand.failure.kind, stand.failure.stage) == ("connection_lost", "reuse short")
    assert len(stand.engine.requests) == 2
    assert stand.engine.unloads == 1


def test_an_unsupported_request_is_a_skip_and_the_cell_goes_on():
    script = failing_at(1, Unsupported("no reuse here"))
    stand = Stand(script, job=job_of(cell(SHORT, COLD, REUSE, CONTROL))).run()
    (skipped,) = stand.of(Skipped)
    assert (skipped.condition, skipped.code, skipped.reason) == (
        *(REUSE, "unsupported"),
        "no reuse here",
    )
    assert [sample.condition for sample in stand.samples] == [COLD, CONTROL]


def test_an_unsupported_warm_up_skips_nothing():
    script = failing_at(0, Unsupported("no warm-up here"))
    stand = Stand(script, job=job_of(cell(SHORT, COLD, warmup=1))).run()
    assert stand.of(Skipped) == []
    assert [sample.condition for sample in stand.samples] == [COLD]


# --- prompts that cannot be built ---------------------------------------------------------------


def with_template(template: str | None) -> ScriptedEngine:
    identity = evolve(IDENTITY, chat_template=template)
    return ScriptedEngine(answered, VirtualClock(), identity=identity)


def test_a_prompt_that_the_template_rejects_is_a_skip_with_the_reason():
    engine = with_template("{{ raise_exception('no user speaks here') }}")
    raw = evolve(LONG, prompt="raw")
    job = job_of(cell(SHORT, COLD, REUSE, warmup=1), cell(raw, COLD), first_request=SHORT)
    stand = Stand(engine=engine, job=job).run()
    skips = stand.of(Skipped)
    assert [(skip.workload, skip.condition) for skip in skips] == [
        *(("short", Condition.LOAD), ("short", COLD), ("short", REUSE)),
    ]
    assert {skip.code for skip in skips} == {"prompt_rejected"}
    assert all("no user speaks here" in skip.reason for skip in skips)
    assert [sample.workload for sample in stand.samples] == ["long"], "another cell goes on"


def test_a_model_without_a_template_is_a_skip_with_the_way_out():
    stand = Stand(engine=with_template(None)).run()
    (skip,) = stand.of(Skipped)
    assert 'use prompt = "raw"' in skip.reason


def test_a_tokenizer_that_fails_is_told_at_the_stage_of_the_prompt():
    class Tokenless(ScriptedEngine):
        def tokenize(self, text, *, special=False):
            raise EngineError("no vocabulary", kind="tokenizer")

    engine = Tokenless(answered, VirtualClock(), identity=IDENTITY)
    stand = Stand(engine=engine).run()
    assert (stand.failure.kind, stand.failure.stage) == ("tokenizer", "prompt short")


# --- launches that fail -----------------------------------------------------------------------


class Failing(ScriptedEngine):
    """Raises in the one method that is named."""

    def __init__(self, method: str, fault: BaseException) -> None:
        super().__init__(answered, VirtualClock(), identity=IDENTITY)
        self._fault = fault
        setattr(self, method, self._raise)

    def _raise(self, *_: object) -> None:
        raise self._fault


@pytest.mark.parametrize("method", ["prepare", "load", "identify", "usage"])
@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (EngineError("broken weights", kind="bad_weights"), "bad_weights", "broken weights"),
        (Unsupported("not on this machine"), "unsupported", "not on this machine"),
        (Refused("not now"), "refused", "not now"),
        (ContractViolation("wrong"), "contract_violation", "wrong"),
        (EngineFault("something else"), "engine_error", "something else"),
        (ModelError("no such shard"), "model_error", "ModelError during {}: no such shard"),
        (KeyError("n_ctx"), "adapter_crashed", "KeyError during {}: 'n_ctx'"),
        (OSError("disk"), "adapter_crashed", "OSError during {}: disk"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_outside_a_request_ends_the_launch_at_its_stage(method, fault, kind, message):
    stand = Stand(engine=Failing(method, fault)).run()
    assert (stand.failure.kind, stand.failure.stage) == (kind, method)
    assert stand.failure.message == message.format(method)
    assert stand.engine.unloads == 1


@pytest.mark.parametrize("error", [ImportError("libx.so"), OSError("no device")])
def test_a_runtime_that_cannot_be_imported_is_an_unusable_engine(error, capsys):
    def create(options, context):
        raise error

    stand = Stand(create=create).run()
    assert stand.script_of() == ["import", "Failed"]
    assert stand.failure.kind == "engine_unusable"
    assert "Traceback" in capsys.readouterr().err, "the log has the whole story"


def test_an_engine_without_all_methods_is_told_which_it_lacks():
    stand = Stand(create=lambda options, context: VirtualClock()).run()
    assert stand.failure.kind == "contract_violation"
    assert "created VirtualClock, which lacks prepare, load" in stand.failure.message


def test_wrong_options_are_found_before_the_runtime_is_imported():
    stand = Stand(job=job_of(options={"threads": 2})).run()
    assert stand.failure.kind == "wrong_options"
    assert "unknown key" in stand.failure.message


@pytest.mark.parametrize("method", ["identify", "usage"])
def test_an_answer_of_another_class_is_a_violation(method):
    engine = ScriptedEngine(answered, VirtualClock(), identity=IDENTITY)
    setattr(engine, method, lambda: {"engine": "x"})
    stand = Stand(engine=engine).run()
    assert stand.failure.kind == "contract_violation"
    assert "is dict, not " in stand.failure.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1.5}, "$.version: expected a string"),
        ({"options": {"device": object()}}, "not JSON serializable: object"),
    ],
)
def test_an_identity_that_cannot_be_recorded_is_a_violation(change, words):
    engine = ScriptedEngine(answered, VirtualClock(), identity=evolve(IDENTITY, **change))
    stand = Stand(engine=engine).run()
    assert (stand.failure.kind, stand.failure.stage) == ("contract_violation", "identify")
    assert words in stand.failure.message


def test_figures_of_a_failure_that_json_cannot_hold_become_text():
    fault = EngineError("no", detail={"status": 400, "request": VirtualClock, b"k": 1})
    stand = Stand(engine=Failing("load", fault)).run()
    assert stand.failure.detail["status"] == "400"
    assert "VirtualClock" in stand.failure.detail["request"]


def test_a_failure_that_names_a_file_of_bytes_can_be_sent():
    fault = EngineError("cannot open /models/m\udcff.gguf")
    stand = Stand(engine=Failing("load", fault)).run()
    assert stand.failure.message == "cannot open /models/m?.gguf"


# --- unloading --------------------------------------------------------------------------------


def test_a_failing_unload_costs_nothing_that_was_measured(capsys):
    class Stuck(ScriptedEngine):
        def unload(self):
            super().unload()
            raise ValueError("already freed")

    stand = Stand(engine=Stuck(answered, VirtualClock(), identity=IDENTITY)).run()
    assert stand.engine.unloads == 1
    assert stand.said[-1] == Done(usage=Usage())
    assert "already freed" in capsys.readouterr().err


def test_the_engine_is_unloaded_when_nobody_listens_any_more():
    stand = Stand()

    def say(message: Message) -> None:
        if isinstance(message, Measured):
            raise SystemExit(1)

    with pytest.raises(SystemExit):
        stand.run(say)
    assert stand.engine.unloads == 1
    assert gc.isenabled()


def test_an_interrupt_unloads_the_engine():
    stand = Stand(failing_at(0, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        stand.run()
    assert stand.engine.unloads == 1


def test_everything_is_said_before_the_engine_is_unloaded():
    stand = Stand()
    unloads: list[int] = []

    def say(message: Message) -> None:
        unloads.append(stand.engine.unloads)

    stand.run(say)
    assert set(unloads) == {0}
