"""llama.cpp: the adapters ``llama-cpp`` (in the worker) and ``llama-server`` (behind HTTP)."""

from __future__ import annotations

from inferometer import Adapter, hookimpl
from inferometer_llama_cpp import in_process, server


@hookimpl
def inferometer_adapters() -> list[Adapter]:
    """Offer both ways to run llama.cpp."""
    return [in_process.adapter(), server.adapter()]
