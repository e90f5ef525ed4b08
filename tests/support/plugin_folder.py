"""Install a plugin for one test: a folder that this process and every worker take it from.

A plugin is a module, and a distribution that names it in its entry points. Both are written
into a folder that goes to the front of ``sys.path`` and of ``PYTHONPATH``, so that it is found
by ``importlib.metadata`` here and in the processes that are started from here.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPTED = Path(__file__).parent.parent / "plugins" / "inferometer-scripted"

ADAPTER = """
from attrs import frozen
from inferometer import Adapter, Capabilities, Placement, Probe, hookimpl


@frozen(kw_only=True)
class Options:
    threads: int = 1


def make(name, **changes):
    parts = dict(
        name=name,
        placement=Placement.IN_PROCESS,
        capabilities=Capabilities(token_ids_in=True, token_ids_out=True, disables_cache=True),
        create=lambda options, context: None,
        probe=lambda options: Probe(usable=True, version="1"),
        options_type=Options,
    )
    return Adapter(**{**parts, **changes})


@hookimpl
def inferometer_adapters():
    return [make("plain")]
"""
"""A plugin that is right; tests change a word of it."""


def write_plugin(
    folder: Path,
    name: str,
    source: str,
    *,
    version: str = "1.0",
    entry_points: Mapping[str, str] | None = None,
) -> Path:
    """Write a distribution ``name`` with one module of nearly that name; return the folder."""
    module = name.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    _write_metadata(folder, name, version, entry_points or {module: module})
    return folder


def write_scripted(folder: Path) -> Path:
    """Write the scripted third-party plugin as its own build would install it."""
    project = tomllib.loads((SCRIPTED / "pyproject.toml").read_text())["project"]
    package = "inferometer_scripted"
    shutil.copytree(
        SCRIPTED / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
    )
    _write_metadata(
        folder, project["name"], project["version"], project["entry-points"]["inferometer"]
    )
    return folder


@contextmanager
def installed(*folders: Path) -> Iterator[None]:
    """Install what the folders hold, and afterwards forget that it was ever there."""
    known = set(sys.modules)
    before = os.environ.get("PYTHONPATH", "")
    paths = [str(folder) for folder in folders]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*paths, before])))
        patch.setattr(sys, "path", [*paths, *sys.path])
        importlib.invalidate_caches()
        yield
    importlib.invalidate_caches()
    for name in set(sys.modules) - known:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(tuple(paths)):
            del sys.modules[name]


def _write_metadata(folder: Path, name: str, version: str, entry_points: Mapping[str, str]) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = "".join(f"{key} = {value}\n" for key, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[inferometer]\n{lines}")
