"""How much of a prompt the engine may take from what it remembers."""

from __future__ import annotations

from collections.abc import Sequence


def reusable(remembered: Sequence[int], prompt: Sequence[int]) -> int:
    """Return the length of the shared start, the prompt's last token never counted."""
    longest = min(len(remembered), len(prompt) - 1)
    for position in range(longest):
        if remembered[position] != prompt[position]:
            return position
    return longest
