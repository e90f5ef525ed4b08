"""Run a template that came with a model: foreign code, on a budget.

The sandbox keeps a template away from Python's insides. The budget keeps it from running on:
turns of loops, calls, ranges, repetitions, powers, joined text and output all draw on it.
Filters that can grow text by a number (a width, a count, a format) have that number bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 1_000_000
"""Real templates take some thousands; this many take about half a second."""
_CALL_STEPS = 20
"""A call costs about as much time as this many turns of a loop."""


_GROWING = ("batch", "center", "format", "indent", "slice", "truncate", "wordwrap")
_WIDEST = 10_000
"""No real template indents or pads by more characters than this."""
_WIDE = re.compile(r"%[^a-zA-Z%\s]*(\d{5,}|\*)|\{[^}]*:[^}]*\d{5,}[^}]*\}")
"""A width of five digits or more in a format, or one that is an argument."""


class TemplateRefusalError(TemplateError):
    """The template itself refused what it was given, in its own words."""


class TemplateBudgetError(TemplateError):
    """The template does more than any real one."""


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment set up the way chat templates are written for; good for one use."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, *, strftime_now: Callable[[str], str]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self._steps = 0.0
        self.filters["tojson"] = _tojson
        for name in _GROWING:
            self.filters[name] = _bounded(self.filters[name])
        self.filters["counted"] = self._counted
        self.filters["weighed"] = self._weighed
        self.globals["range"] = self._range
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = strftime_now

    def render(self, template: str, **variables: Any) -> str:
        """Return the rendered text. Raises whatever the template makes Python raise."""
        parsed = self.parse(template)
        for loop in list(parsed.find_all(nodes.For)):
            loop.iter = _filtered(loop.iter, "counted")
        for concat in list(parsed.find_all(nodes.Concat)):
            concat.nodes = [_filtered(node, "weighed") for node in concat.nodes]
        parts = self.from_string(parsed).generate(**variables)
        return "".join(self._weighed(part) for part in parts)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._spend(_CALL_STEPS)
        text = getattr(obj, "__self__", None)
        if isinstance(text, str):
            _refuse_growth((text, *args, *kwargs.values()))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%":
            _refuse_growth((left,) if isinstance(left, str) else ())
            return super().call_binop(context, operator, left, right)
        sizes = _size(left), _size(right)
        self._spend(sum(sizes) if operator == "+" else sizes[0] * sizes[1])
        return super().call_binop(context, operator, left, right)

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        self._spend(_size(numbers))
        return numbers

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._spend(1)
            yield item

    def _weighed(self, part: Any) -> Any:
        self._spend(_size(part))
        return part

    def _spend(self, steps: float) -> None:
        self._steps += steps
        if not self._steps <= MAX_STEPS:  # so written, not-a-number stops too
            raise TemplateBudgetError(f"it takes more than {MAX_STEPS} steps")


class _Generation(Extension):
    """``{% generation %}`` marks the model's own words, for training; here it marks nothing."""

    tags = frozenset(("generation",))  # type: ignore[assignment]  # never written to

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _size(value: Any) -> float:
    """Return the length of what has one, the magnitude of a number, and 1 for the rest."""
    try:
        return len(value)
    except OverflowError:
        return MAX_STEPS + 1
    except TypeError:
        return abs(value) if isinstance(value, int | float) else 1


def _tojson(value: Any, *, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes for HTML, and a model would read the escapes.
    return json.dumps(value, **{"ensure_ascii": False, "indent": indent, **options})


def _bounded(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses to grow text without bound."""

    @wraps(plain)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _refuse_growth((*args, *kwargs.values()))
        return plain(*args, **kwargs)

    return bounded


def _refuse_growth(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int | float) and not abs(value) <= _WIDEST:
            raise TemplateBudgetError(f"it pads text by {value}")
        if isinstance(value, str) and _WIDE.search(value):
            raise TemplateBudgetError("it formats text with a width that no real one has")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusalError(message)
