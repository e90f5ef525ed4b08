"""What a class demands of its values: it stops at the first, but each refusal is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs
from cattrs import (
    AttributeValidationNote,
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
)

from inferometer.codec.mistakes import MISTAKES, Wrong, reason


def with_refusals(
    error: ClassValidationError, table: Mapping[str, Any], converter: Converter
) -> ClassValidationError:
    """Return an error with what the validators of its class say of the values of a table."""
    found, others = error.group_exceptions()
    values = dict(_values(error.cl, table, {note.name for _, note in found}, converter))
    refused = list(_refused(error.cl, values))
    stopped = not found and not isinstance(others[0], ForbiddenExtraKeysError)
    return error.derive(refused if stopped and refused else [*error.exceptions, *refused])


def _values(
    kind: type, table: Mapping[str, Any], unread: set[str], converter: Converter
) -> Iterator[tuple[str, Any]]:
    for field in attrs.fields(kind):
        if field.alias not in table:
            if field.default is not attrs.NOTHING and not hasattr(field.default, "factory"):
                yield field.name, field.default
        elif field.init and field.name not in unread:
            with suppress(*MISTAKES):  # what a generic class leaves open
                yield field.name, converter.structure(table[field.alias], field.type)


def _refused(kind: type, values: Mapping[str, Any]) -> Iterator[Wrong]:
    blank: Any = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(blank, name, value)
    for field in attrs.fields(kind):
        if field.validator and field.name in values:
            yield from _refusal(blank, field, values[field.name])


def _refusal(blank: Any, field: Any, value: Any) -> Iterator[Wrong]:
    try:
        field.validator(blank, field, value)
    except AttributeError:
        return  # it looks at a value that is missing or wrong itself
    except Exception as error:  # noqa: BLE001 - a class may raise what it likes
        wrong = Wrong(reason(error).removeprefix(f"'{field.name}' "))
        wrong.add_note(AttributeValidationNote("", field.name, field.type))
        yield wrong
