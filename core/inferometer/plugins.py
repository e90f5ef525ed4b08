"""Find adapters. One broken plugin never hides the others.

Entry points are walked by name, each loaded inside its own ``try``: a failure becomes a
``BrokenPlugin`` that ``inferometer engines`` lists, and that is raised only when that engine is
asked for. Two distributions claiming one name are an error naming both.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import metadata
from types import ModuleType
from typing import Any, cast
from weakref import WeakKeyDictionary

import attrs
import pluggy
from attrs import frozen

from inferometer import hookspecs
from inferometer.engine import ENGINE_API, Adapter, Capabilities, LogEvidence, Probe
from inferometer.errors import PluginError, suggestion

GROUP = "inferometer"

# A plugin may do anything at import, leaving the process included.
_ANYTHING = (Exception, SystemExit)

_imported_with: WeakKeyDictionary[ModuleType, frozenset[str]] = WeakKeyDictionary()
"""What importing a plugin's module brought in: seen once, since a second import brings nothing."""


@frozen
class BrokenPlugin:
    """A plugin that is installed and cannot be used."""

    name: str
    distribution: str
    reason: str


@frozen
class Registered:
    """An adapter and the package it came from."""

    adapter: Adapter
    distribution: str


@frozen
class Registry:
    """What is installed."""

    adapters: Mapping[str, Registered]
    broken: tuple[BrokenPlugin, ...]

    def get(self, name: str) -> Registered:
        """Return the adapter of that name.

        Raises:
            PluginError: there is none; broken plugins are named, since it may be in one.
        """
        if name in self.adapters:
            return self.adapters[name]
        broken = "".join(
            f"\n  broken: {b.name} ({b.distribution}): {b.reason}" for b in self.broken
        )
        raise PluginError(f"no adapter is named {name!r}{suggestion(name, self.adapters)}{broken}")


def discover(entry_points: Iterable[metadata.EntryPoint] | None = None) -> Registry:
    """Return every adapter and every broken plugin of this interpreter."""
    found = metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    registered: list[Registered] = []
    broken: list[BrokenPlugin] = []
    for points in _by_name(found).values():
        try:
            # What a plugin prints must not end up in the data that we print.
            with redirect_stdout(sys.stderr):
                registered += _load(points)
        except _ANYTHING as error:
            broken.append(BrokenPlugin(points[0].name, _owners(points), _reason(error)))
    adapters, clashes = _without_clashes(registered)
    return Registry(adapters, tuple(broken) + clashes)


def probe(adapter: Adapter, options: Any | None = None) -> Probe:
    """Return whether an adapter is usable here; an adapter that raises is not."""
    try:
        with redirect_stdout(sys.stderr):
            answer: object = adapter.probe(options)
    except _ANYTHING as error:  # "never raises" is the adapter's promise, not ours
        return Probe(usable=False, reason=f"its probe raised {_reason(error)}")
    if not isinstance(answer, Probe):
        return Probe(usable=False, reason=f"its probe returned {type(answer).__name__}, not Probe")
    wrong = _wrong_in(answer, Probe)
    return Probe(usable=False, reason=f"its probe returned nonsense: {wrong}") if wrong else answer


def _by_name(
    points: Iterable[metadata.EntryPoint],
) -> Mapping[str, list[metadata.EntryPoint]]:
    # One distribution can be seen twice (a source checkout beside an install): the first wins,
    # as it does for import itself.
    names: dict[str, dict[str, metadata.EntryPoint]] = defaultdict(dict)
    for point in points:
        names[point.name].setdefault(_owner(point), point)
    return {name: list(owned.values()) for name, owned in names.items()}


def _owner(point: metadata.EntryPoint) -> str:
    facts: Any = point.dist.metadata if point.dist else {}
    if "Name" not in facts or "Version" not in facts:  # no package owns it, or a damaged one
        return "unknown package"
    return f"{facts['Name']} {facts['Version']}"


def _owners(points: Sequence[metadata.EntryPoint]) -> str:
    return " and ".join(sorted(_owner(point) for point in points))


def _load(points: Sequence[metadata.EntryPoint]) -> list[Registered]:
    point, *rivals = points
    if rivals:
        raise PluginError(f"two packages claim the plugin name {point.name!r}: uninstall one")
    before = frozenset(sys.modules)
    plugin = point.load()
    module = sys.modules[point.module]
    imported = _imported_with.setdefault(module, frozenset(sys.modules) - before)
    adapters = _adapters_of(plugin, point.name)
    for adapter in adapters:
        _check(adapter, imported)
    return [Registered(adapter, _owner(point)) for adapter in adapters]


def _adapters_of(plugin: Any, name: str) -> list[Any]:
    # A manager of its own, so that a misspelt hook is this plugin's error and nobody else's.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name)
    manager.check_pending()
    hook = manager.hook.inferometer_adapters
    if not hook.get_hookimpls():
        raise PluginError("it implements no `inferometer_adapters` hook (is @hookimpl missing?)")
    adapters: list[Any] = []
    for answer in hook() or [None]:  # pluggy leaves a None out
        if not isinstance(answer, Iterable):
            raise PluginError(f"its hook returned {type(answer).__name__}, not a list of Adapters")
        adapters += answer
    return adapters


def _check(adapter: Any, imported: frozenset[str]) -> None:
    if not isinstance(adapter, Adapter):
        raise PluginError(f"its hook returned {type(adapter).__name__}, not an Adapter")
    if adapter.engine_api != ENGINE_API:
        raise PluginError(
            f"adapter {adapter.name!r} is built for engine_api {adapter.engine_api}, "
            f"this Inferometer has {ENGINE_API}: install matching versions"
        )
    early = sorted(set(adapter.runtime_modules) & imported)
    if early:
        raise PluginError(
            f"importing the plugin of {adapter.name!r} imported its runtime ({', '.join(early)}): "
            "import it inside `create`, so that listing and planning stay light"
        )
    _check_values(adapter)


def _check_values(adapter: Adapter) -> None:
    name = adapter.name
    if not attrs.has(adapter.options_type):
        raise PluginError(f"the options of {name!r} are not an attrs class")
    try:
        attrs.resolve_types(adapter.options_type)
    except NameError as error:
        raise PluginError(
            f"the options of {name!r} name a type that is not there: {error}"
        ) from None
    parts: list[tuple[str, Any, type[Any]]] = [
        ("capabilities", adapter.capabilities, Capabilities),
        *(("log_evidence", evidence, LogEvidence) for evidence in adapter.log_evidence),
    ]
    for what, value, kind in parts:
        wrong = _wrong_in(value, kind)
        if wrong:
            raise PluginError(f"{what} of {name!r}: {wrong}")


def _wrong_in(value: Any, kind: type[Any]) -> str | None:
    """Return what keeps a plugin's value from being sent and recorded, or None."""
    # By hand, since the codec takes longer to import than everything else that a list needs.
    if not isinstance(value, kind):
        return f"$: expected {kind.__name__}, got {type(value).__name__}"
    attrs.resolve_types(kind)
    for field in attrs.fields(kind):
        given = getattr(value, field.name)
        if not isinstance(given, cast("type[Any]", field.type)):
            return f"$.{field.name}: expected {field.type}, got {given!r}"
    return None


def _without_clashes(
    registered: Sequence[Registered],
) -> tuple[Mapping[str, Registered], tuple[BrokenPlugin, ...]]:
    claims: dict[str, list[Registered]] = defaultdict(list)
    for item in registered:
        claims[item.adapter.name].append(item)
    clashes = tuple(
        BrokenPlugin(
            name,
            " and ".join(sorted(item.distribution for item in items)),
            f"two plugins offer an adapter named {name!r}: uninstall one",
        )
        for name, items in claims.items()
        if len(items) > 1
    )
    return {name: items[0] for name, items in claims.items() if len(items) == 1}, clashes


def _reason(error: BaseException) -> str:
    text = str(error) or "no message"
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}"
