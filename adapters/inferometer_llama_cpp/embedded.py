"""A llama-server inside this process, from the ``xllamacpp`` wheel: run as a script.

It gets the settings a stock llama-server would get on its command line, as one JSON argument,
and ends when its standard input closes, which happens when whoever started it is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Mapping
from typing import Any

_STDIN = 0
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
_READ_INTO_MEMORY = 0
"""llama.cpp's load mode without mapping; left alone, it maps where the devices can."""


def main() -> None:
    """Serve until standard input closes or a signal ends us."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _ask_for_a_signal()
    _server = _serve(json.loads(sys.argv[1]))
    threading.Event().wait()


def _leave_with_parent() -> None:
    # Not through `sys.stdin`: its lock, held by this thread, would abort an orderly exit.
    while os.read(_STDIN, 1):
        pass
    # At once: there is nobody left to be orderly for.
    os._exit(0)


def _ask_for_a_signal() -> None:
    """Have the kernel end us as well, where it can.

    The model loads with the interpreter locked, for minutes if it is large, and the thread
    above would wait that long. Linux can turn the end of a pipe into a signal; elsewhere the
    process group has to do.
    """
    is_pipe = stat.S_ISFIFO(os.fstat(_STDIN).st_mode)
    if is_pipe and hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(_STDIN, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(_STDIN, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(_STDIN, fcntl.F_GETFL)
        fcntl.fcntl(_STDIN, fcntl.F_SETFL, flags | os.O_ASYNC)


def _serve(settings: Mapping[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - the watch on standard input must already be running

    try:
        return xllamacpp.Server(_parameters(xllamacpp, settings))
    except RuntimeError as error:
        raise SystemExit(f"the embedded llama-server did not start: {error}") from error


def _parameters(xllamacpp: Any, settings: Mapping[str, Any]) -> Any:
    wanted = xllamacpp.CommonParams()
    wanted.model.path = settings["model"]
    wanted.model_alias = {settings["alias"]}
    wanted.port = settings["port"]
    wanted.slot_save_path = settings["slot_folder"] + os.sep
    wanted.n_ctx = settings["context_tokens"]
    wanted.n_gpu_layers = settings["gpu_layers"]
    wanted.flash_attn_type = _FLASH_ATTENTION[settings["flash_attention"]]
    wanted.cache_type_k = _kv_type(xllamacpp, settings["kv_key_type"])
    wanted.cache_type_v = _kv_type(xllamacpp, settings["kv_value_type"])
    wanted.verbosity = settings["verbosity"]
    _fix(wanted)
    _leave_or_set(wanted, settings)
    return wanted


def _fix(wanted: Any) -> None:
    """Set what every measurement has in common."""
    wanted.n_parallel = 1
    wanted.cache_ram_mib = 0
    wanted.fit_params = False
    wanted.ui = False


def _leave_or_set(wanted: Any, settings: Mapping[str, Any]) -> None:
    if settings["threads"] is not None:
        wanted.cpuparams.n_threads = settings["threads"]
    if settings["threads_batch"] is not None:
        wanted.cpuparams_batch.n_threads = settings["threads_batch"]
    if settings["batch"] is not None:
        wanted.n_batch = settings["batch"]
    if settings["ubatch"] is not None:
        wanted.n_ubatch = settings["ubatch"]
    if not settings["mmap"]:
        wanted.load_mode = _READ_INTO_MEMORY


def _kv_type(xllamacpp: Any, name: str) -> Any:
    return xllamacpp.ggml_type[f"GGML_TYPE_{name.upper()}"]


if __name__ == "__main__":
    main()
