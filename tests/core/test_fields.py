"""What a recorded field says about itself, and that none forgets to."""

from __future__ import annotations

import attrs
import pytest

from inferometer import journal, results, suite, wire
from inferometer.fields import About, Role, about, about_of
from inferometer.schema import SCHEMAS

# A summary is made anew whenever it is asked for: nothing in it decides a comparison.
KEPT = [kind for name, (_, kinds) in SCHEMAS.items() if name != "summary" for kind in kinds]


def recorded_classes() -> list[type]:
    """Return every class that a file of ours can hold."""
    found: dict[type, None] = {}
    todo = list(KEPT)
    while todo:
        kind = todo.pop()
        if kind not in found:
            found[kind] = None
            attrs.resolve_types(kind)
            todo += [part for field in attrs.fields(kind) for part in classes_in(field.type)]
    return list(found)


def classes_in(annotation: object) -> list[type]:
    if isinstance(annotation, type) and attrs.has(annotation):
        return [annotation]
    return [part for inner in getattr(annotation, "__args__", ()) for part in classes_in(inner)]


RECORDED = recorded_classes()
# The wire's classes live in one pair of processes; these two are kept in plans and journals too.
ON_THE_WIRE = {wire.Cell, wire.Loaded}
SPEAKING = sorted(set(RECORDED) - ON_THE_WIRE, key=lambda kind: kind.__name__)
every_class = pytest.mark.parametrize("kind", SPEAKING, ids=lambda kind: kind.__name__)


def doc_of(field: attrs.Attribute) -> str:
    found = about_of(field)
    return found.doc if found else ""


def test_the_recorded_classes_are_found_through_tuples_mappings_and_unions():
    assert {results.Results, results.Arrivals, suite.Workload, journal.Opened} <= set(RECORDED)


@every_class
def test_every_recorded_field_has_a_role(kind):
    silent = [field.name for field in attrs.fields(kind) if about_of(field) is None]
    assert not silent, "say about(Role..., '...'): a comparison must know what they mean"


@every_class
def test_every_recorded_field_has_a_sentence(kind):
    docs = {field.name: doc_of(field) for field in attrs.fields(kind)}
    assert [name for name, doc in docs.items() if not doc.endswith((".", "..."))] == []


@every_class
def test_a_field_that_has_a_unit_ends_in_the_one_we_use(kind):
    foreign = ("_ms", "_us", "_seconds", "_secs", "_kb", "_mb", "_gb", "_kib", "_mib", "_gib")
    assert [field.name for field in attrs.fields(kind) if field.name.endswith(foreign)] == []


def test_a_field_gives_back_what_it_was_told():
    @attrs.frozen
    class Recorded:
        n: int = attrs.field(metadata=about(Role.MEASURED, "How many."))

    assert about_of(attrs.fields(Recorded).n) == About(Role.MEASURED, "How many.")


def test_a_field_that_says_nothing_gives_none():
    @attrs.frozen
    class Silent:
        n: int

    assert about_of(attrs.fields(Silent).n) is None


def test_foreign_metadata_is_left_alone():
    @attrs.frozen
    class Foreign:
        n: int = attrs.field(metadata={"doc": "somebody else's"})

    assert about_of(attrs.fields(Foreign).n) is None


def test_roles_keep_their_names_for_ever():
    assert [str(role) for role in Role] == [
        "workload",
        "subject",
        "environment",
        "provenance",
        "measured",
    ]
