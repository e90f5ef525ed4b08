"""The one runner: plan to launches to journal. Interrupt it, and resume what has no end.

One launch at a time; what is measured is on the disk before the next request begins.
"""

from __future__ import annotations

from inferometer.runner.execute import execute, remaining
from inferometer.runner.folder import Run, create, new_order_seed, reopen
from inferometer.runner.observer import Observer, Unobserved

__all__ = [
    "Observer",
    "Run",
    "Unobserved",
    "create",
    "execute",
    "new_order_seed",
    "remaining",
    "reopen",
]
