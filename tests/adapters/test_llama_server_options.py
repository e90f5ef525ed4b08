"""What llama-server offers before anything is started: adapter, probe and options."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

import inferometer_llama_cpp
from inferometer import Context, Placement
from inferometer_llama_cpp.options import CommonOptions, window
from inferometer_llama_cpp.server import ServerOptions, adapter, probe
from inferometer_llama_cpp.server_engine import _has_template


def test_the_plugin_offers_both_ways_to_run_llama_cpp():
    offered = {item.name: item for item in inferometer_llama_cpp.inferometer_adapters()}
    assert sorted(offered) == ["llama-cpp", "llama-server"]
    assert offered["llama-server"].placement is Placement.SERVER


def test_importing_the_plugin_imports_no_runtime_and_no_network_code():
    code = (
        "import sys, inferometer_llama_cpp as p; p.inferometer_adapters()[1].probe(None); "
        "heavy = {'xllamacpp', 'llama_cpp', 'ssl', 'http.client', 'inferometer.serving'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_without_the_wheel_the_probe_says_what_to_install(monkeypatch):
    monkeypatch.setattr("inferometer_llama_cpp.server.find_spec", lambda _: None)
    told = probe(None)
    assert (told.usable, told.install) == (False, "pip install 'inferometer[llama-server]'")
    assert "binary" in told.reason


def test_a_binary_of_the_users_needs_no_wheel(monkeypatch):
    monkeypatch.setattr("inferometer_llama_cpp.server.find_spec", lambda _: None)
    assert probe(ServerOptions(binary=sys.executable)).usable


def test_a_binary_that_is_not_there_is_not_usable():
    told = probe(ServerOptions(binary="/no/such/llama-server"))
    assert not told.usable
    assert "/no/such/llama-server is not a program here" in told.reason


def test_every_option_is_explained():
    assert [f.name for f in attrs.fields(ServerOptions) if not f.metadata.get("doc")] == []
    assert adapter().options_type is ServerOptions


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threads": 0}, "threads: 0 is not a whole number >= 1"),
        ({"threads": True}, "threads: True is not a whole number >= 1"),
        ({"gpu_layers": -2}, "gpu_layers: -2 is not a whole number >= -1"),
        ({"flash_attention": "yes"}, "flash_attention: 'yes' is not one of auto, on, off"),
        ({"kv_value_type": "q9"}, "kv_value_type: 'q9' is not one of f32, f16"),
        ({"extra_args": ("--mlock",)}, "extra_args: only a server named by `binary`"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(wrong, message):
    with pytest.raises(ValueError, match="^" + message):
        ServerOptions(**wrong)


@pytest.mark.parametrize(("longest", "size"), [(1, 256), (255, 256), (256, 512), (400, 512)])
def test_the_window_holds_the_longest_request_and_one_token(tmp_path, longest, size):
    context = Context(context_tokens=longest, log_path=tmp_path, cache_dir=tmp_path)
    assert window(CommonOptions(), context) == size


def test_a_window_the_user_asks_for_is_used_as_it_is(tmp_path):
    context = Context(context_tokens=100, log_path=tmp_path, cache_dir=tmp_path)
    assert window(CommonOptions(context_tokens=4000), context) == 4000


def test_a_model_without_a_chat_template_is_told_from_one_with_the_servers_default(tmp_path):
    with_one, without = tmp_path / "with.gguf", tmp_path / "without.gguf"
    with_one.write_bytes(b"GGUF...tokenizer.chat_template...")
    without.write_bytes(b"GGUF...")
    assert _has_template(with_one)
    assert not _has_template(without)
