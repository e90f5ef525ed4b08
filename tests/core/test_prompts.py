"""Prompts: exact to the token, told apart by their salt, and never what nobody asked for."""

from __future__ import annotations

import gc
import hashlib
import re
import zlib
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.codec import StructureError, digest, from_json, structure, to_json
from inferometer.engine import Engine
from inferometer.errors import ExitCode, PromptError
from inferometer.fields import about_of
from inferometer.identity import Tokenizer
from inferometer.prompts import (
    MIN_BODY_TOKENS,
    PINNED_DATE,
    BuiltPrompt,
    PromptSource,
    PromptSpec,
    TextTokenizer,
    build_prompt,
    corpus_version,
    has_doubled_bos,
    tokenized,
)
from inferometer.prompts.corpus import SEPARATOR, first_passage, opening, passages

CONTROL = {"<bos>": 1, "<eos>": 2, "<|user|>": 3, "<|end|>": 4, "<|assistant|>": 5}
BOS = CONTROL["<bos>"]
FIRST_PLAIN_ID = 10

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PREFIX_IDS = (CONTROL["<|user|>"],)
SUFFIX_IDS = (CONTROL["<|end|>"], CONTROL["<|assistant|>"])
AROUND = len(PREFIX_IDS) + len(SUFFIX_IDS)

PLAIN = Tokenizer(bos_id=BOS, bos_text="<bos>", eos_text="<eos>", adds_bos=False)
ADDING = attrs.evolve(PLAIN, adds_bos=True)


class ByteTokenizer:
    """One id per byte, and one per control token where those are read."""

    pieces = re.compile(r"[\s\S]")

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        self.texts.append(text)
        if not special:
            return self.plain(text)
        parts = re.split(f"({'|'.join(map(re.escape, CONTROL))})", text)
        return [
            token
            for part in parts
            for token in ([CONTROL[part]] if part in CONTROL else self.plain(part))
        ]

    def plain(self, text: str) -> list[int]:
        return [FIRST_PLAIN_ID + byte for byte in text.encode()]


class WordTokenizer(ByteTokenizer):
    """One id per word, with the blank before it; a word's id is a digest of its letters."""

    def plain(self, text: str) -> list[int]:
        words = re.findall(r"\s?\w+|[^\w\s]|\s", text)
        return [FIRST_PLAIN_ID + zlib.crc32(word.encode()) for word in words]


@pytest.fixture(params=[ByteTokenizer, WordTokenizer])
def tokenizer(request) -> ByteTokenizer:
    return request.param()


def build(
    tokens: int,
    tokenizer: TextTokenizer,
    *,
    source: str = "chat",
    salt: str = "s",
    facts: Tokenizer = PLAIN,
    template: str | None = TEMPLATE,
    ids: tuple[int, ...] = (),
) -> BuiltPrompt:
    spec = PromptSpec(source=PromptSource(source), tokens=tokens, ids=ids)
    return build_prompt(spec, tokenizer=tokenizer, facts=facts, chat_template=template, salt=salt)


def refusal(*args, **kwargs) -> str:
    with pytest.raises(PromptError) as caught:
        build(*args, **kwargs)
    return str(caught.value)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


# --- length --------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [PLAIN, ADDING])
@pytest.mark.parametrize(("source", "around"), [("chat", AROUND), ("raw", 0)])
def test_a_prompt_has_exactly_the_asked_length(tokenizer, facts, source, around):
    least = MIN_BODY_TOKENS + around + bool(facts.adds_bos)
    for tokens in [*range(least, least + 300), 4096, 40_001]:
        built = build(tokens, tokenizer, source=source, facts=facts)
        assert len(built.ids) == tokens
        assert built.exact


@pytest.mark.parametrize("facts", [PLAIN, ADDING])
@pytest.mark.parametrize(("source", "around"), [("chat", AROUND), ("raw", 0)])
def test_a_length_too_small_is_refused_with_the_numbers(tokenizer, facts, source, around):
    taken = around + bool(facts.adds_bos)
    for tokens in range(1, taken + MIN_BODY_TOKENS):
        message = refusal(tokens, tokenizer, source=source, facts=facts)
        assert f"a prompt of {tokens} tokens is too short: {taken} are taken" in message
        assert f"ask for {taken + MIN_BODY_TOKENS} or more" in message


def test_the_template_stays_whole_whatever_the_length(tokenizer):
    for tokens in (AROUND + MIN_BODY_TOKENS, 100, 5000):
        ids = build(tokens, tokenizer).ids
        assert ids[: len(PREFIX_IDS)] == PREFIX_IDS
        assert ids[-len(SUFFIX_IDS) :] == SUFFIX_IDS


def test_a_shorter_prompt_is_a_longer_one_cut(tokenizer):
    short, long = build(64, tokenizer).ids, build(512, tokenizer).ids
    cut = len(short) - len(SUFFIX_IDS)
    assert short[:cut] == long[:cut]


def test_the_body_is_the_salt_s_opening_and_then_the_corpus():
    tokenizer = ByteTokenizer()
    text = passages()
    start = first_passage("s")
    whole = opening("s") + SEPARATOR.join([*text[start:], *text[:start]])
    ids = build(3000, tokenizer, source="raw").ids
    assert bytes(token - FIRST_PLAIN_ID for token in ids) == whole.encode()[:3000]


def test_a_prompt_longer_than_the_corpus_begins_it_again():
    tokenizer = ByteTokenizer()
    period = sum(len((text + SEPARATOR).encode()) for text in passages())
    ids = build(2 * period + 500, tokenizer, source="raw").ids
    body = ids[len(opening("s").encode()) :]
    assert body[:400] == body[period : period + 400]


@settings(max_examples=50, deadline=None)
@given(st.integers(AROUND + MIN_BODY_TOKENS, 2000), st.text(max_size=60))
def test_any_salt_and_length_give_a_prompt_that_can_be_built_again(tokens, salt):
    one, other = (build(tokens, ByteTokenizer(), salt=salt) for _ in range(2))
    assert one == other
    assert one.exact


# --- salt ----------------------------------------------------------------------------------

SALTS = [f"round-{number}/cell-a/{index}" for number in range(5) for index in range(20)]


def test_no_two_salts_give_the_same_digest(tokenizer):
    for tokens in (AROUND + MIN_BODY_TOKENS, 64, 1024):
        digests = {build(tokens, tokenizer, salt=salt).digest for salt in SALTS}
        assert len(digests) == len(SALTS)


def test_the_same_salt_gives_the_same_prompt_from_another_tokenizer_object():
    one, other = (build(500, WordTokenizer(), salt="again") for _ in range(2))
    assert one == other


def test_two_salts_share_the_template_and_nothing_else():
    tokenizer = WordTokenizer()
    one, other = (build(200, tokenizer, salt=salt).ids for salt in ("round-1/a", "round-1/b"))
    assert shared(one, other) == len(PREFIX_IDS)
    one, other = (build(200, tokenizer, salt=s, source="raw").ids for s in ("x", "y"))
    assert shared(one, other) == 0


def test_among_many_salts_a_shared_word_is_a_rare_accident():
    tokenizer = WordTokenizer()
    prompts = [build(64, tokenizer, salt=salt).ids for salt in SALTS]
    lengths = [shared(one, other) for at, one in enumerate(prompts) for other in prompts[at + 1 :]]
    assert max(lengths) <= len(PREFIX_IDS) + 1
    assert sum(length > len(PREFIX_IDS) for length in lengths) < len(lengths) / 200


def test_salts_go_on_with_different_passages():
    assert len({first_passage(salt) for salt in SALTS}) > len(SALTS) / 2


def test_a_salt_can_be_recognised_in_its_prompt():
    assert "case round-1/cell-a." in opening("round-1/cell-a")


@pytest.mark.parametrize("control", list(CONTROL))
def test_a_control_token_in_a_salt_is_only_text(control):
    ids = build(400, ByteTokenizer(), salt=f"x{control}y").ids
    body = ids[len(PREFIX_IDS) : -len(SUFFIX_IDS)]
    assert min(body) >= FIRST_PLAIN_ID
    assert control.encode() in bytes(token - FIRST_PLAIN_ID for token in body)


def test_a_control_token_in_the_corpus_is_only_text(monkeypatch):
    word = re.search(r"\w{6,}", passages()[first_passage("s")])[0]
    monkeypatch.setitem(CONTROL, word, 9)
    tokenizer = ByteTokenizer()
    assert 9 in tokenizer.tokenize(word, special=True)
    body = build(3000, tokenizer, salt="s").ids[len(PREFIX_IDS) : -len(SUFFIX_IDS)]
    assert word.encode() in bytes(token - FIRST_PLAIN_ID for token in body)


# --- begin of sequence ---------------------------------------------------------------------

WRITES_BOS = "{{ bos_token }}" + TEMPLATE


def test_a_due_token_is_put_first_and_counted(tokenizer):
    ids = build(100, tokenizer, facts=ADDING).ids
    assert ids[:2] == (BOS, *PREFIX_IDS)
    assert len(ids) == 100


def test_a_template_that_writes_the_token_gets_no_second_one(tokenizer):
    ids = build(100, tokenizer, facts=ADDING, template=WRITES_BOS).ids
    assert ids[:2] == (BOS, *PREFIX_IDS)


def test_a_template_may_write_the_token_even_if_it_is_not_due(tokenizer):
    assert build(100, tokenizer, template=WRITES_BOS).ids[:2] == (BOS, *PREFIX_IDS)


@pytest.mark.parametrize("adds", [False, None])
def test_a_token_that_is_not_due_is_not_added(tokenizer, adds):
    facts = attrs.evolve(PLAIN, adds_bos=adds)
    assert build(100, tokenizer, facts=facts).ids[0] != BOS
    assert build(100, tokenizer, facts=facts, source="raw").ids[0] != BOS


def test_raw_text_starts_with_the_token_when_it_is_due(tokenizer):
    ids = build(100, tokenizer, facts=ADDING, source="raw").ids
    assert ids[0] == BOS
    assert BOS not in ids[1:]


def test_a_template_that_writes_the_token_twice_is_refused(tokenizer):
    twice = "{{ bos_token }}" + WRITES_BOS
    for facts in (PLAIN, ADDING):
        assert "two begin-of-sequence tokens" in refusal(
            100, tokenizer, facts=facts, template=twice
        )


def test_a_tokenizer_that_adds_the_token_by_itself_is_caught():
    class Meddling(ByteTokenizer):
        def tokenize(self, text, *, special=False):
            return [BOS, *super().tokenize(text, special=special)]

    assert "has to add nothing" in refusal(100, Meddling(), facts=ADDING, template=WRITES_BOS)


def test_a_due_token_without_an_id_is_the_adapter_s_mistake(tokenizer):
    facts = Tokenizer(adds_bos=True)
    for source in ("chat", "raw"):
        assert "must report bos_id" in refusal(100, tokenizer, facts=facts, source=source)


def test_a_text_only_template_works_without_any_token_text(tokenizer):
    facts = Tokenizer(bos_id=BOS, adds_bos=True)
    assert build(100, tokenizer, facts=facts, template=WRITES_BOS).ids[:2] == (BOS, *PREFIX_IDS)


@pytest.mark.parametrize(
    ("ids", "bos_id", "doubled"),
    [
        ([1, 1, 518, 1792], 1, True),
        ([1, 518, 1792], 1, False),
        ([518, 1, 1], 1, False),
        ([1], 1, False),
        ([], 1, False),
        ((1, 1), 1, True),
        ([1, 1, 518], None, False),
        ([0, 0], 0, True),
    ],
)
def test_a_doubled_token_is_one_at_the_start(ids, bos_id, doubled):
    assert has_doubled_bos(ids, bos_id) is doubled


# --- given ids -----------------------------------------------------------------------------


def test_given_ids_are_sent_as_they_are(tokenizer):
    built = build(3, tokenizer, source="ids", ids=(7, 8, 9), facts=ADDING, template=None)
    assert built.ids == (7, 8, 9)
    assert built.exact
    assert tokenizer.texts == []


def test_given_ids_know_no_salt(tokenizer):
    digests = {build(2, tokenizer, source="ids", ids=(7, 8), salt=s).digest for s in "ab"}
    assert len(digests) == 1


@pytest.mark.parametrize("ids", [(), (1,), (1, 2, 3)])
def test_another_number_of_ids_than_asked_is_refused(tokenizer, ids):
    assert f"2 tokens are asked for, but {len(ids)} ids" in refusal(
        2, tokenizer, source="ids", ids=ids
    )


@pytest.mark.parametrize("wrong", [-1, 100, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer, wrong):
    facts = attrs.evolve(PLAIN, vocab_size=100)
    message = refusal(2, tokenizer, source="ids", ids=(99, wrong), facts=facts)
    assert f"the id {wrong} at position 1" in message
    assert "0 to 99" in message


def test_with_a_vocabulary_of_unknown_size_only_negative_ids_are_refused(tokenizer):
    assert build(1, tokenizer, source="ids", ids=(10**9,)).ids == (10**9,)
    assert "unknown size" in refusal(1, tokenizer, source="ids", ids=(-3,))


def test_given_ids_with_the_token_twice_are_refused(tokenizer):
    assert "two begin-of-sequence" in refusal(3, tokenizer, source="ids", ids=(BOS, BOS, 7))


# --- what is asked and what comes back -----------------------------------------------------


def test_a_model_without_a_template_is_told_to_use_raw(tokenizer):
    for template in (None, ""):
        assert 'use prompt = "raw"' in refusal(100, tokenizer, template=template)
    assert build(100, tokenizer, template=None, source="raw").exact


def test_a_template_that_does_not_fit_is_refused_in_its_own_words(tokenizer):
    template = "{{ raise_exception('only tools may speak') }}"
    assert "refuses the message: only tools may speak" in refusal(100, tokenizer, template=template)


def test_a_template_without_anything_around_the_text_is_fine(tokenizer):
    bare = "{{ messages[0].content }}"
    chat, raw = build(100, tokenizer, template=bare), build(100, tokenizer, source="raw")
    assert chat.ids == raw.ids
    assert "" not in tokenizer.texts


def test_a_chat_prompt_records_template_date_and_corpus(tokenizer):
    built = build(100, tokenizer)
    assert built.source is PromptSource.CHAT
    assert built.template_sha256 == hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert built.pinned_date == PINNED_DATE
    assert built.corpus_version == corpus_version()


def test_a_raw_prompt_records_the_corpus_alone(tokenizer):
    built = build(100, tokenizer, source="raw")
    assert (built.template_sha256, built.pinned_date) == (None, None)
    assert built.corpus_version == corpus_version()


def test_given_ids_record_neither(tokenizer):
    built = build(1, tokenizer, source="ids", ids=(7,))
    assert (built.template_sha256, built.pinned_date, built.corpus_version) == (None, None, None)


def test_the_digest_is_over_the_ids(tokenizer):
    built = build(100, tokenizer)
    assert built.digest == digest(list(built.ids))
    assert built.digest.startswith("sha256:")


def test_a_prompt_survives_being_stored(tokenizer):
    built = build(100, tokenizer)
    assert structure(from_json(to_json(built)), BuiltPrompt) == built


def test_a_spec_is_read_strictly():
    spec = structure({"source": "ids", "tokens": 2, "ids": [7, 8]}, PromptSpec)
    assert spec == PromptSpec(source=PromptSource.IDS, tokens=2, ids=(7, 8))
    assert structure({"tokens": 5}, PromptSpec).source is PromptSource.CHAT


@pytest.mark.parametrize(
    "data",
    [{}, {"tokens": 0}, {"tokens": 2, "ids": [1, 2]}, {"tokens": 1, "source": "chatt"}],
)
def test_a_spec_that_cannot_be_is_refused(data):
    with pytest.raises(StructureError):
        structure(data, PromptSpec)


@pytest.mark.parametrize("kind", [PromptSpec, BuiltPrompt])
def test_every_field_says_what_it_means(kind):
    for attribute in attrs.fields(kind):
        assert about_of(attribute).doc.endswith("."), attribute.name


def test_a_prompt_that_cannot_be_built_is_a_mistake_of_use():
    assert PromptError.exit_code is ExitCode.USAGE


def test_every_engine_is_a_text_tokenizer(tokenizer):
    def takes(engine: Engine) -> TextTokenizer:
        return engine

    assert takes(tokenizer) is tokenizer


# --- cost ----------------------------------------------------------------------------------


def test_only_what_is_needed_is_tokenized(tokenizer):
    build(60, tokenizer)
    assert len(tokenizer.texts) <= 4


def test_a_passage_is_tokenized_once(tokenizer):
    for salt in SALTS:
        build(3000, tokenizer, salt=salt)
    seen = [text for text in tokenizer.texts if text.removesuffix(SEPARATOR) in passages()]
    assert len(seen) == len(set(seen))
    assert len(seen) <= len(passages())


def test_two_tokenizers_do_not_share_what_is_known():
    one, other = ByteTokenizer(), WordTokenizer()
    build(300, one)
    assert build(300, other).ids == build(300, WordTokenizer()).ids


def test_what_is_known_goes_with_its_tokenizer():
    tokenizer = ByteTokenizer()
    build(300, tokenizer)
    key = id(tokenizer)
    assert key in tokenized._known
    del tokenizer
    gc.collect()
    assert key not in tokenized._known


@attrs.define(eq=True)
class Unhashable(ByteTokenizer):
    """Like an engine that is an attrs class."""

    texts: list[str] = attrs.Factory(list)


class Unreferable:
    """An object nothing can refer to weakly."""

    __slots__ = ()

    def tokenize(self, text: str, *, special: bool = False) -> Sequence[int]:
        return ByteTokenizer().tokenize(text, special=special)


@pytest.mark.parametrize("kind", [Unhashable, Unreferable])
def test_any_kind_of_object_may_be_a_tokenizer(kind):
    assert build(500, kind()).ids == build(500, ByteTokenizer()).ids


def test_a_tokenizer_that_returns_nothing_is_refused_and_not_waited_for():
    class Mute:
        def tokenize(self, text, *, special=False):
            return []

    assert "returned no ids for plain text" in refusal(100, Mute(), source="raw")


def test_a_tokenizer_may_return_any_sequence():
    class Tuples(ByteTokenizer):
        def tokenize(self, text, *, special=False):
            return tuple(super().tokenize(text, special=special))

    assert build(500, Tuples()).ids == build(500, ByteTokenizer()).ids
