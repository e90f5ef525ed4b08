"""Ask, before anything runs, whether every subject can be measured: adapter, options, model.

A subject with an interpreter of its own is described by that interpreter, so a plan can be made
for engines that could not be installed beside this one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from inferometer import plugins
from inferometer.artifact import inspect_model
from inferometer.describe import describe
from inferometer.engine import LogEvidence
from inferometer.errors import PluginError, SuiteError
from inferometer.launcher import Limits, Worker, WorkerEnded
from inferometer.results import SubjectRecord
from inferometer.suite import Subject
from inferometer.wire import Describe, Described, Description

_DESCRIBE_LIMITS = Limits(idle_s=120.0, total_s=120.0)


@frozen(kw_only=True)
class Survey:
    """Subjects that can be measured, and how their engines' logs are read."""

    records: tuple[SubjectRecord, ...]
    evidence: Mapping[str, Sequence[LogEvidence]]


def survey(subjects: Sequence[Subject]) -> Survey:
    """Return the subjects with what their adapters and model files say.

    Raises:
        PluginError: an adapter is missing or broken, or its engine is not usable here.
        SuiteError: an option is wrong.
        ModelError: a model is missing, damaged or not a model.
    """
    records, evidence = [], {}
    for subject in subjects:
        described = _checked(subject, _described(subject))
        evidence[subject.name] = described.log_evidence
        records.append(
            SubjectRecord(
                subject=subject,
                placement=described.placement,
                capabilities=described.capabilities,
                artifact=inspect_model(subject.model),
                adapter_distribution=described.distribution,
            )
        )
    return Survey(records=tuple(records), evidence=evidence)


def describe_interpreter(python: str | None, order: Describe) -> Described:
    """Return what an interpreter's adapters say about themselves; None is this interpreter.

    Raises:
        PluginError: the interpreter does not start, or has no or another Inferometer.
    """
    if python is None:
        return describe(plugins.discover(), order)
    handle, log = tempfile.mkstemp(prefix="inferometer-", suffix=".log")
    os.close(handle)
    try:
        return _ask(python, order, Path(log))
    finally:
        Path(log).unlink(missing_ok=True)


def _ask(python: str, order: Describe, log: Path) -> Described:
    try:
        with Worker(python, log, limits=_DESCRIBE_LIMITS) as worker:
            worker.hello()
            worker.order(order)
            answer = worker.receive()
            worker.go_on()
            worker.finish()
    except WorkerEnded as ended:
        last = "".join(f"\n  {line}" for line in ended.failure.log_tail[-5:])
        raise PluginError(f"{python}: {ended.failure.message}{last}") from None
    if not isinstance(answer, Described):
        raise PluginError(f"{python}: answered with {type(answer).__name__}")
    return answer


def _described(subject: Subject) -> Described:
    options: Mapping[str, Any] = subject.options
    return describe_interpreter(subject.python, Describe(adapter=subject.engine, options=options))


def _checked(subject: Subject, described: Described) -> Description:
    if described.missing:
        raise PluginError(f"subject {subject.name}: {described.missing}")
    if described.options_error:
        lines = described.options_error.splitlines()
        raise SuiteError("\n".join(f"subject {subject.name}: option {line}" for line in lines))
    if len(described.adapters) != 1:
        raise PluginError(f"subject {subject.name}: {subject.python} described no adapter")
    description = described.adapters[0]
    probe = description.probe
    if not probe.usable:
        install = f"\n  to install it: {probe.install}" if probe.install else ""
        raise PluginError(
            f"subject {subject.name}: engine {subject.engine} is not usable here: "
            f"{probe.reason}{install}"
        )
    return description
