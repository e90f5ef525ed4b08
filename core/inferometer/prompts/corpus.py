"""The text that prompts are made of.

The corpus is cut into passages of a few sentences, and each file's passages are spread evenly
over the whole. Any few hundred tokens are then natural text, mostly English prose, and any few
thousand hold every language and code. Tokenizers and caches treat such text as they treat real
prompts, which random ids or one repeated word do not achieve.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

FILES = (
    "en-essays",
    "en-stories",
    "de",
    "fr",
    "es",
    "pt",
    "ja",
    "zh",
    "ko",
    "ru",
    "ar",
    "hi",
    "code",
)
"""Part of what a prompt is: another order is another corpus."""

PASSAGE_BYTES = 400
"""Paragraphs are joined until a passage has this many: dialogue must not be torn apart."""

SEPARATOR = "\n\n"

_BLANK_LINES = re.compile(r"\n{2,}")
_WORD = re.compile(r"\b[a-z]{4,}\b")
_OPENING_WORDS = 4
_BYTES_PER_WORD = 4


@cache
def passages() -> tuple[str, ...]:
    """Return the corpus's passages in their fixed order."""
    placed = [
        # A file's share of a step sets it off from files with as many passages.
        ((index + (rank + 0.5) / len(FILES)) / len(found), passage)
        for rank, found in enumerate(map(_file_passages, FILES))
        for index, passage in enumerate(found)
    ]
    return tuple(passage for _, passage in sorted(placed))


@cache
def corpus_version() -> str:
    """Return the digest of the corpus in its order: any changed byte is another corpus."""
    text = SEPARATOR.join(passages())
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def first_passage(salt: str) -> int:
    """Return the index of the passage that a salt's text goes on with."""
    return int.from_bytes(_digest(salt)[-8:], "big") % len(passages())


def opening(salt: str) -> str:
    """Return the salt's own first paragraph.

    Words drawn by the salt's digest come first, and the salt itself after them: salts are
    often alike at their start (``round-1-a``, ``round-1-b``), and so would be the prompts.
    """
    digest, words = _digest(salt), _words()
    starts = range(0, _OPENING_WORDS * _BYTES_PER_WORD, _BYTES_PER_WORD)
    drawn = (int.from_bytes(digest[at : at + _BYTES_PER_WORD], "big") for at in starts)
    return f"{' '.join(words[number % len(words)] for number in drawn)}: case {salt}.{SEPARATOR}"


def _digest(salt: str) -> bytes:
    return hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()


@cache
def _words() -> tuple[str, ...]:
    return tuple(sorted(set(_WORD.findall(_text("en-essays")))))


def _file_passages(name: str) -> list[str]:
    return list(_join(_BLANK_LINES.split(_text(name).strip("\n"))))


def _join(paragraphs: list[str]) -> Iterator[str]:
    passage: list[str] = []
    for paragraph in paragraphs:
        passage.append(paragraph)
        if sum(len(part.encode()) for part in passage) >= PASSAGE_BYTES:
            yield SEPARATOR.join(passage)
            passage = []
    if passage:
        yield SEPARATOR.join(passage)


@cache
def _text(name: str) -> str:
    return (files("inferometer") / "corpus" / f"{name}.txt").read_text(encoding="utf-8")
