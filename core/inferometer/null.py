"""An engine that costs nothing, to learn what the harness costs.

It is driven through the same loop as a real engine. What the clock sees then is our own
overhead per arrival, stored with every launch beside the numbers it may distort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from inferometer.engine import Chunk, Finished, FinishReason, Request, TokenPrompt, Usage
from inferometer.identity import EngineIdentity


class NullEngine:
    """Streams the asked number of tokens, one per arrival, without computing anything."""

    def prepare(self, model: Path) -> None: ...

    def load(self) -> None: ...

    def identify(self) -> EngineIdentity:
        return EngineIdentity(engine="null")

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        del special
        return tuple(text.encode())

    def detokenize(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        for token in range(request.max_output_tokens):
            yield Chunk(tokens=1, token_ids=(token,))
        prompt = request.prompt
        yield Finished(
            reason=FinishReason.LENGTH,
            prompt_tokens=len(prompt.ids) if isinstance(prompt, TokenPrompt) else None,
            output_tokens=request.max_output_tokens,
            cached_prompt_tokens=0,
        )

    def reset_cache(self) -> None: ...

    def usage(self) -> Usage:
        return Usage()

    def unload(self) -> None: ...
