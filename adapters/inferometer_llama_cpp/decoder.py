"""One sequence in a llama.cpp context: what is in its memory, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import llama_cpp

from inferometer import EngineError, Sampling
from inferometer_llama_cpp.native import Loaded
from inferometer_llama_cpp.perf import Counters
from inferometer_llama_cpp.prefix import reusable

Draw = Callable[[], int]
"""Samples the next token from the last evaluation."""

_SEQUENCE = 0
_TO_THE_END = -1
_LAST = -1
_REFUSED = -1
"""Below this llama.cpp calls a failure fatal."""
_FAILURES = {
    1: "it found no room in its KV cache",
    2: "it was aborted",
    _REFUSED: "it did not accept the batch",
}


class Decoder:
    """Evaluates tokens one after the other and knows which ones the context remembers.

    Args:
        loaded: model and context; the decoder must be closed before they are.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._context = loaded.context
        self._memory = loaded.memory
        self._batch: int = llama_cpp.llama_n_batch(loaded.context)
        self._remembered: list[int] = []
        # A decode step is one token: its batch is made once, only the id changes.
        self._token = (llama_cpp.llama_token * 1)()
        self._step = llama_cpp.llama_batch_get_one(self._token, 1)
        self._greedy = _chain(llama_cpp.llama_sampler_init_greedy())

    def close(self) -> None:
        """Free what is not freed with the context."""
        llama_cpp.llama_sampler_free(self._greedy)

    @property
    def remembered(self) -> int:
        """Tokens in the context's memory: prompt and output of the last request."""
        return len(self._remembered)

    def forget(self, *, wipe: bool = False) -> None:
        """Drop every token; ``wipe`` also zeroes the buffers, which takes time.

        Without it the cells are free and nothing can be read from them: enough for a cold
        prompt, and what it costs does not grow with the window.
        """
        llama_cpp.llama_memory_clear(self._memory, wipe)
        self._remembered.clear()

    def keep_prefix_of(self, prompt: Sequence[int]) -> int:
        """Keep what the memory shares with the start of a prompt; return how many tokens.

        At least the last token of the prompt is left to evaluate: the first output token is
        sampled from it. A memory that cannot go back (recurrent, or a sliding window that has
        dropped its start) is emptied instead, unless the prompt simply continues it.
        """
        shared = reusable(self._remembered, prompt)
        if shared < len(self._remembered) and not self._cut(shared):
            self.forget()
            return 0
        del self._remembered[shared:]
        return shared

    def evaluate(self, ids: Sequence[int]) -> None:
        """Evaluate tokens after those remembered, in batches, without waiting for the result."""
        for start in range(0, len(ids), self._batch):
            part = ids[start : start + self._batch]
            tokens = (llama_cpp.llama_token * len(part))(*part)
            self._decode(llama_cpp.llama_batch_get_one(tokens, len(part)))
            self._remembered.extend(part)

    def step(self, token: int) -> None:
        """Evaluate one generated token."""
        self._token[0] = token
        self._decode(self._step)
        self._remembered.append(token)

    def reset_counters(self) -> None:
        llama_cpp.llama_perf_context_reset(self._context)

    def counters(self) -> Counters:
        """Return the performance counters once everything evaluated is computed."""
        llama_cpp.llama_synchronize(self._context)
        return Counters.read(llama_cpp.llama_perf_context(self._context))

    @contextmanager
    def drawing(self, sampling: Sampling) -> Iterator[Draw]:
        """Provide the sampler of one request: the argmax, or a plain draw at a temperature."""
        if sampling.greedy:
            yield self._draw_with(self._greedy)
            return
        chain = _chain(
            llama_cpp.llama_sampler_init_temp(sampling.temperature),
            llama_cpp.llama_sampler_init_dist(sampling.seed),
        )
        try:
            yield self._draw_with(chain)
        finally:
            llama_cpp.llama_sampler_free(chain)

    def _draw_with(self, chain: int) -> Draw:
        return partial(llama_cpp.llama_sampler_sample, chain, self._context, _LAST)

    def _cut(self, keep: int) -> bool:
        # A sliding window says that it dropped its start, a recurrent state that it is all end.
        whole = llama_cpp.llama_memory_seq_pos_min(self._memory, _SEQUENCE) == 0
        return whole and bool(
            llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, keep, _TO_THE_END)
        )

    def _decode(self, batch: object) -> None:
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            remembered = len(self._remembered)
            self.forget()
            raise EngineError(
                f"llama.cpp could not go on after {remembered} tokens: "
                f"{_FAILURES.get(status, 'its computation failed; see the log')} "
                f"(llama_decode returned {status})",
                kind="decode_failed",
                detail={"status": status, "tokens": remembered},
                fatal=status < _REFUSED,
            )


def _chain(*samplers: int) -> int:
    params = llama_cpp.llama_sampler_chain_default_params()
    chain: int = llama_cpp.llama_sampler_chain_init(params)
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    return chain
