"""llama.cpp in the worker's own process, through llama-cpp-python.

Importing this module imports no runtime: that happens when an engine is created.
"""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attrs import frozen

from inferometer import Adapter, Capabilities, Placement, Probe
from inferometer_llama_cpp.evidence import EVIDENCE
from inferometer_llama_cpp.options import CommonOptions

if TYPE_CHECKING:
    from inferometer import Context, Engine

_OLDEST = (0, 3, 17)
"""First release whose C structures have the fields we set."""
_INSTALL = "pip install 'inferometer[llama-cpp]'"


@frozen(kw_only=True)
class LlamaCppOptions(CommonOptions):
    """What can be set on llama.cpp in this process: what both adapters share, and no more."""


def adapter() -> Adapter:
    """Return the adapter ``llama-cpp``."""
    return Adapter(
        name="llama-cpp",
        placement=Placement.IN_PROCESS,
        capabilities=Capabilities(
            token_ids_in=True,
            token_ids_out=True,
            reports_cached_tokens=True,
            reports_prefill_time=True,
            reports_decode_time=True,
            disables_cache=True,
            resets_cache=True,
            ignores_eos=True,
            seeds_sampling=True,
        ),
        create=create,
        probe=probe,
        options_type=LlamaCppOptions,
        runtime_modules=("llama_cpp",),
        log_evidence=EVIDENCE,
    )


def create(options: LlamaCppOptions, context: Context) -> Engine:
    """Import the runtime and return an engine that has loaded nothing yet."""
    # Here and not above: the runtime must not be imported where adapters are only listed.
    from inferometer_llama_cpp.in_process_engine import LlamaCppEngine  # noqa: PLC0415

    return LlamaCppEngine(options, context)


def probe(_: LlamaCppOptions | None = None) -> Probe:
    """Say whether llama-cpp-python is installed, and new enough; no option changes that."""
    if find_spec("llama_cpp") is None:
        return Probe(usable=False, reason="llama-cpp-python is not installed", install=_INSTALL)
    version = _version()
    if version is not None and _numbers(version) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        return Probe(
            usable=False,
            version=version,
            reason=f"llama-cpp-python {version} is older than {oldest}",
            install=f"pip install 'llama-cpp-python>={oldest}'",
        )
    return Probe(usable=True, version=version)


def _version() -> str | None:
    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[: len(_OLDEST)]))
