"""The timed loop: what it sees is exact, and whatever an adapter does, it comes back."""

from __future__ import annotations

import asyncio
import gc

import pytest

from inferometer import Chunk, EngineError, Finished, FinishReason, Refused, Timings, Unsupported
from inferometer.engine import ChatPrompt, TokenPrompt
from inferometer.errors import ContractViolation
from inferometer.measure import harness_overhead_ns, observe, quiet
from inferometer.null import NullEngine
from inferometer.testing import Pause, ScriptedEngine, VirtualClock
from support.samples import finished, ns, request, tokens, watched


class Ticking:
    """A clock on which every reading takes a moment."""

    def __init__(self, step: int) -> None:
        self.now, self._step = 0, step

    def __call__(self) -> int:
        self.now += self._step
        return self.now


class Answering(NullEngine):
    """An engine whose ``generate`` returns, or raises, whatever it is given."""

    def __init__(self, stream) -> None:
        self._stream = stream

    def generate(self, request):
        if isinstance(self._stream, BaseException):
            raise self._stream
        return self._stream


def violation(*steps) -> str:
    fault = watched(*steps).fault
    assert isinstance(fault, ContractViolation)
    return str(fault)


# --- what is seen --------------------------------------------------------------------------


def test_every_arrival_has_its_time_its_tokens_its_kind_and_its_ids():
    seen = watched(
        Pause(5),
        Chunk(tokens=0),
        Pause(85),
        Chunk(tokens=2, token_ids=(7, 8), reasoning="hm"),
        Pause(10),
        Chunk(tokens=1, token_ids=(9,), answer="yes"),
        Pause(20),
        Chunk(tokens=1, token_ids=(10,), tool_call="{}"),
        Pause(1),
        finished(4),
        Pause(3),
    )
    assert seen.fault is None
    assert seen.arrivals.offsets_ns == (ns(5), ns(90), ns(100), ns(120))
    assert seen.arrivals.tokens == (0, 2, 1, 1)
    assert seen.arrivals.kinds == "erat"
    assert seen.output_ids == (7, 8, 9, 10)
    assert seen.end_ns == ns(124)
    assert (seen.sent_ns, seen.setup_ns) == (1_000, 0)


def test_what_the_engine_says_at_the_end_is_kept_as_it_is():
    timings = Timings(prefill_ns=5, prefill_tokens=3, source="a counter", clock="its own")
    end = Finished(
        reason=FinishReason.STOP_STRING,
        raw_reason="word",
        prompt_tokens=3,
        output_tokens=1,
        cached_prompt_tokens=2,
        reasoning_tokens=0,
        timings=timings,
        raw={"prompt_ms": 0.25, "nested": {"list": [1, None]}},
    )
    told = watched(*tokens(10), end).ending
    assert told is not None
    assert (told.reason, told.raw_reason) == (FinishReason.STOP_STRING, "word")
    assert (told.prompt_tokens, told.output_tokens) == (3, 1)
    assert (told.cached_prompt_tokens, told.reasoning_tokens) == (2, 0)
    assert told.timings == timings
    assert told.raw == {"prompt_ms": 0.25, "nested": {"list": [1, None]}}


def test_the_moment_of_the_call_is_read_before_the_engine_does_anything():
    clock = VirtualClock()

    class Slow(NullEngine):
        def generate(self, request):
            clock.advance_ms(7)  # before the first event, not inside a generator
            return iter([Chunk(tokens=1), Finished(reason=FinishReason.LENGTH)])

    assert observe(Slow(), request(), clock).arrivals.offsets_ns == (ns(7),)


@pytest.mark.parametrize(
    ("chunk", "kind"),
    [
        (Chunk(), "e"),
        (Chunk(tokens=0), "e"),
        (Chunk(token_ids=()), "e"),
        (Chunk(tokens=1), "g"),
        (Chunk(token_ids=(1,)), "g"),
        (Chunk(answer=" "), "a"),
        (Chunk(reasoning="x"), "r"),
        (Chunk(tool_call="x"), "t"),
        (Chunk(reasoning="x", answer="y"), "a"),
        (Chunk(reasoning="x", tool_call="y"), "r"),
    ],
)
def test_an_arrival_is_of_the_kind_that_it_carries(chunk, kind):
    assert watched(chunk, finished()).arrivals.kinds == kind


def test_one_arrival_with_text_of_unknown_count_makes_all_counts_unknown():
    seen = watched(*tokens(10), Chunk(answer="two words"), finished())
    assert seen.arrivals.tokens is None
    assert seen.output_ids is None


def test_a_bare_event_does_not_hide_the_counts_around_it():
    seen = watched(Chunk(), *tokens(10, 20), Chunk(), finished())
    assert seen.arrivals.tokens == (0, 1, 1, 0)
    assert seen.output_ids == (65, 65)


def test_ids_are_a_count_and_a_count_needs_no_ids():
    seen = watched(Chunk(token_ids=(1, 2, 3)), Chunk(tokens=2, answer="two words"), finished())
    assert seen.arrivals.tokens == (3, 2)


def test_a_count_without_ids_withholds_the_ids():
    assert watched(*tokens(1), Chunk(tokens=1), finished()).output_ids is None


# --- stamps of our own reader --------------------------------------------------------------


def test_times_count_from_when_the_request_was_written():
    seen = watched(
        Pause(100), Chunk(tokens=1), Pause(10), finished(sent_ns=1_000 + ns(4)), Pause(6)
    )
    assert seen.sent_ns == 1_000 + ns(4)
    assert seen.setup_ns == ns(4)
    assert seen.arrivals.offsets_ns == (ns(96),)
    assert seen.end_ns == ns(112)


def test_a_stamp_of_the_reader_is_when_an_arrival_came():
    seen = watched(Pause(100), Chunk(tokens=1, received_ns=1_000 + ns(90)), finished())
    assert seen.arrivals.offsets_ns == (ns(90),)


@pytest.mark.parametrize(
    ("received_ns", "why"),
    [
        (999, "before the call"),
        (1_000 + ns(101), "after it was handed over"),
        (0, "of a clock that starts elsewhere"),
        (1.5e6, "no integer"),
        (True, "no integer either"),
    ],
)
def test_a_stamp_that_cannot_be_is_a_violation_and_no_time_to_first_token(received_ns, why):
    seen = watched(Pause(100), Chunk(tokens=1, received_ns=received_ns), finished())
    assert isinstance(seen.fault, ContractViolation), why
    assert "event 0 of the stream has received_ns" in str(seen.fault)
    assert seen.arrivals.offsets_ns == ()


def test_stamps_that_run_backwards_are_a_violation():
    late, early = Chunk(tokens=1, received_ns=1_000 + ns(9)), Chunk(tokens=1, received_ns=1_001)
    assert "event 1 of the stream has received_ns 1001" in violation(Pause(10), late, early)


@pytest.mark.parametrize("sent_ns", [999, 1_000 + ns(101), 2.5])
def test_a_request_sent_before_the_call_or_after_the_answer_is_a_violation(sent_ns):
    said = violation(Pause(100), Chunk(tokens=1), finished(sent_ns=sent_ns))
    assert f"has sent_ns {sent_ns}" in said


# --- the grammar ---------------------------------------------------------------------------


def test_a_stream_without_an_end_is_a_violation():
    assert violation(*tokens(10)) == "the stream ended without Finished"
    assert violation() == "the stream ended without Finished"


@pytest.mark.parametrize("after", [Chunk(tokens=1), Finished(reason=FinishReason.LENGTH)])
def test_an_event_after_the_end_is_a_violation(after):
    assert violation(*tokens(10), finished(1), after) == (
        "event 2 of the stream comes after Finished"
    )


@pytest.mark.parametrize("event", [5, None, "text", (1, 2)])
def test_an_event_that_is_neither_chunk_nor_end_is_a_violation(event):
    assert f"event 1 of the stream is {type(event).__name__}" in violation(*tokens(10), event)


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (Chunk(tokens=-1), "carries -1 tokens"),
        (Chunk(tokens=1.0), "carries 1.0 tokens"),
        (Chunk(tokens=True), "carries True tokens"),
        (Chunk(tokens="3"), "carries '3' tokens"),
        (Chunk(token_ids=[1]), "carries token_ids that are not a tuple of integers"),
        (Chunk(token_ids=("a",)), "carries token_ids that are not a tuple of integers"),
        (Chunk(tokens=3, token_ids=(1,)), "carries 3 tokens and 1 ids"),
        (Chunk(answer=None), "carries text that is no string"),
        (Chunk(reasoning=b"x"), "carries text that is no string"),
    ],
)
def test_a_chunk_that_is_not_one_is_a_violation(chunk, said):
    assert violation(chunk, finished()) == f"event 0 of the stream {said}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt_tokens": -1}, "reports a negative prompt_tokens"),
        ({"output_tokens": -1}, "reports a negative output_tokens"),
        ({"cached_prompt_tokens": -1}, "reports a negative cached_prompt_tokens"),
        ({"timings": Timings(prefill_ns=-1)}, "reports a negative prefill_ns"),
        ({"output_tokens": 1.0}, "cannot be recorded: $.output_tokens: expected an integer"),
        ({"output_tokens": True}, "cannot be recorded: $.output_tokens: expected an integer"),
        ({"timings": Timings(decode_ns=float("nan"))}, "cannot be recorded: "),
        ({"timings": {"prefill_ns": 1}}, "cannot be recorded: "),
        ({"timings": None}, "cannot be recorded: "),
        ({"reason": "length!"}, "cannot be recorded: "),
        ({"reason": None}, "cannot be recorded: "),
        ({"raw": {"tensor": object()}}, "cannot be recorded: "),
        ({"raw": {"huge": 2**70}}, "cannot be recorded: "),
        ({"raw": {"text": "\ud800"}}, "cannot be recorded: "),
        ({"raw_reason": 7}, "cannot be recorded: "),
    ],
)
def test_an_end_that_could_not_be_read_back_is_a_violation(changes, said):
    assert f"event 1 of the stream {said}" in violation(*tokens(10), finished(1, **changes))


def test_a_cyclic_figure_is_a_violation_and_no_crash():
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert "cannot be recorded: " in violation(*tokens(10), finished(1, raw=loop))


def test_what_came_before_a_violation_is_kept_for_the_record():
    seen = watched(*tokens(10, 20), 5, *tokens(30))
    assert seen.arrivals.offsets_ns == (ns(10), ns(20))
    assert seen.output_ids == (65, 65)
    assert seen.ending is None


def test_an_endless_stream_is_cut_and_closed():
    closed = []

    def endless(_):
        try:
            while True:
                yield Chunk(tokens=1)
        finally:
            closed.append(True)

    clock = VirtualClock()
    seen = observe(ScriptedEngine(endless, clock), request(max_output_tokens=2), clock)
    assert isinstance(seen.fault, ContractViolation)
    assert str(seen.fault) == "the stream went on after 1011 arrivals for 2 tokens"
    assert closed == [True]


def test_an_endless_stream_that_cannot_be_closed_is_cut_all_the_same():
    class Endless:
        def __iter__(self):
            return self

        def __next__(self):
            return Chunk(tokens=1)

    def stubborn():
        while True:
            try:
                yield Chunk(tokens=1)
            except GeneratorExit:
                yield Chunk(tokens=1)

    for stream in (Endless(), stubborn()):
        fault = observe(Answering(stream), request(), VirtualClock()).fault
        assert isinstance(fault, ContractViolation)
        assert "the stream went on" in str(fault)


def test_progress_through_a_long_prompt_does_not_make_a_stream_endless():
    asked = request(prompt=TokenPrompt(tuple(range(5_000))), max_output_tokens=1)
    steps = [Chunk(tokens=0)] * 5_000 + [Chunk(tokens=1), finished(1)]
    assert watched(*steps, asked=asked).fault is None


def test_a_stream_is_endless_one_event_after_what_is_allowed():
    def events(bare: int) -> list[object]:
        return [*[Chunk(tokens=0)] * bare, Chunk(tokens=1), finished(1)]

    asked = request(prompt=TokenPrompt((1, 2, 3)), max_output_tokens=1)
    assert watched(*events(1_005), asked=asked).fault is None
    assert "went on after 1007 arrivals" in str(watched(*events(1_006), asked=asked).fault)


def test_messages_as_a_prompt_are_observed_like_any_other():
    asked = request(prompt=ChatPrompt(({"role": "user", "content": "hi"},)))
    assert watched(*tokens(1), finished(1), asked=asked).fault is None


# --- what is no stream at all --------------------------------------------------------------


@pytest.mark.parametrize("answer", [5, None, 1.5, True, object()])
def test_something_that_cannot_be_iterated_is_a_violation_not_a_crash(answer):
    fault = observe(Answering(answer), request(), VirtualClock()).fault
    assert isinstance(fault, ContractViolation)
    assert f"generate returned {type(answer).__name__}, not an iterator" in str(fault)


def test_a_list_is_a_violation_since_everything_was_done_before_the_first_event():
    whole = [Chunk(tokens=1), Finished(reason=FinishReason.LENGTH, output_tokens=1)]
    fault = observe(Answering(whole), request(), VirtualClock()).fault
    assert str(fault) == "generate returned list, not an iterator: nothing was streamed"


def test_an_asynchronous_engine_is_told_apart_and_leaves_nothing_unawaited():
    class Coroutine(NullEngine):
        async def generate(self, request):
            return []

    class AsyncGenerator(NullEngine):
        async def generate(self, request):
            yield Chunk(tokens=1)

    for engine, name in ((Coroutine(), "coroutine"), (AsyncGenerator(), "async_generator")):
        fault = observe(engine, request(), VirtualClock()).fault
        assert f"generate returned {name}, not an iterator" in str(fault)
    gc.collect()


# --- what is raised ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [EngineError("no", kind="context_overflow"), Unsupported("never"), Refused("busy")]
)
def test_a_fault_comes_back_as_it_was_raised_with_what_was_seen_before(fault):
    seen = watched(*tokens(10), fault)
    assert seen.fault is fault
    assert seen.arrivals.offsets_ns == (ns(10),)
    assert seen.ending is None


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), StopAsyncIteration(), MemoryError(), SystemExit(3), GeneratorExit()],
)
def test_whatever_else_an_adapter_raises_is_its_crash(error):
    fault = observe(Answering(error), request(), VirtualClock()).fault
    assert isinstance(fault, EngineError)
    assert fault.kind == "adapter_crashed"
    assert str(fault) == f"the adapter raised {type(error).__name__}: {error}"


def test_a_cancelled_task_inside_the_adapter_is_its_crash():
    fault = observe(Answering(asyncio.CancelledError()), request(), VirtualClock()).fault
    assert isinstance(fault, EngineError)
    assert fault.kind == "adapter_crashed"


def test_a_crash_after_the_end_is_still_a_fault():
    seen = watched(*tokens(10), finished(1), ValueError("in the clean-up"))
    assert isinstance(seen.fault, EngineError)


@pytest.mark.parametrize("steps", [[KeyboardInterrupt()], [*tokens(10), KeyboardInterrupt()]])
def test_an_interrupt_passes_through(steps):
    with pytest.raises(KeyboardInterrupt):
        watched(*steps)


# --- our own cost --------------------------------------------------------------------------


def test_the_cost_per_arrival_is_what_the_clock_says_between_two_of_them():
    assert harness_overhead_ns(Ticking(step=7_001)) == 7_001


def test_on_a_clock_that_stands_still_our_own_cost_is_nothing():
    assert harness_overhead_ns(VirtualClock()) == 0


def test_on_a_real_clock_our_own_cost_is_microseconds_at_most():
    assert 0 < harness_overhead_ns() < 100_000


def test_the_null_engine_streams_what_was_asked_for():
    asked = request(max_output_tokens=3)
    seen = observe(NullEngine(), asked, VirtualClock())
    assert seen.fault is None
    assert seen.output_ids == (0, 1, 2)
    assert seen.ending is not None
    assert (seen.ending.prompt_tokens, seen.ending.output_tokens) == (3, 3)
    assert observe(NullEngine(), request(prompt=ChatPrompt(())), VirtualClock()).fault is None


# --- the garbage collector -----------------------------------------------------------------


def test_no_garbage_is_collected_while_it_is_quiet():
    assert gc.isenabled()
    with quiet():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_after_an_error_garbage_is_collected_again():
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_is_left_off():
    gc.disable()
    try:
        with quiet():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_quiet_inside_quiet_stays_quiet():
    with quiet():
        with quiet():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
