"""The engine behind the adapter ``llama-cpp``.

Text is not made here: a chunk carries the token's id and nothing else. Detokenizing would cost
time between two tokens, and the id is exact where a piece of text may be half a character.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from inferometer import (
    CacheMode,
    Chunk,
    Context,
    EngineError,
    EngineIdentity,
    Finished,
    FinishReason,
    Request,
    TokenPrompt,
    Unsupported,
    Usage,
)
from inferometer_llama_cpp import perf
from inferometer_llama_cpp.decoder import Decoder
from inferometer_llama_cpp.in_process_identity import identity
from inferometer_llama_cpp.native import Loaded
from inferometer_llama_cpp.options import CommonOptions, window

_RANDOM_SEED = 0xFFFFFFFF


class LlamaCppEngine:
    """One model in this process, driven from one thread.

    Args:
        options: what the user set.
        context: what the core needs; decides the window where the user does not.
    """

    def __init__(self, options: CommonOptions, context: Context) -> None:
        self._options = options
        self._window = window(options, context)
        self._path: Path | None = None
        self._loaded: Loaded | None = None
        self._decoder: Decoder | None = None

    def prepare(self, model: Path) -> None:
        """Check that the file can be read.

        Raises:
            EngineError: there is no such file, or it may not be read.
        """
        try:
            with model.open("rb"):
                self._path = model
        except OSError as error:
            raise EngineError(
                f"the model file {model} cannot be read: {error.strerror}",
                kind="model_unreadable",
                fatal=True,
            ) from None

    def load(self) -> None:
        """Load the prepared file and make the context.

        Weights that are mapped into memory are read when they are first used: the first
        request pays for it, not this.

        Raises:
            EngineError: llama.cpp could not, with its reason.
        """
        if self._path is None:
            raise EngineError("load was called before prepare", kind="not_prepared", fatal=True)
        self.unload()
        self._loaded = Loaded(self._path, self._options, self._window)
        self._decoder = Decoder(self._loaded)

    def identify(self) -> EngineIdentity:
        """Say what is loaded, as llama.cpp tells it."""
        return identity(self._live, self._options)

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        """Return the ids of a text; no begin-of-sequence token is added."""
        return self._live.tokenize(text, special=special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens left out."""
        self._check_ids(ids)
        return self._live.detokenize(list(ids))

    def generate(self, request: Request) -> Iterator[Chunk | Finished]:
        """Stream one request, one token to a chunk.

        Raises:
            EngineError: kind ``request_rejected`` or ``context_overflow`` before the first
                token, ``decode_failed`` in between.
            Unsupported: the prompt is not given as token ids.
        """
        return self._stream(request, self._accepted(request))

    def reset_cache(self) -> None:
        """Empty the KV cache and zero its buffers."""
        self._sequence.forget(wipe=True)

    def usage(self) -> Usage:
        """Return nothing: llama.cpp knows what it allocated, not what was in memory."""
        return Usage()

    def unload(self) -> None:
        """Free the model and everything that belongs to it."""
        if self._decoder is not None:
            self._decoder.close()
        if self._loaded is not None:
            self._loaded.close()
        self._decoder = self._loaded = None

    @property
    def _live(self) -> Loaded:
        if self._loaded is None:
            raise EngineError("no model is loaded: load comes first", kind="not_loaded")
        return self._loaded

    @property
    def _sequence(self) -> Decoder:
        if self._decoder is None:
            raise EngineError("no model is loaded: load comes first", kind="not_loaded")
        return self._decoder

    def _stream(self, request: Request, prompt: tuple[int, ...]) -> Iterator[Chunk | Finished]:
        decoder = self._sequence
        with decoder.drawing(request.sampling) as draw:
            decoder.reset_counters()
            cached = self._recall(request.cache_mode, prompt)
            decoder.evaluate(prompt[cached:])
            prefilled = decoder.counters()
            outputs = 0
            while True:
                token = draw()
                outputs += 1
                yield Chunk(tokens=1, token_ids=(token,))
                if reason := self._ending(request, token, outputs):
                    break
                decoder.step(token)
            ended = decoder.counters()
        yield Finished(
            reason=reason,
            prompt_tokens=len(prompt),
            output_tokens=outputs,
            cached_prompt_tokens=cached,
            timings=perf.timings(prefilled, ended, computed=len(prompt) - cached, outputs=outputs),
            raw=perf.raw(prefilled, ended),
        )

    def _recall(self, mode: CacheMode, prompt: Sequence[int]) -> int:
        if mode is CacheMode.REUSE:
            return self._sequence.keep_prefix_of(prompt)
        self._sequence.forget()
        return 0

    def _ending(self, request: Request, token: int, outputs: int) -> FinishReason | None:
        if not request.ignore_eos and self._live.ends_generation(token):
            return FinishReason.STOP_EOS
        if outputs >= request.max_output_tokens:
            return FinishReason.LENGTH
        if self._sequence.remembered >= self._live.window:
            return FinishReason.CONTEXT_FULL
        return None

    def _accepted(self, request: Request) -> tuple[int, ...]:
        if not isinstance(request.prompt, TokenPrompt):
            raise Unsupported("llama-cpp takes a prompt as token ids, not as messages")
        ids = request.prompt.ids
        if not ids:
            raise EngineError("a request needs at least one prompt token", kind="request_rejected")
        if not request.sampling.greedy and request.sampling.seed == _RANDOM_SEED:
            raise EngineError(
                f"llama.cpp reads the seed {_RANDOM_SEED} as 'take any': choose another one",
                kind="request_rejected",
            )
        self._check_ids(ids)
        self._check_room(ids)
        return ids

    def _check_ids(self, ids: Sequence[int]) -> None:
        size = self._live.vocab_size
        if ids and not (min(ids) >= 0 and max(ids) < size):
            wrong = next(token for token in ids if not 0 <= token < size)
            raise EngineError(
                f"token id {wrong} is not in the model's vocabulary (0 to {size - 1})",
                kind="request_rejected",
                detail={"token_id": wrong, "vocab_size": size},
            )

    def _check_room(self, ids: Sequence[int]) -> None:
        holds = self._live.window
        if len(ids) > holds:
            raise EngineError(
                f"the prompt has {len(ids)} tokens, but the context window holds {holds}: "
                "ask for more context_tokens or for a shorter prompt",
                kind="context_overflow",
                detail={"prompt_tokens": len(ids), "context_tokens": holds},
            )
