"""The adapter ``llama-cpp`` as a value: cheap, and honest about what is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from inferometer import Placement
from inferometer_llama_cpp import in_process
from inferometer_llama_cpp.in_process import LlamaCppOptions, adapter, probe


def test_listing_it_imports_no_runtime():
    script = (
        "import sys; from inferometer_llama_cpp.in_process import adapter; adapter().probe(None);"
        "sys.exit('llama_cpp' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_it_runs_in_the_workers_process_and_names_its_runtime():
    assert adapter().placement is Placement.IN_PROCESS
    assert adapter().runtime_modules == ("llama_cpp",)
    assert adapter().options_type is LlamaCppOptions


def test_it_says_what_to_install_when_the_runtime_is_missing(monkeypatch):
    monkeypatch.setattr(in_process, "find_spec", lambda name: None)
    said = probe()
    assert not said.usable
    assert said.install == "pip install 'inferometer[llama-cpp]'"


@pytest.mark.parametrize(
    ("installed", "usable"), [("0.3.16", False), ("0.3.17", True), ("0.4.0", True), ("1.0", True)]
)
def test_it_refuses_releases_that_are_too_old_and_names_both(monkeypatch, installed, usable):
    monkeypatch.setattr(in_process, "find_spec", lambda name: object())
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    said = probe(LlamaCppOptions())
    assert said.usable is usable
    assert said.version == installed
    if not usable:
        assert installed in said.reason
        assert "0.3.17" in said.reason


def test_a_runtime_without_metadata_is_usable_and_of_unknown_version(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(in_process, "find_spec", lambda name: object())
    monkeypatch.setattr(metadata, "version", missing)
    assert probe().usable
    assert probe().version is None
