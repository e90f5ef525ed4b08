"""Suite and subjects to ordered launches, cells and skips. Pure: it starts and reads nothing.

Every round launches every subject once, in an order shuffled from a recorded seed, and every
launch measures its cells in a shuffled order: what drifts (heat, a busy machine) then spreads
over subjects instead of sticking to one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from attrs import field, frozen, validators

from inferometer.errors import SuiteError
from inferometer.fields import Role, about
from inferometer.prompts import PromptSource
from inferometer.results import Skip, SubjectRecord
from inferometer.suite import MAX_ROUNDS, Condition, Suite, Workload
from inferometer.wire import Cell

T = TypeVar("T")

CONTEXT_OPTION = "context_tokens"
"""An adapter option of this name is the window the user asks for."""


@frozen(kw_only=True)
class PlannedLaunch:
    """One worker process to come."""

    id: str = field(
        # It names a log file: a journal from elsewhere must not lead out of the run's folder.
        validator=validators.matches_re(r"r[0-9]+-[A-Za-z0-9][A-Za-z0-9._+-]*"),
        metadata=about(Role.PROVENANCE, "Name of the launch in the run."),
    )
    round: int = field(metadata=about(Role.PROVENANCE, "The round, counted from 1."))
    subject: str = field(metadata=about(Role.PROVENANCE, "Name of the subject."))
    context_tokens: int = field(
        metadata=about(Role.WORKLOAD, "Window that its longest request needs.")
    )
    cells: tuple[Cell, ...] = field(metadata=about(Role.WORKLOAD, "What it measures, in order."))
    first_request: Workload | None = field(
        default=None, metadata=about(Role.WORKLOAD, "Shape of the request that ends `load`.")
    )

    @property
    def requests(self) -> int:
        """Return how many requests it sends."""
        cells = sum(_warmups(cell) + len(cell.conditions) for cell in self.cells)
        return cells + (self.first_request is not None)


@frozen(kw_only=True)
class Plan:
    """Everything a run will do, before it does any of it."""

    launches: tuple[PlannedLaunch, ...] = field(
        metadata=about(Role.WORKLOAD, "All launches, in order.")
    )
    skips: tuple[Skip, ...] = field(
        metadata=about(Role.MEASURED, "What will not be measured, and why.")
    )
    rounds: int = field(
        validator=validators.and_(validators.ge(1), validators.le(MAX_ROUNDS)),
        metadata=about(Role.WORKLOAD, "How often every cell is measured."),
    )
    order_seed: int = field(metadata=about(Role.PROVENANCE, "Seed that shuffled the order."))

    @property
    def requests(self) -> int:
        """Return how many requests the whole run sends."""
        return sum(launch.requests for launch in self.launches)


def make_plan(
    suite: Suite, subjects: Sequence[SubjectRecord], *, rounds: int, order_seed: int
) -> Plan:
    """Return the ordered launches of a run, and what it skips with the reasons.

    Raises:
        SuiteError: so many rounds can only be a mistake.
    """
    if not 1 <= rounds <= MAX_ROUNDS:
        raise SuiteError(f"{rounds} rounds: ask for 1 to {MAX_ROUNDS}")
    skips = tuple(skip for record in subjects for skip in _skips(suite, record))
    launches = [
        launch
        for round_number in range(1, rounds + 1)
        for launch in _round(suite, subjects, skips, round_number, order_seed)
    ]
    return Plan(launches=tuple(launches), skips=skips, rounds=rounds, order_seed=order_seed)


def window_of(record: SubjectRecord) -> tuple[int | None, str]:
    """Return the tokens a request may fill, and where that number is from."""
    trained = record.artifact.context_tokens
    asked = record.subject.options.get(CONTEXT_OPTION)
    if type(asked) is int and (trained is None or asked < trained):
        return asked, f"option {CONTEXT_OPTION}"
    return trained, "the model"


def _skips(suite: Suite, record: SubjectRecord) -> Iterable[Skip]:
    for workload in suite.workloads:
        verdict = _why_not(workload, record)
        if verdict:
            code, reason = verdict
            yield Skip(
                subject=record.subject.name, workload=workload.name, code=code, reason=reason
            )
        else:
            yield from _unmeasured(suite, record, workload)


def _unmeasured(suite: Suite, record: SubjectRecord, workload: Workload) -> Iterable[Skip]:
    """Yield the conditions of a fitting workload that it cannot have."""
    if workload.prompt is PromptSource.IDS and Condition.CONTROL in suite.conditions:
        yield Skip(
            subject=record.subject.name,
            workload=workload.name,
            condition=Condition.CONTROL,
            code="control_needs_another_prompt",
            reason="the prompt is given as ids, so there is no unseen one of the same kind",
        )


def _why_not(workload: Workload, record: SubjectRecord) -> tuple[str, str] | None:
    window, source = window_of(record)
    if window is not None and workload.total_tokens > window:
        return "context_exceeded", (
            f"{workload.length} prompt + {workload.output_tokens} output tokens do not fit the "
            f"context of {window} tokens (from {source})"
        )
    if not record.capabilities.token_ids_in:
        return "needs_token_ids", (
            f"adapter {record.subject.engine} takes no token ids, so a prompt of exactly "
            f"{workload.length} tokens cannot be sent"
        )
    return None


def _round(
    suite: Suite,
    subjects: Sequence[SubjectRecord],
    skips: Sequence[Skip],
    number: int,
    order_seed: int,
) -> list[PlannedLaunch]:
    skipped = {(skip.subject, skip.workload) for skip in skips if skip.condition is None}
    launches = []
    for record in subjects:
        name = record.subject.name
        fitting = [w for w in suite.workloads if (name, w.name) not in skipped]
        if fitting:
            launches.append(_launch(suite, name, fitting, number, order_seed))
    return shuffled(launches, f"{order_seed}/{number}")


def _launch(
    suite: Suite, subject: str, workloads: Sequence[Workload], number: int, order_seed: int
) -> PlannedLaunch:
    cells = [Cell(workload=w, conditions=_conditions(suite, w)) for w in workloads]
    cells = [cell for cell in cells if cell.conditions]
    shortest = min(workloads, key=lambda workload: workload.length)
    return PlannedLaunch(
        id=f"r{number}-{subject}",
        round=number,
        subject=subject,
        context_tokens=max(workload.total_tokens for workload in workloads),
        cells=tuple(shuffled(cells, f"{order_seed}/{number}/{subject}")),
        first_request=shortest if Condition.LOAD in suite.conditions else None,
    )


def _conditions(suite: Suite, workload: Workload) -> tuple[Condition, ...]:
    given = workload.prompt is PromptSource.IDS
    apart = {Condition.LOAD, Condition.CONTROL} if given else {Condition.LOAD}
    return tuple(condition for condition in suite.conditions if condition not in apart)


def shuffled(items: Sequence[T], seed: str) -> list[T]:
    """Return the items in an order that the seed decides, on every machine alike."""
    order = list(items)
    random.Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
    return order


def _warmups(cell: Cell) -> int:
    primes = Condition.REUSE in cell.conditions and Condition.COLD not in cell.conditions
    return cell.workload.warmup + primes
