"""One launch: load the engine, measure the cells, unload."""

from __future__ import annotations

from inferometer.session.run import Session

__all__ = ["Session"]
