"""What a running llama-server is: its endpoints, its start-up log, and what was asked of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import evolve, frozen

from inferometer import EngineIdentity, Tokenizer
from inferometer_llama_cpp.options import CommonOptions
from inferometer_llama_cpp.server_log import StartupLog

_BUILD_INFO = re.compile(r"b(\d+)-(\w+)")
_UNKNOWN = "unknown"

_WHY = {
    "version": "the server does not tell its build number",
    "commit": "the server was built without its source history and does not tell",
    "build": "the start-up log did not say how the server was built",
    "backend": "the start-up log did not say where the weights went",
    "device": "the start-up log did not describe the device",
    "architecture": "the start-up log did not name it",
    "quantization": "the server does not tell",
    "parameters": "the server does not tell",
    "context_tokens": "the server does not tell",
    "chat_template": "the model has none",
}
_WHY_OPTION = "the start-up log did not say"


class Tokens(Protocol):
    """The running server's tokenizer."""

    def __call__(
        self, text: str, *, add_special: bool = False, special: bool = False
    ) -> list[int]: ...


@frozen(kw_only=True)
class Facts:
    """Everything there is to know about one running server."""

    props: Mapping[str, Any]
    meta: Mapping[str, Any]
    """The model's ``meta`` in ``/v1/models``."""
    log: StartupLog
    wheel: str | None
    """Version of ``xllamacpp``, when the server is embedded."""
    has_template: bool = True
    """Whether the model's file has a chat template; without one, the server tells its own."""


def identity(facts: Facts, asked: CommonOptions, tokens: Tokens) -> EngineIdentity:
    """Return the identity of a loaded server, with the options in effect."""
    known = EngineIdentity(
        engine="llama.cpp",
        version=_version(facts),
        commit=_commit(facts),
        build=_build(facts.log),
        libraries={"xllamacpp": facts.wheel} if facts.wheel else {},
        backend=facts.log.backend,
        device=facts.log.device,
        architecture=facts.log.architecture,
        quantization=facts.props.get("model_ftype") or facts.meta.get("ftype"),
        parameters=facts.meta.get("n_params"),
        context_tokens=_window(facts),
        tokenizer=_tokenizer(facts, tokens),
        chat_template=(facts.props.get("chat_template") or None) if facts.has_template else None,
        options=_options(facts, asked),
    )
    return evolve(known, unavailable=_unavailable(known))


def _version(facts: Facts) -> str | None:
    # The wheel is built outside a source checkout, so that its server calls itself build 0;
    # the wheel's own version ends with the build number.
    if facts.wheel:
        return f"b{facts.wheel.rpartition('.')[2]}"
    build = _BUILD_INFO.match(str(facts.props.get("build_info")))
    return f"b{build[1]}" if build else None


def _commit(facts: Facts) -> str | None:
    build = _BUILD_INFO.match(str(facts.props.get("build_info")))
    return build[2] if build and build[2] != _UNKNOWN else None


def _build(log: StartupLog) -> str | None:
    parts = (log.compiler, log.instruction_sets)
    return "; ".join(part for part in parts if part) or None


def _window(facts: Facts) -> int | None:
    settings = facts.props.get("default_generation_settings") or {}
    told: int | None = settings.get("n_ctx")
    return told


def _options(facts: Facts, asked: CommonOptions) -> dict[str, Any]:
    log = facts.log
    keys, values = log.kv_types or (None, None)
    return {
        "server": "embedded in xllamacpp" if facts.wheel else "stock llama-server",
        "threads": log.threads,
        "threads_batch": log.threads_batch,
        "batch": log.context("n_batch"),
        "ubatch": log.context("n_ubatch"),
        "context_tokens": _window(facts),
        "slots": facts.props.get("total_slots"),
        "flash_attention": log.flash_attention,
        "kv_key_type": keys,
        "kv_value_type": values,
        "gpu_layers_asked": asked.gpu_layers,
        "layers_offloaded": log.layers_offloaded,
        "layers": log.layers,
        "mmap": log.mmap,
    }


def _unavailable(known: EngineIdentity) -> dict[str, str]:
    missing = {name: why for name, why in _WHY.items() if getattr(known, name) is None}
    silent = [name for name, value in known.options.items() if value is None]
    return missing | {f"options.{name}": _WHY_OPTION for name in silent}


def _tokenizer(facts: Facts, tokens: Tokens) -> Tokenizer:
    bos_text = facts.props.get("bos_token") or None
    bos = tokens(bos_text, special=True) if bos_text else []
    bos_id = bos[0] if len(bos) == 1 else None
    return Tokenizer(
        vocab_size=facts.meta.get("n_vocab"),
        bos_id=bos_id,
        bos_text=bos_text,
        eos_text=facts.props.get("eos_token") or None,
        adds_bos=_adds_bos(bos_id, tokens),
    )


def _adds_bos(bos_id: int | None, tokens: Tokens) -> bool | None:
    if bos_id is None:
        return None
    meant, bare = (tokens("a", add_special=add) for add in (True, False))
    return meant[:1] == [bos_id] and bare[:1] != [bos_id]
