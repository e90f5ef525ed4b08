"""The samples of one subject, workload and condition, judged; and why some are not there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from inferometer.judge import Verdict, judge
from inferometer.results import Launch, Results, Sample, SubjectRecord
from inferometer.suite import Condition

Judged = tuple[Sample, Verdict]

BUSY_PRESSURE_PERCENT = 20.0
"""Share of the ten seconds before a launch in which someone waited for a processor."""


@frozen(kw_only=True)
class Group:
    """The samples of one subject, workload and condition, judged."""

    record: SubjectRecord
    workload: str
    condition: Condition
    judged: tuple[Judged, ...]
    absences: Mapping[int, str]
    """Why there is no sample of a round, by round."""
    shared_flags: frozenset[str] = frozenset()
    """What a reader should know about the subject as a whole."""

    @property
    def absent(self) -> str | None:
        """Return why there is no sample at all, if there is none."""
        return None if self.judged else commonest(self.absences.values())

    @property
    def counted(self) -> list[Judged]:
        """Return the samples that numbers are made of."""
        return [(sample, verdict) for sample, verdict in self.judged if not verdict.excluded]

    @property
    def excluded(self) -> Mapping[str, int]:
        """Return how many samples were excluded, by reason."""
        return Counter(verdict.excluded for _, verdict in self.judged if verdict.excluded)

    @property
    def missing(self) -> Mapping[str, int]:
        """Return how many rounds have no sample, by reason."""
        return Counter(self.absences.values())

    @property
    def flags(self) -> set[str]:
        """Return what a reader should know about the samples that count, and about the rest."""
        return {*self.shared_flags, *verdict_flags(verdict for _, verdict in self.judged)}

    @property
    def finish_reasons(self) -> Mapping[str, int]:
        """Return how often each finish reason came, over all samples."""
        return Counter(str(s.ending.reason) for s, _ in self.judged if s.ending)


def groups(results: Results) -> list[Group]:
    """Return the judged samples of a run by subject, workload and condition, in order."""
    return [group for record in results.subjects for group in _of_subject(results, record)]


def _of_subject(results: Results, record: SubjectRecord) -> Iterator[Group]:
    found: dict[tuple[str, Condition], list[Judged]] = defaultdict(list)
    for sample, verdict in judged_samples(results, record):
        found[sample.workload, sample.condition].append((sample, verdict))
    shared = subject_flags(results, record)
    for workload in results.suite.workloads:
        for condition in _request_conditions(results):
            judged = tuple(found[workload.name, condition])
            yield Group(
                record=record,
                workload=workload.name,
                condition=condition,
                judged=judged,
                absences={
                    number: _absence(results, record, number, workload.name, condition)
                    for number in round_numbers(results)
                    if number not in {sample.round for sample, _ in judged}
                },
                shared_flags=shared,
            )


def judged_samples(results: Results, record: SubjectRecord) -> Iterator[Judged]:
    """Yield the samples of a subject, warm-ups left out, each with its verdict."""
    overhead = {launch.id: launch.harness_overhead_ns for launch in results.launches}
    for sample in results.samples:
        if sample.subject == record.subject.name and not sample.warmup:
            yield sample, judge(sample, overhead_ns=overhead.get(sample.launch))


def _request_conditions(results: Results) -> list[Condition]:
    return [c for c in Condition if c in results.suite.conditions and c is not Condition.LOAD]


def round_numbers(results: Results) -> range:
    """Return the numbers of the rounds asked for."""
    return range(1, results.rounds + 1)


def launches_of(results: Results, record: SubjectRecord) -> list[Launch]:
    """Return the launches of a subject, in the order they were begun."""
    return [launch for launch in results.launches if launch.subject == record.subject.name]


def verdict_flags(verdicts: Iterable[Verdict]) -> set[str]:
    """Return the flags of samples that count, and ``excluded:reason`` for the others."""
    flags: set[str] = set()
    for verdict in verdicts:
        flags |= {f"excluded:{verdict.excluded}"} if verdict.excluded else {*verdict.flags}
    return flags


def subject_flags(results: Results, record: SubjectRecord) -> frozenset[str]:
    """Return what is to know of everything measured of a subject."""
    known = [launch.identity for launch in launches_of(results, record) if launch.identity]
    flags = set()
    if any(identity != known[0] for identity in known):
        flags.add("identity_differs")
    if any(_was_busy(launch) for launch in launches_of(results, record)):
        flags.add("machine_busy")
    return frozenset(flags)


def _was_busy(launch: Launch) -> bool:
    pressure = launch.host_load and launch.host_load.cpu_pressure_avg10_percent
    return (pressure or 0.0) >= BUSY_PRESSURE_PERCENT


# --- why something was not measured --------------------------------------------------------


def _absence(
    results: Results, record: SubjectRecord, number: int, workload: str, condition: Condition
) -> str:
    """Return why a round has no sample: planned, a launch that failed, found out, or cut off."""
    skips = {
        skip.condition: f"skipped: {skip.code}"
        for skip in results.skips
        if (skip.subject, skip.workload) == (record.subject.name, workload)
    }
    failed = _failed_launch(results, record, number)
    return skips.get(None) or failed or skips.get(condition) or "not_measured"


def _failed_launch(results: Results, record: SubjectRecord, number: int) -> str | None:
    launches = [launch for launch in launches_of(results, record) if launch.round == number]
    failures = [launch.failure for launch in launches if launch.failure]
    return f"failed: {failures[-1].kind}" if failures else None


def absence_of_load(results: Results, record: SubjectRecord) -> str:
    """Return why a round has no launch: everything it would measure is skipped, or it was cut."""
    planned = {
        skip.workload: f"skipped: {skip.code}"
        for skip in results.skips
        if skip.subject == record.subject.name and skip.condition is None
    }
    if {workload.name for workload in results.suite.workloads} > planned.keys():
        return "not_measured"
    return commonest(planned.values()) or "not_measured"


def commonest(reasons: Iterable[str]) -> str | None:
    """Return the reason given most often, the first of equals, or None of none."""
    return next((reason for reason, _ in Counter(reasons).most_common(1)), None)
