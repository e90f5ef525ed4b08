"""Lines as wide as the console: nothing is cut, what does not fit goes on below.

A line is wrapped here and not by rich, which leaves blanks at the ends of lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from attrs import frozen
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

ROW_INDENT = 4
NOTE_INDENT = 8

_NUMBERS = ("median", "min", "max")
_SEEN_FROM = "seen from"
_USUAL_VALUE = len("12.34 tok/s")
_NARROWEST_VALUE = 9  # below this, numbers go on a line of their own
_NARROWEST_WORDS = 24


@frozen(kw_only=True)
class Columns:
    """How wide the columns of all rows are; ``value`` is 0 where numbers have no columns."""

    metric: int
    vantage: int
    n: int
    value: int
    gap: str

    @classmethod
    def fit(cls, rows: Iterable[Row], width: int) -> Columns:
        """Return columns for these rows, with as much room for values as they need and get."""
        shown = list(rows)
        metric = max((len(row.metric) for row in shown), default=0)
        vantage = max([len(_SEEN_FROM), *(len(row.vantage) for row in shown)])
        n = max((len(str(row.n)) for row in shown), default=1)
        needed = max([_USUAL_VALUE, *(len(cell) for row in shown for cell in row.numbers)])
        value, gap = 0, " "
        for gap in ("  ", " "):
            room = width - ROW_INDENT - metric - vantage - n - 2 * len(gap)
            value = room // len(_NUMBERS) - len(gap)
            if value >= needed:
                break
        value = min(value, needed) if value >= _NARROWEST_VALUE else 0
        return cls(metric=metric, vantage=vantage, n=n, value=value, gap=gap)

    def lead(self, name: str, vantage: str, n: str, *, indent: int = ROW_INDENT) -> str:
        """Return the columns before the numbers."""
        width = self.metric + ROW_INDENT - indent
        cells = (name.ljust(width), vantage.ljust(self.vantage), n.rjust(self.n))
        return " " * indent + self.gap.join(cells)

    def values(self, numbers: Iterable[str]) -> str:
        """Return the columns of the numbers."""
        return "".join(self.gap + number.rjust(self.value) for number in numbers)


class Block(Protocol):
    """Something that knows its lines once the width is known."""

    def lines(self, width: int, columns: Columns) -> Iterator[Text]: ...


@frozen(kw_only=True)
class Words:
    """Words that go on, further to the right, in the next line; none make an empty line."""

    words: str = ""
    indent: int = 0
    hang: int = 2
    style: str = ""
    lead: str = ""
    """Words before them, in a style of their own."""
    lead_style: str = ""

    def lines(self, width: int, columns: Columns) -> Iterator[Text]:
        del columns
        found = wrapped(self.lead + self.words, width, self.indent, self.indent + self.hang)
        for number, line in enumerate(found):
            text = Text(line, self.style)
            if self.lead and not number:
                text.stylize(self.lead_style, 0, self.indent + len(self.lead))
            yield text


@frozen(kw_only=True)
class Head:
    """The line above the rows of a condition."""

    name: str

    def lines(self, width: int, columns: Columns) -> Iterator[Text]:
        del width
        if not columns.value:
            yield Text(f"  {self.name}", "bold")
            return
        lead = columns.lead(self.name, _SEEN_FROM, "n", indent=2)
        text = Text(lead + columns.values(_NUMBERS), "dim")
        text.stylize("not dim bold", 0, 2 + len(self.name))
        yield text


@frozen(kw_only=True)
class Row:
    """A metric: its numbers, or words in their place; notes below."""

    metric: str
    vantage: str
    n: int
    numbers: Sequence[str] = ()
    """Median, smallest and largest, or nothing."""
    words: str = ""
    notes: Sequence[str] = ()

    def lines(self, width: int, columns: Columns) -> Iterator[Text]:
        yield from map(Text, self._own(width, columns))
        for note in self.notes:
            yield from (Text(line, "yellow") for line in below(note, width))

    def _own(self, width: int, columns: Columns) -> Iterator[str]:
        told = self.words or ", ".join(
            f"{name} {number}" for name, number in zip(_NUMBERS, self.numbers, strict=True)
        )
        if not columns.value:
            yield from wrapped(f"{self.metric}, {self.vantage}, n={self.n}", width, ROW_INDENT)
            yield from below(told, width)
            return
        lead = columns.lead(self.metric, self.vantage, str(self.n))
        start = len(lead) + len(columns.gap)
        if self.numbers and all(len(number) <= columns.value for number in self.numbers):
            yield lead + columns.values(self.numbers)
        elif self.words and width - start >= _NARROWEST_WORDS:
            first, *rest = wrapped(told, width, start)
            yield lead + first[len(lead) :]
            yield from rest
        else:
            yield lead
            yield from below(told, width)


@frozen(kw_only=True)
class Page:
    """Blocks, one under another, for a console of any width."""

    blocks: Sequence[Block]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        columns = Columns.fit((block for block in self.blocks if isinstance(block, Row)), width)
        for block in self.blocks:
            for line in block.lines(width, columns):
                line.no_wrap, line.overflow = True, "ignore"
                yield line


def below(words: str, width: int) -> Iterator[str]:
    """Yield lines that stand below a row."""
    yield from wrapped(words, width, NOTE_INDENT)


def wrapped(words: str, width: int, indent: int, hang: int | None = None) -> Iterator[str]:
    """Yield words as lines of at most this width, the first indented, the others hung.

    A word that is wider than a line is broken, never cut.
    """
    widest = width // 2 if width >= NOTE_INDENT else 0
    indent, hang = (min(edge, widest) for edge in (indent, indent if hang is None else hang))
    line, filled = " " * indent, False
    for word in words.split(" "):
        longer = f"{line} {word}" if filled else line + word
        if filled and cell_len(longer) > width:
            yield line.rstrip()
            longer = " " * hang + word
        filled = True
        if cell_len(longer) > width:
            *full, longer = _broken(longer, width, hang)
            yield from full
        line = longer
    yield line.rstrip()


def _broken(line: str, width: int, hang: int) -> list[str]:
    edge = len(line) - len(line.lstrip(" "))
    first, *_ = chop_cells(line[edge:], max(width - edge, 1))
    rest = line[edge + len(first) :]
    pieces = chop_cells(rest, max(width - hang, 1)) if rest else []
    return [" " * edge + first, *(" " * hang + piece for piece in pieces)]
