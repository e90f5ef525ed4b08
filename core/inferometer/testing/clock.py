"""A clock that stands still until it is told to move."""

from __future__ import annotations

NS_PER_MS = 1_000_000


class VirtualClock:
    """Call it for the time in nanoseconds; advance it in milliseconds."""

    def __init__(self, now_ns: int = 1_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance_ms(self, milliseconds: float) -> None:
        """Let time pass; it never goes back."""
        if milliseconds < 0:
            raise ValueError(f"time does not go back by {-milliseconds} ms")
        self.now_ns += round(milliseconds * NS_PER_MS)
