"""What the package ships for testing adapters: time that stands still, an engine with a script."""

from __future__ import annotations

from pathlib import Path

import pytest

import inferometer.testing
from inferometer import Chunk, Engine, EngineError, EngineIdentity, Usage
from inferometer.testing import NullEngine, Pause, ScriptedEngine, VirtualClock, byte_tokens
from support.samples import finished, ns, request, tokens


def silent(_):
    return []


def scripted(*steps, clock: VirtualClock | None = None, **changes) -> ScriptedEngine:
    return ScriptedEngine(lambda _: steps, clock or VirtualClock(), **changes)


# --- the clock -----------------------------------------------------------------------------


def test_the_clock_stands_still_until_it_is_told_to_move():
    clock = VirtualClock(5)
    assert (clock(), clock()) == (5, 5)
    clock.advance_ms(1.5)
    assert clock() == 5 + 1_500_000


def test_the_clock_counts_whole_nanoseconds():
    clock = VirtualClock(0)
    clock.advance_ms(0.1 + 0.2)
    assert clock() == 300_000


def test_the_clock_never_goes_back():
    with pytest.raises(ValueError, match="time does not go back by 1 ms"):
        VirtualClock().advance_ms(-1)


# --- the engines ---------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [NullEngine(), scripted()])
def test_both_engines_keep_the_contract(engine):
    assert isinstance(engine, Engine)
    engine.prepare(Path("model.gguf"))
    engine.load()
    assert isinstance(engine.identify(), EngineIdentity)
    assert engine.detokenize(engine.tokenize("größer")) == "größer"
    assert tuple(engine.tokenize("<s>", special=True)) == byte_tokens("<s>")
    assert engine.usage() == Usage()
    engine.reset_cache()
    engine.unload()
    engine.unload()


def test_a_script_is_followed_step_by_step_on_the_clock():
    clock = VirtualClock(0)
    stream = scripted(*tokens(10, 30), finished(2), clock=clock).generate(request())
    times = [(clock(), type(event).__name__) for event in stream]
    assert times == [(ns(10), "Chunk"), (ns(30), "Chunk"), (ns(30), "Finished")]


def test_nothing_happens_before_the_stream_is_asked_for_its_first_event():
    clock = VirtualClock(0)
    engine = scripted(Pause(10), finished(), clock=clock)
    stream = engine.generate(request())
    assert (clock(), engine.requests) == (0, [])
    next(stream)
    assert clock() == ns(10)


def test_each_request_has_its_own_answer_and_is_remembered():
    engine = ScriptedEngine(
        lambda asked: [Chunk(answer=asked.request_id), finished()], VirtualClock()
    )
    asked = [request(request_id="one"), request(request_id="two")]
    answers = [next(engine.generate(each)).answer for each in asked]
    assert answers == ["one", "two"]
    assert engine.requests == asked


@pytest.mark.parametrize(
    "error", [ValueError("odd"), EngineError("no"), KeyboardInterrupt(), SystemExit(1)]
)
def test_an_exception_in_the_script_is_raised_in_its_place(error):
    stream = scripted(Chunk(tokens=1), error, Chunk(tokens=1)).generate(request())
    next(stream)
    with pytest.raises(type(error)) as caught:
        next(stream)
    assert caught.value is error


def test_loading_takes_the_time_that_was_written_down():
    clock = VirtualClock(0)
    engine = ScriptedEngine(silent, clock, load_ms=(5, 600))
    engine.prepare(Path("model.gguf"))
    assert clock() == ns(5)
    engine.load()
    assert clock() == ns(605)


def test_what_was_done_to_the_engine_is_counted():
    engine = ScriptedEngine(silent, VirtualClock())
    engine.reset_cache()
    engine.reset_cache()
    engine.unload()
    assert (engine.resets, engine.unloads) == (2, 1)


def test_an_identity_can_be_given():
    me = EngineIdentity(engine="mine", version="2")
    assert ScriptedEngine(silent, VirtualClock(), identity=me).identify() is me


def test_text_as_bytes_has_counts_that_are_plain_to_see():
    assert byte_tokens("aß") == (97, 195, 159)


def test_everything_offered_is_there():
    for name in inferometer.testing.__all__:
        assert getattr(inferometer.testing, name)
