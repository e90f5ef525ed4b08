"""What an engine is asked: prompts of an exact number of tokens."""

from __future__ import annotations

from inferometer.prompts.bos import has_doubled_bos
from inferometer.prompts.build import MIN_BODY_TOKENS, build_prompt
from inferometer.prompts.corpus import corpus_version
from inferometer.prompts.spec import BuiltPrompt, PromptSource, PromptSpec, TextTokenizer
from inferometer.prompts.template import PINNED_DATE

__all__ = [
    "MIN_BODY_TOKENS",
    "PINNED_DATE",
    "BuiltPrompt",
    "PromptSource",
    "PromptSpec",
    "TextTokenizer",
    "build_prompt",
    "corpus_version",
    "has_doubled_bos",
]
