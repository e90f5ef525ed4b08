"""The extension point: one hook, which returns values.

A plugin is a module named by an entry point in the group ``inferometer``::

    from inferometer import Adapter, hookimpl

    @hookimpl
    def inferometer_adapters():
        return [Adapter(...)]
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from inferometer.engine import Adapter

PROJECT = "inferometer"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def inferometer_adapters() -> Iterable[Adapter]:  # type: ignore[empty-body]
    """Return the adapters this plugin offers. Importing the plugin imports no runtime."""
