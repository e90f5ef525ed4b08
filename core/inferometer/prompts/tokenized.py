"""The corpus as ids, passage by passage, once per tokenizer and process."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from inferometer.errors import PromptError
from inferometer.prompts.corpus import SEPARATOR, passages
from inferometer.prompts.spec import TextTokenizer

Passages = dict[int, tuple[int, ...]]

_known: dict[int, tuple[weakref.ref[TextTokenizer], Passages]] = {}


def corpus_ids(tokenizer: TextTokenizer, start: int) -> Iterator[int]:
    """Yield the corpus's ids from a passage on, without end: it begins again after the last.

    Raises:
        PromptError: the tokenizer gives no ids at all.
    """
    known, texts = _passages_of(tokenizer), passages()
    while True:
        length = 0
        for step in range(len(texts)):
            index = (start + step) % len(texts)
            if index not in known:
                # Plain text: whatever looks like a control token in it is only text.
                ids = tokenizer.tokenize(texts[index] + SEPARATOR, special=False)
                known[index] = tuple(ids)
            length += len(known[index])
            yield from known[index]
        if not length:
            raise PromptError("the engine's tokenizer returned no ids for plain text")


def _passages_of(tokenizer: TextTokenizer) -> Passages:
    """Return what is known of a tokenizer; it need not be hashable, only be the same."""
    key = id(tokenizer)
    if key not in _known:
        try:
            reference = weakref.ref(tokenizer, lambda _: _known.pop(key, None))
        except TypeError:
            return {}
        _known[key] = (reference, {})
    return _known[key][1]
