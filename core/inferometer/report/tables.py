"""One block for loading and one per workload, subject by subject.

Whatever comes from data is put into ``Text``, never into markup: a model's name can hold
brackets, and must not become colour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.console import RenderableType

from inferometer.metrics import REGISTRY
from inferometer.report import text
from inferometer.report.layout import ROW_INDENT, Block, Head, Page, Row, Words
from inferometer.results import Results, Sample, Skip, SubjectRecord
from inferometer.suite import Condition
from inferometer.summary import Group, MetricSummary, groups, summarize

T = TypeVar("T")

DEFAULT_METRICS = (
    "load.spawn",
    "load.import",
    "load.prepare",
    "load.load",
    "load.first_request",
    "load.ready",
    "ttft",
    "prefill_rate",
    "prefill_rate_bound",
    "decode_rate",
    "cached_tokens",
    "generated_tokens",
    "cache_speedup",
)
"""Metrics that are shown unless all are asked for."""

_EMPTY = "-"
_BLANK = Words()
_ALL = "all of them: "
_LOAD_TITLE = "load: from nothing to the first token"
_NOTES: Mapping[str, str] = {"load.ready": "median of the sums"}
"""What a reader of a row should know, whatever the values are."""


def render(results: Results, *, metrics: Collection[str] | None = None) -> RenderableType:
    """Return a run as lines that fit the console they are printed on.

    Args:
        results: the run.
        metrics: ids to show; None is every metric.
    """
    judged = groups(results)
    wanted = REGISTRY.keys() if metrics is None else metrics
    rows = summarize(results, judged=judged, only=wanted).metrics
    blocks: list[Block] = [*_heading(results)]
    for record in results.subjects:
        own = [row for row in rows if row.subject == record.subject.name]
        blocks += _subject(results, record, own, [g for g in judged if g.record is record])
    notes = [*_failures(results), *_excluded(judged), *_skips(results.skips)]
    if notes:
        blocks += [_BLANK, *notes]
    return Page(blocks=[*blocks, *_legend(rows, judged)])


def _heading(results: Results) -> Iterator[Words]:
    host, suite = results.host, results.suite
    memory = f"{host.memory_bytes / 1e9:.0f} GB memory" if host.memory_bytes else "memory unknown"
    cores = text.number(host.physical_cores, "core") if host.physical_cores else "unknown cores"
    rounds = text.number(results.rounds, "round")
    words = text.plain(f", {rounds}, suite {results.suite_digest[:19]}…")
    yield Words(words=words, lead=text.plain(suite.name), lead_style="bold")
    system = f"{host.os_name} {host.os_version}" if host.os_version else host.os_name
    machine = f"{host.chip or 'chip unknown'}, {cores}, {memory}, {system}; {results.started_at}"
    yield Words(words=text.plain(machine))
    if not results.complete:
        yield Words(words="INCOMPLETE: resume it with --resume", style="red")


def _subject(
    results: Results,
    record: SubjectRecord,
    rows: Sequence[MetricSummary],
    judged: Sequence[Group],
) -> Iterator[Block]:
    name = text.plain(record.subject.name)
    yield _BLANK
    yield Words(words=f"  {text.label(record, results)}", lead=name, lead_style="bold cyan")
    for words in text.options(record, results):
        yield Words(words=words, indent=2)
    loading = [row for row in rows if row.condition is Condition.LOAD]
    if loading:
        yield from (_BLANK, Words(words=_LOAD_TITLE, style="bold"))
        yield from _condition(Condition.LOAD, loading, None)
    for workload in results.suite.workloads:
        asked = (
            f"{workload.name}: {text.number(workload.length, 'prompt token')}, "
            f"{text.number(workload.output_tokens, 'output token')}"
        )
        own = [row for row in rows if row.workload == workload.name]
        if own:
            families = [group for group in judged if group.workload == workload.name]
            yield _BLANK
            yield from _workload(text.plain(asked), own, families, results.skips)


def _workload(
    title: str, rows: Sequence[MetricSummary], judged: Sequence[Group], skips: Sequence[Skip]
) -> Iterator[Block]:
    if all(group.absent for group in judged):
        yield Words(words=f"{title}: not measured, {_why(judged, skips)}", style="yellow")
        return
    yield Words(words=title, style="bold")
    for group in judged:
        own = [row for row in rows if row.condition is group.condition]
        yield from _condition(group.condition, own, group)


def _why(judged: Sequence[Group], skips: Sequence[Skip]) -> str:
    for skip in skips:
        if skip.condition is None and any(_is_of(skip, group) for group in judged):
            return text.plain(skip.reason)
    codes = dict.fromkeys(group.absent for group in judged if group.absent)
    return "; ".join(text.reason(code) for code in codes)


def _is_of(skip: Skip, group: Group) -> bool:
    return (skip.subject, skip.workload) == (group.record.subject.name, group.workload)


# --- rows ----------------------------------------------------------------------------------


def _condition(
    condition: Condition, rows: Sequence[MetricSummary], group: Group | None
) -> Iterator[Block]:
    """Yield the rows of a condition; what holds for all of it is told once, below them."""
    flags = group.flags if group else _shared(row.flags for row in rows)
    missing = dict(_shared(row.missing.items() for row in rows if row.n))
    excluded: Mapping[str, int] = {}
    if group:
        excluded = group.excluded
        missing = {c: n for c, n in missing.items() if c not in excluded} | dict(group.missing)
    yield from (_BLANK, Head(name=condition))
    for row in rows:
        yield _row(row, flags, {*missing, *excluded})
    notes = _present(
        text.listed(flag for flag in flags if not flag.startswith("excluded:")),
        f"excluded: {text.counted(excluded)}" if excluded else "",
        _without_value(missing),
    )
    if group:
        yield _endings(group)
    for note in notes:
        words = f"{_ALL}{note}"
        yield Words(words=words, indent=ROW_INDENT, hang=len(_ALL), style="yellow")


def _endings(group: Group) -> Row:
    """Say why the requests of a condition finished."""
    return Row(
        metric="finish reasons",
        vantage="engine",
        n=len(group.judged),
        words=text.counted(group.finish_reasons) or _EMPTY,
    )


def _shared(told: Iterable[Iterable[T]]) -> set[T]:
    """Return what several rows have in common; a single row keeps what is its own."""
    each = [set(one) for one in told]
    return set.intersection(*each) if len(each) > 1 else set()


def _row(row: MetricSummary, told_flags: Collection[str], told_reasons: Collection[str]) -> Row:
    flags = text.listed(set(row.flags) - set(told_flags))
    missing = {code: n for code, n in row.missing.items() if code not in told_reasons}
    numbers: list[str] = []
    words = ""
    if row.median is None or row.min is None or row.max is None:
        undefined = row.undefined or "not_measured"
        words = f"no value: {text.reason(undefined)}"
        missing = {} if row.missing.keys() <= {undefined} else missing
    else:
        numbers = [text.value(number, row.unit) for number in (row.median, row.min, row.max)]
    note = _NOTES.get(row.metric, "") if numbers else ""
    return Row(
        metric=row.metric,
        vantage=text.plain(str(row.vantage)),
        n=row.n,
        numbers=numbers,
        words=words,
        notes=_present(note, flags, _without_value(missing)),
    )


def _without_value(missing: Mapping[str, int]) -> str:
    return f"rounds without a value: {text.counted(missing)}" if missing else ""


def _present(*notes: str) -> list[str]:
    return [note for note in notes if note]


# --- notes below ---------------------------------------------------------------------------


def _failures(results: Results) -> Iterator[Words]:
    told = [
        (launch.subject, launch.id, launch.failure) for launch in results.launches if launch.failure
    ]
    told += [
        (sample.subject, sample.request_id, sample.failure)
        for sample in results.samples
        if sample.failure
    ]
    alike = Counter((subject, failure.kind, failure.message) for subject, _, failure in told)
    for subject, name, failure in told:
        if number := alike.pop((subject, failure.kind, failure.message), 0):
            more = f" (and {number - 1} more)" if number > 1 else ""
            words = f"{name} failed: {failure.kind}: {failure.message}{more}"
            yield Words(words=text.plain(words), style="red")


def _excluded(judged: Iterable[Group]) -> Iterator[Words]:
    """Say of each reason, once per workload, what the counts were."""
    told: dict[tuple[str, str, str], Sample] = {}
    for group in judged:
        for sample, verdict in group.judged:
            if verdict.excluded and not sample.failure:
                told.setdefault(
                    (group.record.subject.name, group.workload, verdict.excluded), sample
                )
    for (_, _, code), sample in told.items():
        words = f"{sample.request_id} excluded: {text.reason(code)}: {text.counts(sample)}"
        yield Words(words=text.plain(words), style="yellow")


def _skips(skips: Iterable[Skip]) -> Iterator[Words]:
    """Say why a condition was left out; a whole workload says so in the place of its rows."""
    for skip in skips:
        if skip.condition is not None:
            words = f"{skip.subject}/{skip.workload}/{skip.condition} skipped: {skip.reason}"
            yield Words(words=text.plain(words), style="yellow")


def _legend(rows: Iterable[MetricSummary], judged: Iterable[Group]) -> Iterator[Words]:
    shown = {code for row in rows for code in (*row.flags, *(row.missing if row.n else ()))}
    for group in judged:
        shown |= {*group.flags, *group.excluded, *group.missing}
    meanings = [(code, text.meaning(code)) for code in sorted(shown)]
    told = [(code, meaning) for code, meaning in meanings if meaning]
    if told:
        yield from (_BLANK, Words(words="what the flags say:", style="dim"))
    for code, meaning in told:
        yield Words(words=f"{text.plain(code)}: {meaning}", indent=2, style="dim")
