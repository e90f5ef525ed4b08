"""Build a prompt of exactly so many tokens.

The length is counted after the chat template, in the engine's own tokens. The ids are what is
sent, so the body may be cut between any two of them: nothing is turned back into text and read
again, which is where a cut inside a word or a character would change the count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain, islice

from inferometer.codec import digest
from inferometer.errors import PromptError
from inferometer.identity import Tokenizer
from inferometer.prompts.bos import has_doubled_bos, missing_bos
from inferometer.prompts.corpus import corpus_version, first_passage, opening
from inferometer.prompts.spec import BuiltPrompt, PromptSource, PromptSpec, TextTokenizer
from inferometer.prompts.template import PINNED_DATE, chat_frame
from inferometer.prompts.tokenized import corpus_ids

MIN_BODY_TOKENS = 8
"""Fewer could not tell the prompts of two salts apart."""


def build_prompt(
    spec: PromptSpec,
    *,
    tokenizer: TextTokenizer,
    facts: Tokenizer,
    chat_template: str | None,
    salt: str,
) -> BuiltPrompt:
    """Return the prompt that a workload asks for.

    The same arguments give the same ids; another salt gives a body that differs from its start
    on (given ids know no salt, and are sent as they are). ``facts`` and ``chat_template`` are
    what the running engine reported.

    Raises:
        PromptError: a length that cannot be had, a template that does not fit, ids that the
            model does not have, or a begin-of-sequence token that is there twice.
    """
    match spec.source:
        case PromptSource.CHAT:
            built = _chat(spec, tokenizer, facts, chat_template, salt)
        case PromptSource.RAW:
            built = _raw(spec, tokenizer, facts, salt)
        case PromptSource.IDS:
            built = _given(spec, facts)
    if has_doubled_bos(built.ids, facts.bos_id):
        raise PromptError(
            f"the prompt would start with two begin-of-sequence tokens (id {facts.bos_id}): the "
            "template, the given ids or the engine's tokenizer add one too many"
        )
    return built


def _chat(
    spec: PromptSpec, tokenizer: TextTokenizer, facts: Tokenizer, template: str | None, salt: str
) -> BuiltPrompt:
    if not template:
        raise PromptError('the model has no chat template; use prompt = "raw"')
    frame = chat_frame(template, bos_text=facts.bos_text or "", eos_text=facts.eos_text or "")
    prefix = tokenizer.tokenize(frame.prefix, special=True) if frame.prefix else ()
    suffix = tokenizer.tokenize(frame.suffix, special=True) if frame.suffix else ()
    head = (*missing_bos(prefix, facts), *prefix)
    return _built(
        spec,
        (*head, *_body(spec, tokenizer, facts, len(head) + len(suffix), salt), *suffix),
        template_sha256=hashlib.sha256(template.encode()).hexdigest(),
        corpus_version=corpus_version(),
        pinned_date=PINNED_DATE,
    )


def _raw(spec: PromptSpec, tokenizer: TextTokenizer, facts: Tokenizer, salt: str) -> BuiltPrompt:
    head = missing_bos((), facts)
    ids = (*head, *_body(spec, tokenizer, facts, len(head), salt))
    return _built(spec, ids, corpus_version=corpus_version())


def _given(spec: PromptSpec, facts: Tokenizer) -> BuiltPrompt:
    if len(spec.ids) != spec.tokens:
        raise PromptError(f"{spec.tokens} tokens are asked for, but {len(spec.ids)} ids are given")
    vocab_size = facts.vocab_size
    for position, token in enumerate(spec.ids):
        if token < 0 or (vocab_size is not None and token >= vocab_size):
            raise PromptError(
                f"the id {token} at position {position} is not in the model's vocabulary "
                f"({'unknown size' if vocab_size is None else f'0 to {vocab_size - 1}'})"
            )
    return _built(spec, spec.ids)


def _body(
    spec: PromptSpec, tokenizer: TextTokenizer, facts: Tokenizer, around: int, salt: str
) -> Sequence[int]:
    """Return the body's ids: what is left of the length once ``around`` is taken."""
    room = spec.tokens - around
    if room < MIN_BODY_TOKENS:
        raise PromptError(
            f"a prompt of {spec.tokens} tokens is too short: {around} are taken by what is around "
            f"the text, and the text needs {MIN_BODY_TOKENS}; ask for {around + MIN_BODY_TOKENS} "
            "or more"
        )
    # Plain text, like the corpus: a salt cannot smuggle control tokens in.
    start = tokenizer.tokenize(opening(salt), special=False)
    body = tuple(islice(chain(start, corpus_ids(tokenizer, first_passage(salt))), room))
    if facts.bos_id in body:
        raise PromptError(
            f"the engine's tokenizer puts its begin-of-sequence token (id {facts.bos_id}) before "
            "plain text: the adapter's `tokenize` has to add nothing"
        )
    return body


def _built(
    spec: PromptSpec,
    ids: tuple[int, ...],
    *,
    template_sha256: str | None = None,
    corpus_version: str | None = None,
    pinned_date: str | None = None,
) -> BuiltPrompt:
    return BuiltPrompt(
        ids=ids,
        digest=digest(ids),
        exact=len(ids) == spec.tokens,
        source=spec.source,
        template_sha256=template_sha256,
        corpus_version=corpus_version,
        pinned_date=pinned_date,
    )
