"""Options that both llama.cpp adapters share, named as llama.cpp names them.

``None`` leaves a setting to the engine; the identity then tells what it chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen

if TYPE_CHECKING:
    from inferometer import Context

FLASH_ATTENTION = ("auto", "on", "off")
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Number formats llama.cpp can keep its KV cache in."""
WINDOW_STEP = 256
"""llama.cpp pads a context window to a multiple of this many tokens."""

Validator = Callable[[Any, "Attribute[Any]", Any], None]


def doc(sentence: str) -> Mapping[str, str]:
    """Return attrs metadata that explains an option to its user."""
    return {"doc": sentence}


def one_of(*allowed: str) -> Validator:
    """Accept the given words only."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value not in allowed:
            raise ValueError(f"{attribute.name}: {value!r} is not one of {', '.join(allowed)}")

    return check


def at_least(least: int) -> Validator:
    """Accept None and whole numbers from ``least`` on."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and (type(value) is not int or value < least):
            raise ValueError(f"{attribute.name}: {value!r} is not a whole number >= {least}")

    return check


@frozen(kw_only=True)
class CommonOptions:
    """What can be set on llama.cpp, in one process or behind a server."""

    threads: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("CPU threads that decode."),
    )
    threads_batch: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("CPU threads that process the prompt; as many as decode when left out."),
    )
    batch: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("Most prompt tokens handed over in one call (logical batch)."),
    )
    ubatch: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("Most prompt tokens computed in one pass (physical batch)."),
    )
    context_tokens: int | None = field(
        default=None,
        validator=at_least(1),
        metadata=doc("Tokens the context window holds; just enough for the suite when left out."),
    )
    flash_attention: str = field(
        default="auto",
        validator=one_of(*FLASH_ATTENTION),
        metadata=doc("Fused attention: auto (the engine decides), on, off."),
    )
    kv_key_type: str = field(
        default="f16",
        validator=one_of(*KV_TYPES),
        metadata=doc("Number format of the keys in the KV cache."),
    )
    kv_value_type: str = field(
        default="f16",
        validator=one_of(*KV_TYPES),
        metadata=doc("Number format of the values in the KV cache."),
    )
    gpu_layers: int = field(
        default=-1,
        validator=at_least(-1),
        metadata=doc("Layers to keep on the GPU; -1 is all, 0 is none."),
    )
    mmap: bool = field(
        default=True,
        metadata=doc("Map the model file into memory instead of reading it."),
    )


def window(options: CommonOptions, context: Context) -> int:
    """Return the context size to ask for, in tokens.

    What the user asks for is used as it is. Otherwise it holds the longest request and one
    token more, because an answer that fills its window to the last token is called truncated,
    rounded up as llama.cpp would pad it.
    """
    if options.context_tokens is not None:
        return options.context_tokens
    return -(-(context.context_tokens + 1) // WINDOW_STEP) * WINDOW_STEP
