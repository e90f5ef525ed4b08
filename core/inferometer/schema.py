"""attrs classes to JSON Schema (draft 2020-12).

The classes are the one source of truth; the written schemas are compared with them by a test.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from inferometer import journal, results, suite, summary
from inferometer.codec import from_json, to_json
from inferometer.fields import about_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"

SCHEMAS: Mapping[str, tuple[str, tuple[type[Any], ...]]] = {
    "suite": (suite.SUITE_SCHEMA, (suite.Suite,)),
    "subjects": (suite.SUBJECTS_SCHEMA, (suite.Subjects,)),
    "results": (results.SCHEMA, (results.Results,)),
    "summary": (summary.SCHEMA, (summary.Summary,)),
    "journal": (
        journal.SCHEMA,
        (
            journal.Opened,
            journal.Launched,
            journal.Ready,
            journal.Sampled,
            journal.Skipped,
            journal.Ended,
        ),
    ),
}
"""Format names, with the classes that a file (or, for the journal, a line) may hold."""

_SCALARS: Mapping[Any, Mapping[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    Path: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
}

_STRICT = {"suite", "subjects"}


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a format."""
    identifier, classes = SCHEMAS[name]
    builder = _Builder(closed=name in _STRICT)
    if name == "journal":
        body: dict[str, Any] = {"oneOf": [_envelope(builder, kind) for kind in classes]}
    else:
        body = builder.reference(classes[0])
    return {
        "$schema": DRAFT,
        "$id": identifier,
        "title": identifier,
        **body,
        "$defs": builder.definitions,
    }


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema into a folder and return the files."""
    written = []
    for name, (identifier, _) in SCHEMAS.items():
        path = folder / file_name(name, identifier)
        path.write_bytes(to_json(json_schema(name), pretty=True) + b"\n")
        written.append(path)
    return written


def file_name(name: str, identifier: str) -> str:
    """Return the file that holds a format's schema: its version is in the name."""
    return f"{name}.v{identifier.rpartition('/')[2]}.schema.json"


def _envelope(builder: _Builder, kind: type[Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"const": kind.__name__}, "body": builder.reference(kind)},
        "required": ["kind", "body"],
    }


class _Builder:
    """Collects one definition per class."""

    def __init__(self, *, closed: bool) -> None:
        self.definitions: dict[str, Any] = {}
        self._kinds: dict[str, type[Any]] = {}
        self._closed = closed

    def reference(self, kind: type[Any]) -> dict[str, Any]:
        name = kind.__name__
        assert self._kinds.setdefault(name, kind) is kind, f"two classes are named {name}"
        if name not in self.definitions:
            self.definitions[name] = {}  # a class that holds itself must not recurse
            self.definitions[name] = self._object(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, kind: type[Any]) -> dict[str, Any]:
        attrs.resolve_types(kind)
        fields = attrs.fields(kind)
        definition: dict[str, Any] = {
            "type": "object",
            "description": (kind.__doc__ or "").strip().partition("\n")[0],
            "properties": {field.name: self._property(field) for field in fields},
            "required": [field.name for field in fields if field.default is attrs.NOTHING],
        }
        return {**definition, "additionalProperties": False} if self._closed else definition

    def _property(self, field: attrs.Attribute[Any]) -> dict[str, Any]:
        about = about_of(field)
        described = {"description": about.doc, "x-role": str(about.role)} if about else {}
        demanded = getattr(field.validator, "keywords", {})
        return {**self._type(field.type), **described, **_default(field), **demanded}

    def _type(self, kind: Any) -> dict[str, Any]:
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if attrs.has(kind) and isinstance(kind, type):
            return self.reference(kind)
        return self._generic(typing.get_origin(kind), typing.get_args(kind))

    def _generic(self, origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if origin in (types.UnionType, typing.Union):
            return {"anyOf": [self._type(argument) for argument in arguments]}
        if origin in (tuple, list):
            return {"type": "array", "items": self._type(arguments[0])}
        assert isinstance(origin, type), origin
        assert issubclass(origin, Mapping), origin
        return {"type": "object", "additionalProperties": self._type(arguments[1])}


def _default(field: attrs.Attribute[Any]) -> dict[str, Any]:
    made_anew = callable(getattr(field.default, "factory", None))
    if field.default is attrs.NOTHING or made_anew:
        return {}
    return {"default": from_json(to_json(field.default))}
