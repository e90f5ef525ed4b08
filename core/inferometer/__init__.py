"""Honest measurement of local LLM inference.

This module, ``inferometer.serving`` and ``inferometer.testing`` are the public API. Names are
loaded on first use: ``inferometer --help`` must not pay for what it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferometer._version import __version__
    from inferometer.engine import (
        ENGINE_API,
        Adapter,
        CacheMode,
        Capabilities,
        ChatPrompt,
        Chunk,
        Context,
        Engine,
        Finished,
        FinishReason,
        LogEvidence,
        Placement,
        Probe,
        Request,
        Sampling,
        Timings,
        TokenPrompt,
        Usage,
    )
    from inferometer.errors import (
        ContractViolation,
        EngineError,
        EngineFault,
        InferometerError,
        ModelError,
        PluginError,
        Refused,
        Unsupported,
    )
    from inferometer.hookspecs import hookimpl
    from inferometer.identity import EngineIdentity, Tokenizer

_HOME = {
    "__version__": "_version",
    "ENGINE_API": "engine",
    "Adapter": "engine",
    "CacheMode": "engine",
    "Capabilities": "engine",
    "ChatPrompt": "engine",
    "Chunk": "engine",
    "Context": "engine",
    "ContractViolation": "errors",
    "Engine": "engine",
    "EngineError": "errors",
    "EngineFault": "errors",
    "EngineIdentity": "identity",
    "FinishReason": "engine",
    "Finished": "engine",
    "InferometerError": "errors",
    "LogEvidence": "engine",
    "ModelError": "errors",
    "Placement": "engine",
    "PluginError": "errors",
    "Probe": "engine",
    "Refused": "errors",
    "Request": "engine",
    "Sampling": "engine",
    "Timings": "engine",
    "TokenPrompt": "engine",
    "Tokenizer": "identity",
    "Unsupported": "errors",
    "Usage": "engine",
    "hookimpl": "hookspecs",
}

__all__ = [
    "ENGINE_API",
    "Adapter",
    "CacheMode",
    "Capabilities",
    "ChatPrompt",
    "Chunk",
    "Context",
    "ContractViolation",
    "Engine",
    "EngineError",
    "EngineFault",
    "EngineIdentity",
    "FinishReason",
    "Finished",
    "InferometerError",
    "LogEvidence",
    "ModelError",
    "Placement",
    "PluginError",
    "Probe",
    "Refused",
    "Request",
    "Sampling",
    "Timings",
    "TokenPrompt",
    "Tokenizer",
    "Unsupported",
    "Usage",
    "__version__",
    "hookimpl",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
