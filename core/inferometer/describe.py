"""Describe the adapters of an interpreter as plain data, for a parent that cannot import them."""

from __future__ import annotations

from typing import Any

import attrs

from inferometer.codec import StructureError, structure
from inferometer.engine import Adapter
from inferometer.errors import PluginError
from inferometer.plugins import Registered, Registry, probe
from inferometer.wire import Broken, Describe, Described, Description, Option


def describe(registry: Registry, order: Describe) -> Described:
    """Return what a registry offers, or the one adapter asked for with its options checked."""
    broken = tuple(
        Broken(name=b.name, distribution=b.distribution, reason=b.reason) for b in registry.broken
    )
    if order.adapter is None:
        everything = (_description(item, None) for _, item in sorted(registry.adapters.items()))
        return Described(adapters=tuple(everything), broken=broken)
    try:
        chosen = registry.get(order.adapter)
    except PluginError as error:
        return Described(broken=broken, missing=str(error))
    return _chosen(chosen, order)


def _chosen(registered: Registered, order: Describe) -> Described:
    try:
        options = read_options(registered.adapter, order.options or {})
    except StructureError as error:
        problems = "\n".join(line.removeprefix("$.") for line in error.problems)
        return Described(adapters=(_description(registered, None),), options_error=problems)
    return Described(adapters=(_description(registered, options),))


def read_options(adapter: Adapter, written: Any) -> Any:
    """Return options as written as a value of the adapter's own class.

    Raises:
        StructureError: with one line per mistake.
    """
    return structure(dict(written), adapter.options_type)


def _description(registered: Registered, options: Any | None) -> Description:
    adapter = registered.adapter
    return Description(
        name=adapter.name,
        distribution=registered.distribution,
        placement=adapter.placement,
        engine_api=adapter.engine_api,
        capabilities=adapter.capabilities,
        options=tuple(_option(field) for field in attrs.fields(adapter.options_type)),
        log_evidence=adapter.log_evidence,
        probe=probe(adapter, options),
    )


def _option(field: attrs.Attribute[Any]) -> Option:
    kind: Any = field.type  # a string where the adapter's module postpones annotations
    return Option(
        name=field.name,
        type=kind.__name__ if isinstance(kind, type) else str(kind),
        default=_written(field.default),
        doc=str(field.metadata.get("doc", "")),
    )


def _written(default: Any) -> str | None:
    if default is attrs.NOTHING:
        return None
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
        return "made anew" if default.takes_self else _written(default.factory())
    if isinstance(default, bool):
        return str(default).lower()
    return "the engine's own" if default is None else str(default)
