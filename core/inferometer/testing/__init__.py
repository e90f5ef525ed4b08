"""Help for testing adapters and everything above them: time that does not pass by itself.

A ``ScriptedEngine`` moves a ``VirtualClock``, so every metric of its stream has an exact
expected value and no test waits.
"""

from __future__ import annotations

from inferometer.null import NullEngine
from inferometer.testing.clock import VirtualClock
from inferometer.testing.scripted import Pause, ScriptedEngine, byte_tokens

__all__ = ["NullEngine", "Pause", "ScriptedEngine", "VirtualClock", "byte_tokens"]
