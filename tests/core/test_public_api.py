"""What others may import: whole, lazy, and the one hook they implement."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pluggy
import pytest

import inferometer
from inferometer import hookspecs, plugins

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("cattrs", "rich", "jinja2", "psutil", "orjson", "pluggy", "attrs", "inferometer.results")


def imported_by(code: str, *modules: str) -> set[str]:
    """Return which of the modules a fresh interpreter has loaded after the code."""
    asked = f"import sys\n{code}\nprint('loaded:', *[m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].removeprefix("loaded:").split())


# --- names ---------------------------------------------------------------------------------


def test_the_public_names_are_sorted_as_a_reader_looks_for_them():
    constants = [name for name in inferometer.__all__ if name.isupper()]
    classes = [name for name in inferometer.__all__ if name[0].isupper() and not name.isupper()]
    others = [name for name in inferometer.__all__ if not name[0].isupper()]
    assert inferometer.__all__ == sorted(constants) + sorted(classes) + sorted(others)


def test_no_public_name_is_listed_twice():
    assert len(inferometer.__all__) == len(set(inferometer.__all__))


@pytest.mark.parametrize("name", inferometer.__all__)
def test_a_public_name_can_be_imported(name):
    assert getattr(inferometer, name) is not None
    assert name in dir(inferometer)


@pytest.mark.parametrize("name", inferometer.__all__)
def test_a_public_name_says_what_it_is(name):
    value = getattr(inferometer, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__


def test_every_name_with_a_home_is_public_and_the_other_way_round():
    assert set(inferometer._HOME) == set(inferometer.__all__)


def test_a_name_is_the_very_object_of_its_home():
    for name, home in inferometer._HOME.items():
        assert getattr(inferometer, name) is getattr(import_module(f"inferometer.{home}"), name)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'inferometer' has no attribute 'Enigne'"):
        _ = inferometer.Enigne


def test_whatever_a_public_class_is_made_of_is_public_too():
    """An adapter's author must never need a private import for an annotation."""
    engine = import_module("inferometer.engine")
    contract = {
        name
        for name, value in vars(engine).items()
        if inspect.isclass(value) and value.__module__ == engine.__name__
    }
    assert contract <= set(inferometer.__all__)


def test_the_version_is_one_that_packagers_understand():
    numbers = inferometer.__version__.split(".")
    assert len(numbers) >= 2
    assert all(part[:1].isdigit() for part in numbers)


# --- lazy ----------------------------------------------------------------------------------


def test_importing_the_package_imports_nothing_else():
    assert imported_by("import inferometer", *HEAVY, "attr", "click") == set()


def test_an_error_costs_no_contract():
    assert imported_by("from inferometer import EngineError", *HEAVY) == set()


def test_help_pays_for_no_command():
    code = (
        "from inferometer.cli import main\n"
        "sys.argv = ['inferometer', '--help']\n"
        "try: main()\n"
        "except SystemExit as left: assert left.code == 0"
    )
    assert imported_by(code, *HEAVY, "inferometer.engine", "inferometer.suite") == set()


def test_the_version_is_printed_without_any_command():
    code = (
        "from inferometer.cli import main\n"
        "sys.argv = ['inferometer', '--version']\n"
        "try: main()\n"
        "except SystemExit as left: assert left.code == 0"
    )
    assert imported_by(code, *HEAVY) == set()


def test_listing_engines_draws_and_measures_nothing():
    loaded = imported_by("import inferometer.cli.engines", "rich", "jinja2", "psutil")
    assert loaded == set()


def test_a_worker_draws_nothing():
    assert imported_by("import inferometer.worker", "rich", "click") == set()


# --- the hook ------------------------------------------------------------------------------


def test_there_is_one_hook():
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    hooks = [name for name in vars(manager.hook) if not name.startswith("_")]
    assert hooks == ["inferometer_adapters"]


def test_the_hook_takes_nothing_and_says_what_it_returns():
    signature = inspect.signature(hookspecs.inferometer_adapters)
    assert list(signature.parameters) == []
    assert signature.return_annotation == "Iterable[Adapter]"
    assert hookspecs.inferometer_adapters.__doc__


def test_the_marker_for_plugins_is_the_hooks_own():
    @inferometer.hookimpl
    def inferometer_adapters() -> list[inferometer.Adapter]:
        return []

    assert inferometer_adapters.inferometer_impl["specname"] is None


def test_the_group_of_entry_points_is_named_after_the_project():
    assert plugins.GROUP == hookspecs.PROJECT == "inferometer"


def test_the_example_in_the_docstring_is_a_whole_plugin(tmp_path):
    example = hookspecs.__doc__.partition("::\n\n")[2]
    source = inspect.cleandoc(example).replace("Adapter(...)", "")
    (tmp_path / "documented.py").write_text(source)
    code = f"sys.path.insert(0, {str(tmp_path)!r})\nimport documented"
    assert imported_by(code, "documented", "inferometer.worker") == {"documented"}


def test_every_entry_point_of_this_checkout_is_a_module_with_the_hook():
    for point in metadata.entry_points(group=plugins.GROUP):
        assert callable(point.load().inferometer_adapters)


def test_every_module_that_is_not_public_is_closed_to_adapters():
    public = {"serving", "testing", "_version", "__main__"}
    names = {module.name for module in pkgutil.iter_modules(inferometer.__path__)} - public
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (closed,) = [c["protected_modules"] for c in contracts["contracts"] if c["type"] == "protected"]
    assert {f"inferometer.{name}" for name in names} == set(closed)


def test_listing_the_engines_imports_no_codec_and_no_runtime():
    code = "from inferometer.plugins import discover, probe\n[probe(r.adapter) for r in discover().adapters.values()]"
    heavy = ("cattrs", "orjson", "rich", "jinja2", "psutil", "xllamacpp", "llama_cpp")
    assert imported_by(code, *heavy) == set()
