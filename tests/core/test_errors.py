"""The tree of errors: drawn, complete, and each with an exit code."""

from __future__ import annotations

import inspect

import pytest

from inferometer import errors
from inferometer.errors import (
    ContractViolation,
    EngineError,
    EngineFault,
    ExitCode,
    InferometerError,
    ModelError,
    PluginError,
    PromptError,
    Refused,
    ResultsError,
    SuiteError,
    Unsupported,
    suggestion,
)


def every_error() -> list[type[Exception]]:
    found = [value for _, value in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, Exception)]


def drawn_tree() -> dict[str, str]:
    """Return each drawn class with the class it hangs from."""
    parents: dict[str, str] = {}
    above = {0: "InferometerError"}
    for line in errors.__doc__.splitlines():
        branch, dashes, rest = line.partition("── ")
        if dashes:
            depth = len(branch) // 4
            name = rest.split()[0]
            above[depth] = name
            parents[name] = above[depth - 1]
    return parents


@pytest.mark.parametrize("kind", every_error())
def test_every_error_has_the_one_base(kind):
    assert issubclass(kind, InferometerError)


@pytest.mark.parametrize("kind", every_error())
def test_every_error_says_in_a_docstring_when_it_is_raised(kind):
    assert kind.__doc__
    assert kind.__doc__ != kind.__base__.__doc__


def test_the_tree_in_the_docstring_is_the_tree():
    real = {kind.__name__: kind.__base__.__name__ for kind in every_error()}
    assert real.pop("InferometerError") == "Exception"
    assert drawn_tree() == real


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (SuiteError, ExitCode.USAGE),
        (ModelError, ExitCode.USAGE),
        (ResultsError, ExitCode.USAGE),
        (PromptError, ExitCode.USAGE),
        (PluginError, ExitCode.PLUGIN),
        (EngineError, ExitCode.FAILED),
        (Unsupported, ExitCode.FAILED),
        (Refused, ExitCode.FAILED),
        (ContractViolation, ExitCode.FAILED),
    ],
)
def test_an_error_knows_its_exit_code(kind, code):
    assert kind("what happened").exit_code is code


def test_exit_codes_keep_their_numbers_for_ever():
    numbers = {code.name: int(code) for code in ExitCode}
    assert numbers == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "PLUGIN": 3,
        "REFUSED": 4,
        "SLOWER": 5,
        "INTERRUPTED": 130,
    }


def test_an_engine_error_is_of_the_commonest_kind_unless_told():
    error = EngineError("the engine failed")
    assert str(error) == "the engine failed"
    assert (error.kind, error.detail, error.fatal) == ("engine_error", {}, False)


def test_an_engine_error_carries_the_engines_own_figures_untouched():
    told = {"status": 503, "body": {"error": "busy"}}
    error = EngineError("the server is busy", kind="busy", detail=told, fatal=True)
    assert (error.kind, error.detail, error.fatal) == ("busy", told, True)


def test_figures_changed_later_do_not_change_the_error():
    told = {"status": 503}
    error = EngineError("the server is busy", detail=told)
    told["status"] = 200
    assert error.detail == {"status": 503}


def test_all_faults_of_a_driven_engine_are_caught_by_one_name():
    for kind in (EngineError, Unsupported, Refused, ContractViolation):
        with pytest.raises(EngineFault):
            raise kind("something")


# --- suggestions ---------------------------------------------------------------------------


def test_a_close_name_is_suggested():
    assert suggestion("quik", ["prefill-decode", "quick"]) == "; did you mean 'quick'?"


def test_what_there_is_is_listed_when_no_name_is_close():
    assert suggestion("zzz", ["quick", "prefill-decode"]) == "; known: prefill-decode, quick"


def test_nothing_is_said_when_there_is_nothing():
    assert suggestion("anything", []) == ""


def test_a_name_that_shares_some_letters_is_not_suggested():
    assert "did you mean" not in suggestion("prompt_tokens", ["options"])


def test_case_alone_does_not_make_names_unlike():
    assert suggestion("QUICK", ["quick"]) == "; did you mean 'quick'?"


def test_any_collection_of_names_will_do():
    assert suggestion("tw", {"two": 2, "three": 3}) == "; did you mean 'two'?"
    assert suggestion("tw", (name for name in ("two",))) == "; did you mean 'two'?"
