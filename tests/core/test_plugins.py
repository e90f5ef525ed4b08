"""Plugins that are right, and plugins that are wrong in every way: none hides another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inferometer.describe import describe
from inferometer.engine import ENGINE_API, Adapter, Capabilities, Placement, Probe
from inferometer.errors import ExitCode, PluginError
from inferometer.plugins import Registry, discover, probe
from inferometer.wire import Describe
from support.plugin_folder import ADAPTER, installed, write_plugin


def found(tmp_path: Path, **plugins: str) -> Registry:
    """Return what is found when these plugins, and one that is right, are installed."""
    folders = [write_plugin(tmp_path / name, name, source) for name, source in plugins.items()]
    good = write_plugin(tmp_path / "good", "good", ADAPTER)
    with installed(*folders, good):
        return discover()


def reason(tmp_path: Path, source: str) -> str:
    """Return why a plugin is broken; the one beside it stays usable."""
    registry = found(tmp_path, bad=source)
    assert registry.adapters["plain"].distribution == "good 1.0"
    (broken,) = [item for item in registry.broken if item.name == "bad"]
    assert broken.distribution == "bad 1.0"
    return broken.reason


def offering(adapter: str) -> str:
    return ADAPTER.replace('make("plain")', adapter)


def adapter(**changes) -> Adapter:
    parts = {
        "name": "here",
        "placement": Placement.IN_PROCESS,
        "capabilities": Capabilities(),
        "create": lambda options, context: None,
        "probe": lambda options: Probe(usable=True),
    }
    return Adapter(**{**parts, **changes})


# --- right ---------------------------------------------------------------------------------


def test_a_plugin_is_found_with_the_package_it_is_from(tmp_path):
    registry = found(tmp_path)
    assert registry.get("plain").adapter.name == "plain"
    assert registry.get("plain").distribution == "good 1.0"
    assert registry.broken == ()


def test_a_plugin_may_offer_several_adapters_and_an_object_instead_of_a_module(tmp_path):
    source = offering('make("one"), make("two")') + "\nimport sys\nplugin = sys.modules[__name__]\n"
    folder = write_plugin(tmp_path, "pair", source, entry_points={"pair": "pair:plugin"})
    with installed(folder):
        registry = discover()
    assert set(registry.adapters) >= {"one", "two"}
    assert registry.broken == ()


def test_a_plugin_that_offers_nothing_is_no_error(tmp_path):
    assert found(tmp_path, empty=offering("")).broken == ()


def test_a_package_that_is_seen_twice_is_one_package(tmp_path):
    one = write_plugin(tmp_path / "checkout", "twice", offering('make("twice")'))
    two = write_plugin(tmp_path / "site", "twice", offering('make("twice")'))
    with installed(one, two):
        registry = discover()
    assert registry.get("twice").distribution == "twice 1.0"
    assert registry.broken == ()


def test_a_package_without_a_name_does_not_hide_the_others(tmp_path):
    folder = write_plugin(tmp_path / "nameless", "nameless", offering('make("nameless")'))
    (folder / "nameless-1.0.dist-info" / "METADATA").write_text("")
    with installed(folder, write_plugin(tmp_path / "good", "good", ADAPTER)):
        registry = discover()
    assert registry.get("nameless").distribution == "unknown package"
    assert registry.get("plain").distribution == "good 1.0"


# --- broken --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_runtime", "ModuleNotFoundError: No module named 'no_such_runtime'"),
        ("raise RuntimeError", "RuntimeError: no message"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
        ("", "it implements no `inferometer_adapters` hook"),
        (ADAPTER.replace("@hookimpl", ""), "is @hookimpl missing?"),
        (ADAPTER.replace("def inferometer_adapters", "def inferometer_adaptors"), "unknown hook"),
        (offering("5"), "its hook returned int, not an Adapter"),
        (ADAPTER.replace('return [make("plain")]', "return None"), "returned NoneType"),
        (ADAPTER.replace('return [make("plain")]', "return 5"), "returned int, not a list"),
        (ADAPTER.replace('return [make("plain")]', 'return make("x")'), "returned Adapter, not a"),
        (ADAPTER.replace('return [make("plain")]', "return 1 / 0"), "ZeroDivisionError"),
        (offering('make("Wrong Name")'), "must match regex"),
        (offering('make("x", capabilities=None)'), "TypeError"),
        (offering('make("x", new_in_a_later_version=1)'), "unexpected keyword"),
        (offering('make("x", options_type=dict)'), "the options of 'x' are not an attrs class"),
        (
            offering('make("x", log_evidence=("words",))'),
            "log_evidence of 'x': $: ",
        ),
        (
            offering('make("x", capabilities=Capabilities(ignores_eos="yes"))'),
            "capabilities of 'x': $.ignores_eos: ",
        ),
        (
            ADAPTER.replace("threads: int", 'threads: "NoSuchType"'),
            "the options of 'plain' name a type that is not there: name 'NoSuchType'",
        ),
    ],
)
def test_a_broken_plugin_is_listed_with_its_reason(tmp_path, source, words):
    assert words in reason(tmp_path, source)


def test_another_engine_api_is_refused_naming_both(tmp_path):
    source = offering(f'make("x", engine_api={ENGINE_API + 1})')
    assert reason(tmp_path, source) == (
        f"adapter 'x' is built for engine_api {ENGINE_API + 1}, this Inferometer has {ENGINE_API}: "
        "install matching versions"
    )


def test_a_broken_plugin_is_raised_when_its_engine_is_asked_for(tmp_path):
    registry = found(tmp_path, bad="raise RuntimeError('the driver is too old')")
    with pytest.raises(PluginError) as caught:
        registry.get("bad")
    assert caught.value.exit_code is ExitCode.PLUGIN
    assert "no adapter is named 'bad'" in str(caught.value)
    assert "broken: bad (bad 1.0): RuntimeError: the driver is too old" in str(caught.value)


def test_a_misspelt_engine_gets_a_suggestion(tmp_path):
    with pytest.raises(PluginError, match="did you mean 'plain'"):
        found(tmp_path).get("plane")


def test_what_a_plugin_prints_at_import_stays_out_of_our_output(tmp_path, capfd):
    source = ADAPTER.replace('"plain"', '"loud"') + "\nprint('welcome to LOUD')\n"
    assert "loud" in found(tmp_path, loud=source).adapters
    assert capfd.readouterr().out == ""


# --- two of a kind --------------------------------------------------------------------------


def test_two_packages_claiming_one_plugin_name_are_an_error_naming_both(tmp_path):
    one = write_plugin(tmp_path / "1", "first", ADAPTER, entry_points={"same": "first"})
    two = write_plugin(
        tmp_path / "2", "second", ADAPTER, version="2.0", entry_points={"same": "second"}
    )
    with installed(one, two):
        registry = discover()
        assert "first" not in sys.modules, "neither is imported"
    (broken,) = [item for item in registry.broken if item.name == "same"]
    assert broken.distribution == "first 1.0 and second 2.0"
    assert broken.reason == "two packages claim the plugin name 'same': uninstall one"
    assert "plain" not in registry.adapters


def test_two_plugins_offering_one_adapter_are_an_error_naming_both(tmp_path):
    registry = found(tmp_path, rival=ADAPTER, other=offering('make("other")'))
    (broken,) = registry.broken
    assert (broken.name, broken.distribution) == ("plain", "good 1.0 and rival 1.0")
    assert broken.reason == "two plugins offer an adapter named 'plain': uninstall one"
    assert "plain" not in registry.adapters
    assert "other" in registry.adapters


# --- a runtime imported too early -------------------------------------------------------------


def test_importing_the_runtime_with_the_plugin_is_an_error(tmp_path):
    source = "import heavy_runtime" + offering('make("x", runtime_modules=("heavy_runtime",))')
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "heavy_runtime.py").touch()
    with installed(tmp_path / "runtime"):
        words = reason(tmp_path, source)
    assert words.startswith("importing the plugin of 'x' imported its runtime (heavy_runtime)")


def test_an_early_runtime_is_still_seen_when_plugins_are_looked_for_again(tmp_path):
    (tmp_path / "heavy_again.py").touch()
    source = "import heavy_again" + offering('make("x", runtime_modules=("heavy_again",))')
    with installed(write_plugin(tmp_path, "eager", source)):
        first, second = discover(), discover()
    assert first.broken == second.broken != ()


def test_a_runtime_that_somebody_else_imported_is_not_held_against_a_plugin(tmp_path):
    source = offering('make("x", runtime_modules=("json",))')
    registry = found(tmp_path, innocent=source)
    assert registry.broken == ()


# --- probes ---------------------------------------------------------------------------------


def test_a_probe_gets_the_options():
    seen = []
    probe(adapter(probe=lambda options: seen.append(options) or Probe(usable=True)), "options")
    assert seen == ["options"]


def test_a_probe_that_raises_is_an_unusable_engine():
    def refuse(options):
        raise OSError("no such device")

    found = probe(adapter(probe=refuse))
    assert found == Probe(usable=False, reason="its probe raised OSError: no such device")


def test_a_probe_that_leaves_the_process_is_an_unusable_engine():
    found = probe(adapter(probe=lambda options: sys.exit(3)))
    assert found == Probe(usable=False, reason="its probe raised SystemExit: 3")


@pytest.mark.parametrize("answer", [None, True, "usable"])
def test_a_probe_that_returns_something_else_is_an_unusable_engine(answer):
    found = probe(adapter(probe=lambda options: answer))
    assert not found.usable
    assert found.reason == f"its probe returned {type(answer).__name__}, not Probe"


@pytest.mark.parametrize("answer", [Probe(usable="maybe"), Probe(usable=True, version=1.5)])
def test_a_probe_that_returns_nonsense_is_an_unusable_engine(answer):
    found = probe(adapter(probe=lambda options: answer))
    assert not found.usable
    assert found.reason is not None
    assert found.reason.startswith("its probe returned nonsense: $.")


# --- told to another process ------------------------------------------------------------------


def test_a_bad_probe_does_not_hide_the_other_adapters(tmp_path):
    source = offering('make("odd", probe=lambda options: Probe(usable="maybe"))')
    described = describe(found(tmp_path, odd=source), Describe())
    probes = {item.name: item.probe.usable for item in described.adapters}
    assert probes["odd"] is False
    assert probes["plain"] is True


def test_options_are_described_as_they_are_written(tmp_path):
    source = ADAPTER.replace("from attrs import frozen", "from attrs import Factory, field, frozen")
    source = source.replace(
        "    threads: int = 1",
        "    path: str\n"
        "    threads: int = field(default=1, metadata={'doc': 'How many.'})\n"
        "    fast: bool = True\n"
        "    window: int | None = None\n"
        "    names: list[str] = Factory(list)\n"
        "    mood: str = Factory(lambda self: self.path, takes_self=True)\n",
    )
    registry = found(tmp_path, many=source.replace('"plain"', '"many"'))
    (description,) = describe(registry, Describe(adapter="many", options={"path": "x"})).adapters
    assert [(o.name, o.type, o.default, o.doc) for o in description.options] == [
        ("path", "str", None, ""),
        ("threads", "int", "1", "How many."),
        ("fast", "bool", "true", ""),
        ("window", "int | None", "the engine's own", ""),
        ("names", "list[str]", "[]", ""),
        ("mood", "str", "made anew", ""),
    ]


def test_wrong_options_are_told_with_their_names(tmp_path):
    registry = found(tmp_path)
    order = Describe(adapter="plain", options={"thread": 2, "threads": "two"})
    error = describe(registry, order).options_error
    assert error is not None
    assert "thread: unknown key; did you mean 'threads'?" in error
    assert "threads: expected an integer" in error


def test_an_adapter_that_is_not_there_is_told_with_what_is_broken(tmp_path):
    registry = found(tmp_path, bad="raise RuntimeError('gone')")
    described = describe(registry, Describe(adapter="bad"))
    assert described.adapters == ()
    assert described.missing is not None
    assert "RuntimeError: gone" in described.missing
    assert [item.name for item in described.broken] == ["bad"]
