"""What a model's own chat template puts around a user's text.

The date is pinned: a template that writes today's date would make another prompt every day.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256

from attrs import frozen

from inferometer.errors import PromptError
from inferometer.prompts.sandbox import Sandbox, TemplateRefusalError

PINNED_DATE = "2024-07-26"
"""The date every template is told. A widespread family of templates falls back to it when told
none, so an engine that renders by itself often agrees."""

_NOW = datetime.fromisoformat(PINNED_DATE).replace(tzinfo=UTC)


@frozen
class ChatFrame:
    """The text before and after the user's own, ready for the model's answer."""

    prefix: str
    suffix: str


@lru_cache(maxsize=16)
def chat_frame(template: str, *, bos_text: str = "", eos_text: str = "") -> ChatFrame:
    """Return the frame a template puts around one user message.

    Raises:
        PromptError: the template is broken, refuses the message, or does not show it exactly
            once and unchanged.
    """
    mark = f"m{sha256(template.encode('utf-8', 'replace')).hexdigest()[:24]}"
    message = _probe(mark)
    text = _render(template, message, bos_text, eos_text)
    shown = text.count(message)
    if shown == 1:
        prefix, _, suffix = text.partition(message)
        return ChatFrame(prefix, suffix)
    if shown:
        raise _unfit(f"shows the message {shown} times")
    if mark in text.lower():
        raise _unfit("changes the message")
    raise _unfit("does not show the message")


def _probe(mark: str) -> str:
    """Return a message with what a template might escape, fold or cut.

    Quotes, a tag, a letter beyond ASCII, a second line; a mark no text holds by chance. No
    outer blanks, because trimming them does no harm.
    """
    return f"{mark} \"One\" & 'two' <three> \N{LATIN SMALL LETTER E WITH ACUTE}.\nMore {mark}"


def _render(template: str, message: str, bos_text: str, eos_text: str) -> str:
    sandbox = Sandbox(strftime_now=_NOW.strftime)
    try:
        return sandbox.render(
            template,
            messages=[{"role": "user", "content": message}],
            add_generation_prompt=True,
            tools=None,
            documents=None,
            bos_token=bos_text,
            eos_token=eos_text,
            date_string=_NOW.strftime("%d %b %Y"),
        )
    except TemplateRefusalError as error:
        raise _unfit(f"refuses the message: {error}") from None
    except Exception as error:  # noqa: BLE001 - foreign code can fail in any way
        raise _unfit(f"fails with {type(error).__name__}: {error}") from None


def _unfit(what: str) -> PromptError:
    return PromptError(
        f'the model\'s chat template {what}; use prompt = "raw" to measure without the template'
    )
