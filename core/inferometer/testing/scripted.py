"""An engine that does what a script says, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from inferometer.engine import Chunk, Finished, Request, Usage
from inferometer.identity import EngineIdentity, Tokenizer
from inferometer.testing.clock import VirtualClock

BYTE_VOCABULARY = 256


@frozen
class Pause:
    """Let the clock run for so many milliseconds before the next event."""

    milliseconds: float


Step = Pause | Chunk | Finished | BaseException
Script = Callable[[Request], Iterable[Step]]
"""From a request to its steps; an exception among them is raised in its place."""


def byte_tokens(text: str) -> tuple[int, ...]:
    """Return a text as ids, one per UTF-8 byte: a tokenizer whose counts are plain to see."""
    return tuple(text.encode())


class ScriptedEngine:
    """An engine whose every answer and every delay is written down.

    Args:
        script: what each request is answered with.
        clock: moved by the pauses in the script, and by the phases of loading.
        load_ms: how long ``prepare`` and ``load`` take.
        identity: what it says it is.
    """

    def __init__(
        self,
        script: Script,
        clock: VirtualClock,
        *,
        load_ms: tuple[float, float] = (0.0, 0.0),
        identity: EngineIdentity | None = None,
    ) -> None:
        self._script = script
        self._clock = clock
        self._prepare_ms, self._load_ms = load_ms
        self._identity = identity or EngineIdentity(
            engine="scripted", tokenizer=Tokenizer(vocab_size=BYTE_VOCABULARY, adds_bos=False)
        )
        self.requests: list[Request] = []
        self.resets = 0
        self.unloads = 0

    def prepare(self, model: Path) -> None:
        del model
        self._clock.advance_ms(self._prepare_ms)

    def load(self) -> None:
        self._clock.advance_ms(self._load_ms)

    def identify(self) -> EngineIdentity:
        return self._identity

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        del special
        return byte_tokens(text)

    def detokenize(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        self.requests.append(request)
        for step in self._script(request):
            if isinstance(step, Pause):
                self._clock.advance_ms(step.milliseconds)
            elif isinstance(step, BaseException):
                raise step
            else:
                yield step

    def reset_cache(self) -> None:
        self.resets += 1

    def usage(self) -> Usage:
        return Usage()

    def unload(self) -> None:
        self.unloads += 1
