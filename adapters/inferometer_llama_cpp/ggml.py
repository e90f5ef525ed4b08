"""What ggml, the library below llama.cpp, says about itself and its devices.

llama-cpp-python binds none of this, so the functions are looked up in the library it has
loaded. One that is not there is an unknown fact, never an error.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp

_BACKEND_NAMES = {"mtl": "metal"}


def version() -> str | None:
    return _text(_call("ggml_version", ctypes.c_char_p))


def commit() -> str | None:
    """Return the source commit ggml was built from; ``-dirty`` when its tree had changes."""
    return _text(_call("ggml_commit", ctypes.c_char_p))


def description(device: str) -> str | None:
    """Return a device's own description, such as the name of the processor."""
    handle = _device(device)
    return _text(handle and _call("ggml_backend_dev_description", ctypes.c_char_p, handle))


def backend(device: str) -> str | None:
    """Return what computes on a device: ``cpu``, ``cuda``, ``metal``, ``vulkan`` ..."""
    handle = _device(device)
    registry = handle and _call("ggml_backend_dev_backend_reg", ctypes.c_void_p, handle)
    name = _text(registry and _call("ggml_backend_reg_name", ctypes.c_char_p, registry))
    return name and _BACKEND_NAMES.get(name.lower(), name.lower())


def _device(name: str) -> Any:
    return _call("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p(name.encode()))


def _call(name: str, result: Any, *arguments: Any) -> Any:
    # The handle is private, but the only way to this very copy of the library: there may be
    # others on the machine, and its own is not in the process's global namespace.
    library = getattr(llama_cpp.llama_cpp, "_lib", None)
    if library is None or not hasattr(library, name):
        return None
    kinds = [ctypes.c_void_p if isinstance(a, int) else type(a) for a in arguments]
    return ctypes.CFUNCTYPE(result, *kinds)((name, library))(*arguments)


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if value else None
