"""The begin-of-sequence token: there when it is due, and only once."""

from __future__ import annotations

from collections.abc import Sequence

from inferometer.errors import PromptError
from inferometer.identity import Tokenizer


def has_doubled_bos(ids: Sequence[int], bos_id: int | None) -> bool:
    """Return whether ids start with two begin-of-sequence tokens.

    It happens when a chat template writes the token and a tokenizer adds it again: the prompt
    is one token longer than on another engine, and the answer changes.
    """
    return bos_id is not None and list(ids[:2]) == [bos_id, bos_id]


def missing_bos(start: Sequence[int], facts: Tokenizer) -> tuple[int, ...]:
    """Return what must be put before ids that begin with ``start``: the token, or nothing.

    Raises:
        PromptError: the token is due, but the engine does not say which one it is.
    """
    if not facts.adds_bos:
        return ()
    if facts.bos_id is None:
        raise PromptError(
            "the engine says that prompts start with a begin-of-sequence token, but not which "
            "id it has; its adapter must report bos_id"
        )
    return () if start and start[0] == facts.bos_id else (facts.bos_id,)
