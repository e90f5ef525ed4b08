"""What exactly is loaded, as llama.cpp and its log tell it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import llama_cpp

from inferometer import EngineIdentity, Tokenizer
from inferometer_llama_cpp import ggml
from inferometer_llama_cpp.native import Loaded
from inferometer_llama_cpp.options import CommonOptions

_NONE = -1
_CPU = "CPU"
_FLASH_ATTENTION = {"enabled": "on", "disabled": "off"}

_WHY = {
    "commit": "this build of llama.cpp does not tell",
    "quantization": "this release of llama-cpp-python does not tell",
    "chat_template": "the model has none",
    "architecture": "the model's metadata do not name it",
    "backend": "llama.cpp's log did not say where the layers went",
    "device": "llama.cpp did not describe the device",
    "options.flash_attention": "llama.cpp's log did not say what became of 'auto'",
    "options.layers": "llama.cpp's log did not say where the layers went",
    "options.layers_offloaded": "llama.cpp's log did not say where the layers went",
}


def identity(loaded: Loaded, options: CommonOptions) -> EngineIdentity:
    """Return the identity of a loaded model, with the options in effect."""
    devices = _used(loaded.log.layer_devices)
    facts: dict[str, Any] = {
        "commit": ggml.commit(),
        "backend": _joined(devices, ggml.backend, "+"),
        "device": _joined(_gpus(devices) or devices, ggml.description, " + "),
        "architecture": _architecture(loaded.model),
        "quantization": _quantization(loaded.model),
        "chat_template": _decoded(llama_cpp.llama_model_chat_template(loaded.model, None)),
    }
    effective = _options(loaded, options)
    return EngineIdentity(
        engine="llama.cpp",
        version=llama_cpp.__version__,
        build=_decoded(llama_cpp.llama_print_system_info()),
        libraries=_libraries(),
        parameters=llama_cpp.llama_model_n_params(loaded.model),
        context_tokens=loaded.window,
        tokenizer=_tokenizer(loaded),
        options=effective,
        unavailable=_unavailable(facts, effective),
        **facts,
    )


def _options(loaded: Loaded, asked: CommonOptions) -> dict[str, Any]:
    context, layers = loaded.context, loaded.log.layer_devices
    return {
        "threads": llama_cpp.llama_n_threads(context),
        "threads_batch": llama_cpp.llama_n_threads_batch(context),
        "batch": llama_cpp.llama_n_batch(context),
        "ubatch": llama_cpp.llama_n_ubatch(context),
        "context_tokens": loaded.window,
        "flash_attention": _FLASH_ATTENTION.get(loaded.log.flash_attention or ""),
        "kv_key_type": asked.kv_key_type,
        "kv_value_type": asked.kv_value_type,
        "gpu_layers_asked": asked.gpu_layers,
        "layers_offloaded": len(_gpus(layers)) if layers else None,
        "layers": len(layers) or None,
        "swa_full": bool(llama_cpp.llama_context_default_params().swa_full),
        "mmap": asked.mmap and bool(llama_cpp.llama_supports_mmap()),
    }


def _used(layers: tuple[str, ...]) -> list[str]:
    """Return the devices that hold layers, each once, the processor last."""
    return sorted(dict.fromkeys(layers), key=lambda device: device == _CPU)


def _gpus(devices: Iterable[str]) -> list[str]:
    return [device for device in devices if device != _CPU]


def _unavailable(facts: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    named = {**facts, **{f"options.{name}": value for name, value in options.items()}}
    return {name: _WHY[name] for name, value in named.items() if value is None}


def _libraries() -> dict[str, str]:
    found = {
        "llama-cpp-python": llama_cpp.__version__,
        "libllama": _decoded(_if_bound("llama_version")),
        "ggml": ggml.version(),
    }
    return {name: version for name, version in found.items() if version}


def _tokenizer(loaded: Loaded) -> Tokenizer:
    bos: int = llama_cpp.llama_vocab_bos(loaded.vocab)
    eos: int = llama_cpp.llama_vocab_eos(loaded.vocab)
    return Tokenizer(
        vocab_size=loaded.vocab_size,
        bos_id=None if bos == _NONE else bos,
        bos_text=_token_text(loaded, bos),
        eos_text=_token_text(loaded, eos),
        adds_bos=bool(llama_cpp.llama_vocab_get_add_bos(loaded.vocab)),
    )


def _token_text(loaded: Loaded, token: int) -> str | None:
    if token == _NONE:
        return None
    return _decoded(llama_cpp.llama_vocab_get_text(loaded.vocab, token))


def _architecture(model: Any) -> str | None:
    text = ctypes.create_string_buffer(64)
    length = llama_cpp.llama_model_meta_val_str(model, b"general.architecture", text, len(text))
    return _decoded(text.value) if length > 0 else None


def _quantization(model: Any) -> str | None:
    file_type = _if_bound("llama_model_ftype", model)
    return None if file_type is None else _decoded(llama_cpp.llama_ftype_name(file_type))


def _if_bound(name: str, *arguments: Any) -> Any:
    """Call a function that older releases of llama-cpp-python do not have."""
    function = getattr(llama_cpp, name, None)
    return function(*arguments) if function else None


def _joined(devices: list[str], ask: Callable[[str], str | None], between: str) -> str | None:
    told = filter(None, map(ask, devices))
    return between.join(dict.fromkeys(told)) or None


def _decoded(value: bytes | None) -> str | None:
    return value.decode("utf-8", "replace").strip() if value else None
