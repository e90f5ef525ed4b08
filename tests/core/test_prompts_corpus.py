"""The corpus: every file in it, in one fixed order, mixed so that any stretch is natural text."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from inferometer.prompts import corpus
from inferometer.prompts.corpus import (
    FILES,
    PASSAGE_BYTES,
    SEPARATOR,
    corpus_version,
    opening,
    passages,
)

FOLDER = files("inferometer") / "corpus"


def text_of(name: str) -> str:
    """A file's text with its blank lines as passages have them: never more than one."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r"\n{2,}", SEPARATOR, text.strip("\n"))


TEXTS = {name: text_of(name) for name in FILES}


def source_of(passage: str) -> str:
    (found,) = [name for name, text in TEXTS.items() if passage in text]
    return found


def sources() -> list[str]:
    return [source_of(passage) for passage in passages()]


def is_english(name: str) -> bool:
    return name.startswith("en-")


def test_every_text_file_is_in_the_order():
    names = {path.name.removesuffix(".txt") for path in FOLDER.iterdir() if ".txt" in path.name}
    assert names == set(FILES)
    assert len(set(FILES)) == len(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_there_whole_and_in_its_own_order(name):
    mine = [passage for passage in passages() if source_of(passage) == name]
    assert SEPARATOR.join(mine) == TEXTS[name]


def test_no_passage_is_there_twice():
    assert len(set(passages())) == len(passages())


def test_passages_are_long_enough_to_read():
    short = [passage for passage in passages() if len(passage.encode()) < PASSAGE_BYTES]
    assert len(short) <= len(FILES), "only what is left at the end of a file may be short"
    assert max(len(passage.encode()) for passage in passages()) < 4 * PASSAGE_BYTES


def test_most_of_the_text_is_english():
    english = sum(len(passage) for passage in passages() if is_english(source_of(passage)))
    assert english > sum(map(len, passages())) / 2


def test_any_few_passages_hold_english_and_something_else():
    names = sources()
    for at in range(len(names)):
        window = [names[(at + step) % len(names)] for step in range(6)]
        assert any(map(is_english, window))
        assert not all(map(is_english, window))


def test_a_few_thousand_tokens_hold_every_language_and_code():
    names = sources()
    quarter = len(names) // 2
    for start in (0, quarter):
        assert set(names[start : start + quarter]) == set(FILES)


def test_the_version_is_a_digest_of_the_text(monkeypatch):
    before = corpus_version()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", before)
    changed = (*passages()[:-1], passages()[-1] + "!")
    monkeypatch.setattr(corpus, "passages", lambda: changed)
    assert corpus_version.__wrapped__() != before


def test_an_opening_is_words_and_the_salt():
    text = opening("round-1/a")
    assert re.fullmatch(r"[a-z]{4,}( [a-z]{4,}){3}: case round-1/a\.\n\n", text)


def test_an_opening_begins_with_another_word_for_almost_every_salt():
    first = {opening(f"round-{number}").split()[0] for number in range(200)}
    assert len(first) > 150


def test_a_salt_may_be_any_text():
    for salt in ("", "\ud800", "né", "x" * 10_000):
        assert opening(salt).endswith(f"case {salt}.\n\n")


def test_paragraphs_are_joined_until_they_are_long_enough():
    long = "x" * PASSAGE_BYTES
    assert list(corpus._join(["a", "b", long, long, "c"])) == [
        SEPARATOR.join(["a", "b", long]),
        long,
        "c",
    ]
    assert list(corpus._join([])) == []
