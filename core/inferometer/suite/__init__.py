"""Suites and subjects: what is asked, and of whom. Read strictly; a typo is an error.

A suite is portable: it names no machine's path, and its digest proves that two machines ran
the identical suite. Subjects belong to a machine: they name model files and interpreters.
"""

from __future__ import annotations

from inferometer.suite.checks import MAX_ROUNDS
from inferometer.suite.files import builtin_suites, parse, read_subjects, read_suite
from inferometer.suite.values import (
    SUBJECTS_SCHEMA,
    SUITE_SCHEMA,
    Condition,
    Subject,
    Subjects,
    Suite,
    Workload,
)

__all__ = [
    "MAX_ROUNDS",
    "SUBJECTS_SCHEMA",
    "SUITE_SCHEMA",
    "Condition",
    "Subject",
    "Subjects",
    "Suite",
    "Workload",
    "builtin_suites",
    "parse",
    "read_subjects",
    "read_suite",
]
