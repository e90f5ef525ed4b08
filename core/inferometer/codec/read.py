"""Parsed JSON or TOML to values: cattrs reads, behind hooks that let no type pass for another."""

from __future__ import annotations

import typing
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import countOf
from types import GenericAlias, UnionType
from typing import Any, TypeVar, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter
from cattrs.cols import list_structure_factory, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn

from inferometer.codec.demands import with_refusals
from inferometer.codec.exact import SIMPLE, Hook, choice, exactly, refusal, unreadable
from inferometer.codec.mistakes import MISTAKES, StructureError, Unlike, one_of, problems

T = TypeVar("T")


def structure(data: Any, into: type[T], *, strict: bool = True) -> T:
    """Return ``data`` (parsed JSON or TOML) as a value of class ``into``.

    Raises:
        StructureError: with one ``path: problem`` line per mistake found.
    """
    try:
        return _converter(strict).structure(data, into)
    except MISTAKES as error:
        raise StructureError(problems(error)) from None


@cache
def _converter(strict: bool) -> Converter:
    converter = Converter(forbid_extra_keys=strict, structure_fallback_factory=unreadable)
    for kind, hook in SIMPLE.items():
        converter.register_structure_hook(kind, hook)
    for takes, factory in _FACTORIES:  # cattrs asks the last one first
        converter.register_structure_hook_factory(takes, factory)
    return converter


def _union(kind: Any, converter: Converter) -> Hook:
    # An integer is an integer before it is a number.
    kinds = sorted(get_args(kind), key=lambda arm: arm is float)
    arms = [(arm, converter.get_structure_hook(arm)) for arm in kinds if arm is not type(None)]
    optional = len(arms) < len(kinds)

    def read(value: Any, _: Any) -> Any:
        if value is None and optional:
            return None
        nouns, findings = [], []
        for arm, hook in arms:
            try:
                return hook(value, arm)
            except Unlike as finding:
                nouns.append(finding.noun)
            except MISTAKES as finding:
                findings.append(finding)
        raise findings[0] if findings else Unlike(one_of(list(dict.fromkeys(nouns))), value)

    return read


def _array(kind: Any, converter: Converter) -> Hook:
    item = (get_args(kind) or (Any,))[0]
    make = tuple if get_origin(kind) is tuple else list
    every: Any = GenericAlias(list, item)
    each = list_structure_factory(every, converter)

    def read(values: Any, _: Any) -> Any:
        return make(values if item is int and _are_integers(values) else each(values, kind))

    return exactly("an array", list, tuple, read=read)


def _are_integers(values: Sequence[Any]) -> bool:
    # Samples hold hundreds of thousands of these: passes in C instead of a call for each.
    try:
        array("q", values)
    except (TypeError, OverflowError):
        return False
    return countOf(map(type, values), int) == len(values)


def _mapping(kind: Any, converter: Converter) -> Hook:
    item = (get_args(kind) or (Any, Any))[1]
    table: Any = GenericAlias(dict, (Any, item))
    return exactly("a table", dict, read=mapping_structure_factory(table, converter))


def _table(kind: Any, converter: Converter) -> Hook:
    try:
        attrs.resolve_types(get_origin(kind) or kind)
    except NameError as error:
        return refusal(f"{kind.__name__} names a type that is not there: {error}")
    fill = make_dict_structure_fn(kind, converter, _cattrs_use_alias=True)

    def read(table: Any, _: Any) -> Any:
        try:
            return fill(table, kind)
        except ClassValidationError as error:
            raise with_refusals(error, table, converter) from None

    return exactly("a table", dict, read=read)


def _is_class(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and origin not in (Any, typing.Annotated)


def _is_array(kind: Any) -> bool:
    several = get_origin(kind) is tuple and get_args(kind)[1:] == (...,)
    return several or _of(list, Sequence)(kind)


def _of(*kinds: Any) -> Callable[[Any], bool]:
    return lambda kind: (get_origin(kind) or kind) in kinds


_FACTORIES: Sequence[tuple[Callable[[Any], bool], Any]] = (
    (_is_class, unreadable),
    (_is_array, _array),
    (_of(dict, Mapping), _mapping),
    (_of(typing.Union, UnionType), _union),
    (_of(typing.Literal), choice),
    (attrs.has, _table),
)
