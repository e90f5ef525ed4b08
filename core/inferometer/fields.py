"""What a recorded field means: its role in a comparison, and one sentence about it.

The sentence lives beside the field so that the JSON Schemas and the reference pages are made
from it; the role decides what a difference in the field does to a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

_KEY = "inferometer"


class Role(StrEnum):
    """Why a field is recorded."""

    WORKLOAD = "workload"
    """What was asked: two results that differ here did different work."""
    SUBJECT = "subject"
    """What was asked of: engine, model, options."""
    ENVIRONMENT = "environment"
    """Where it ran."""
    PROVENANCE = "provenance"
    """When, by which tool, under which name; never a reason against comparing."""
    MEASURED = "measured"
    """What came out."""


@attrs.frozen
class About:
    """A field's role and its sentence."""

    role: Role
    doc: str


def about(role: Role, doc: str) -> Mapping[str, About]:
    """Return attrs metadata for a recorded field."""
    return {_KEY: About(role, doc)}


def about_of(attribute: attrs.Attribute[Any]) -> About | None:
    """Return what a field says about itself, or None."""
    found: About | None = attribute.metadata.get(_KEY)
    return found
