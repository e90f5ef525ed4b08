"""Values to bytes and back: exact types, every mistake, each with its path."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import pytest
from attrs import Factory, field, frozen, make_class, validators
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.codec import StructureError, digest, from_json, structure, to_json

T = TypeVar("T")
LARGEST, SMALLEST = 2**64 - 1, -(2**63)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@frozen(kw_only=True)
class Leaf:
    n: int = 0
    x: float = 0.0
    s: str = ""
    b: bool = False
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    maybe_n: int | None = None
    maybe_x: float | None = None
    maybe_s: str | None = None
    maybe_b: bool | None = None
    maybe_colour: Colour | None = None
    ids: tuple[int, ...] = ()
    maybe_ids: tuple[int, ...] | None = None
    words: tuple[str, ...] = ()
    path: Path = Path("here")
    counts: Mapping[str, int] = Factory(dict)
    maybe_counts: Mapping[str, int] | None = None
    options: Mapping[str, str | int | float | bool | list[str | int] | None] = Factory(dict)
    raw: Any = None


@frozen(kw_only=True)
class Tree:
    name: str
    leaf: Leaf = Leaf()
    leaves: tuple[Leaf, ...] = ()
    maybe: Leaf | None = None
    below: Tree | None = None


def problems(data: Any, into: Any = Leaf, *, strict: bool = True) -> list[str]:
    with pytest.raises(StructureError) as caught:
        structure(data, into, strict=strict)
    return caught.value.problems


def attempted(data: Any, into: Any) -> tuple[Any, list[str]]:
    try:
        return structure(data, into), []
    except StructureError as error:
        return None, error.problems


# --- types are exact -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "wrong", "expected", "got"),
    [
        ("n", "5", "an integer", "'5'"),
        ("n", True, "an integer", "true"),
        ("n", 1.0, "an integer", "1.0"),
        ("n", None, "an integer", "null"),
        ("n", [1], "an integer", "an array"),
        ("n", {"n": 1}, "an integer", "a table"),
        ("x", "1.5", "a number", "'1.5'"),
        ("x", False, "a number", "false"),
        ("s", 1, "a string", "1"),
        ("s", ["s"], "a string", "an array"),
        ("b", 1, "true or false", "1"),
        ("b", "true", "true or false", "'true'"),
        ("maybe_n", "5", "an integer", "'5'"),
        ("maybe_n", True, "an integer", "true"),
        ("maybe_n", 1.5, "an integer", "1.5"),
        ("maybe_x", True, "a number", "true"),
        ("maybe_s", 1, "a string", "1"),
        ("maybe_b", 0, "true or false", "0"),
        ("ids", 5, "an array", "5"),
        ("ids", "12", "an array", "'12'"),
        ("ids", {"0": 1}, "an array", "a table"),
        ("maybe_ids", "12", "an array", "'12'"),
        ("words", "word", "an array", "'word'"),
        ("words", {"a": 1}, "an array", "a table"),
        ("path", 7, "a path", "7"),
        ("path", "", "a path", "''"),
        ("path", "a\0b", "a path", r"'a\x00b'"),
        ("counts", [1], "a table", "an array"),
        ("counts", None, "a table", "null"),
        ("counts", "a", "a table", "'a'"),
        ("maybe_counts", [], "a table", "an array"),
    ],
)
def test_another_type_is_refused(key, wrong, expected, got):
    assert problems({key: wrong}) == [f"$.{key}: expected {expected}, got {got}"]


def test_lenient_reading_is_as_exact_about_types():
    assert problems({"n": "5"}, strict=False) == ["$.n: expected an integer, got '5'"]


def test_an_integer_is_a_number_too():
    read = structure({"x": 2}, Leaf)
    assert read.x == 2.0
    assert type(read.x) is float


def test_null_is_taken_only_where_the_type_says_so():
    assert structure({"maybe_n": None, "maybe_ids": None, "maybe_colour": None}, Leaf) == Leaf()


def test_a_table_is_not_made_of_anything_else():
    for wrong, got in (([], "an array"), ("x", "'x'"), (None, "null"), (5, "5")):
        assert problems(wrong, Tree) == [f"$: expected a table, got {got}"]


def test_an_optional_table_is_read_exactly():
    assert problems({"name": "t", "maybe": {"n": "z"}}, Tree) == [
        "$.maybe.n: expected an integer, got 'z'"
    ]
    assert problems({"name": "t", "maybe": []}, Tree) == ["$.maybe: expected a table, got an array"]


def test_anything_is_taken_as_it_is_where_the_type_says_so():
    free = {"a": [1, "x", None, {"b": [True]}]}
    assert structure({"raw": free}, Leaf).raw == free


# --- enums and literals --------------------------------------------------------------------


def test_an_enum_is_read_from_its_value():
    assert structure({"colour": "blue", "level": 2}, Leaf) == Leaf(
        colour=Colour.BLUE, level=Level.HIGH
    )


@pytest.mark.parametrize("key", ["colour", "maybe_colour"])
def test_a_value_that_no_enum_has_is_answered_with_those_it_has(key):
    assert problems({key: "green"}) == [f"$.{key}: expected one of red, blue, got 'green'"]


@pytest.mark.parametrize("key", ["colour", "maybe_colour"])
def test_a_close_value_of_an_enum_is_suggested(key):
    assert problems({key: "blu"}) == [
        f"$.{key}: expected one of red, blue, got 'blu'; did you mean 'blue'?"
    ]


@pytest.mark.parametrize("wrong", [1, True, None, ["red"], {"red": 1}])
def test_an_enum_is_not_read_from_another_type(wrong):
    (problem,) = problems({"colour": wrong})
    assert problem.startswith("$.colour: expected one of red, blue, got ")


def test_true_is_not_the_first_member_of_a_numbered_enum():
    assert problems({"level": True}) == ["$.level: expected one of 1, 2, got true"]


class Old(str, Enum):  # noqa: UP042 - as older plugins write it
    A = "a"


class Share(float, Enum):
    HALF = 0.5


class Mixed(Enum):
    WORD = "w"
    ONE = 1


@frozen
class Several:
    old: Old = Old.A
    share: Share | None = None
    mixed: tuple[Mixed, ...] = ()
    one: Literal[Mixed.ONE] | None = None


def test_an_enum_of_any_base_is_read_from_its_value():
    read = structure({"old": "a", "share": 0.5, "mixed": ["w", 1], "one": 1}, Several)
    assert read == Several(Old.A, Share.HALF, (Mixed.WORD, Mixed.ONE), Mixed.ONE)
    assert type(read.old) is Old
    assert problems({"old": "b", "share": "0.5", "mixed": [True]}, Several) == [
        "$.old: expected one of a, got 'b'",
        "$.share: expected one of 0.5, got '0.5'",
        "$.mixed[0]: expected one of w, 1, got true",
    ]


def test_a_literal_takes_its_values_and_no_other():
    @frozen
    class Chosen:
        mode: Literal["fast", "slow"] = "slow"
        size: Literal["auto"] | int = "auto"

    assert structure({"mode": "fast", "size": 8}, Chosen) == Chosen("fast", 8)
    assert problems({"mode": "fas", "size": 1.5}, Chosen) == [
        "$.mode: expected one of fast, slow, got 'fas'; did you mean 'fast'?",
        "$.size: expected one of auto or an integer, got 1.5",
    ]


# --- numbers at the edge -------------------------------------------------------------------


@pytest.mark.parametrize("edge", [LARGEST, SMALLEST])
def test_an_integer_of_64_bits_is_read_and_written(edge):
    assert structure(from_json(to_json(Leaf(n=edge))), Leaf).n == edge


@pytest.mark.parametrize(
    "beyond", [LARGEST + 1, SMALLEST - 1, 10**30, 16**6000], ids=["above", "below", "far", "huge"]
)
def test_an_integer_beyond_64_bits_is_refused_before_it_breaks_a_file(beyond):
    message = "expected an integer of at most 64 bits"
    assert problems({"n": beyond}) == [f"$.n: {message}"]
    assert problems({"ids": [1, beyond]}) == [f"$.ids[1]: {message}"]
    assert problems({"x": beyond}) == [f"$.x: {message}"]
    assert problems({"options": {"o": beyond}}) == [f"$.options.o: {message}"]


def test_an_integer_too_large_to_print_is_still_described():
    assert problems({"s": 16**6000}) == ["$.s: expected a string, got an integer beyond 64 bits"]


def test_json_with_an_integer_beyond_64_bits_is_no_integer():
    (problem,) = problems(from_json('{"n": 123456789012345678901234567890}'))
    assert problem.startswith("$.n: expected an integer, got 1.2")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("key", ["x", "maybe_x"])
def test_a_number_that_json_cannot_hold_is_refused(key, value):
    assert problems({key: value}) == [f"$.{key}: expected a finite number, got {value}"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e400"])
def test_json_holds_no_infinity_and_no_nan(text):
    with pytest.raises(ValueError, match="line 1 column"):
        from_json(text)


# --- arrays of integers have a path of their own, for speed --------------------------------


def test_an_array_of_integers_becomes_a_tuple():
    assert structure({"ids": [3, 1, 2]}, Leaf).ids == (3, 1, 2)
    assert structure({"ids": (3, 1, 2)}, Leaf).ids == (3, 1, 2)
    assert structure({"ids": []}, Leaf).ids == ()


@pytest.mark.parametrize(
    ("wrong", "got"), [("2", "'2'"), (True, "true"), (2.0, "2.0"), (None, "null")]
)
def test_one_wrong_item_among_integers_is_found_with_its_position(wrong, got):
    assert problems({"ids": [1, wrong, 3]}) == [f"$.ids[1]: expected an integer, got {got}"]


def test_a_very_wrong_array_does_not_flood_the_reader():
    found = problems({"ids": ["x"] * 100_000})
    assert len(found) == 51
    assert found[0] == "$.ids[0]: expected an integer, got 'x'"
    assert found[-1] == "and 99950 more mistakes"


# --- paths, and every mistake --------------------------------------------------------------


def test_every_mistake_is_found_each_with_its_path():
    data = {
        "nam": "t",
        "leaf": {"n": "1", "colour": "rde"},
        "leaves": [{}, {"counts": {"a": "1", "b": 2}}, 7],
        "below": {"name": "u", "below": {"name": 5}},
    }
    assert problems(data, Tree) == [
        "$.name: required, but missing",
        "$.leaf.n: expected an integer, got '1'",
        "$.leaf.colour: expected one of red, blue, got 'rde'; did you mean 'red'?",
        "$.leaves[1].counts.a: expected an integer, got '1'",
        "$.leaves[2]: expected a table, got 7",
        "$.below.below.name: expected a string, got 5",
        "$.nam: unknown key; did you mean 'name'?",
    ]


def test_the_error_says_all_of_it_in_one_line_too():
    with pytest.raises(StructureError, match=r"\$\.n: .*; \$\.s: "):
        structure({"n": "1", "s": 1}, Leaf)


def test_an_unknown_key_without_a_likeness_is_answered_with_what_there_is():
    assert problems({"zzz": 1}, Small) == ["$.zzz: unknown key; known: high, low"]


def test_an_unknown_key_is_skipped_when_reading_leniently():
    data = {"name": "t", "later": 1, "leaf": {"n": 1, "newer": {}}}
    assert structure(data, Tree, strict=False) == Tree(name="t", leaf=Leaf(n=1))


def test_a_missing_key_is_named_when_reading_leniently_too():
    assert problems({}, Tree, strict=False) == ["$.name: required, but missing"]


def test_a_long_text_is_cut_where_it_is_shown():
    (problem,) = problems({"n": "y" * 10_000_000})
    assert len(problem) < 100
    assert problem.endswith("y…")


def test_deep_nesting_is_described_and_not_walked():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert problems({"s": deep}) == ["$.s: expected a string, got an array"]
    assert structure({"raw": deep}, Leaf).raw is deep


def test_a_class_may_hold_itself():
    data = {"name": "a", "below": {"name": "b", "below": {"name": "c"}}}
    assert structure(data, Tree) == Tree(name="a", below=Tree(name="b", below=Tree(name="c")))


# --- what a class demands of its values ----------------------------------------------------


@frozen(kw_only=True)
class Small:
    low: int = field(default=0, validator=validators.ge(0))
    high: int = field(default=9, validator=validators.and_(validators.ge(0), validators.le(9)))

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@frozen(kw_only=True)
class Demanding:
    word: str = field(validator=validators.matches_re("[a-z]+"))
    kind: str = field(default="a", validator=validators.in_(["a", "b"]))
    small: Small = Small()
    limit: int = 10
    count: int = field(default=1)

    @count.validator
    def _check(self, _: Any, value: int) -> None:
        if value > self.limit:
            raise ValueError(f"more than {self.limit}")


def test_a_value_that_a_validator_refuses_has_its_path_and_a_plain_reason():
    assert problems({"low": -1}, Small) == ["$.low: must be >= 0: -1"]
    assert problems({"word": "A"}, Demanding) == [
        "$.word: must match regex '[a-z]+' ('A' doesn't)",
    ]
    assert problems({"word": "a", "kind": "c"}, Demanding) == [
        "$.kind: must be in ['a', 'b'] (got 'c')"
    ]


def test_every_refused_value_is_found_and_not_only_the_first():
    data = {"word": "A", "kind": "c", "small": {"low": -1, "high": 10}, "count": 11, "x": 1}
    assert problems(data, Demanding) == [
        "$.small.low: must be >= 0: -1",
        "$.small.high: must be <= 9: 10",
        "$.x: unknown key; known: count, kind, limit, small, word",
        "$.word: must match regex '[a-z]+' ('A' doesn't)",
        "$.kind: must be in ['a', 'b'] (got 'c')",
        "$.count: more than 10",
    ]


def test_a_validator_may_look_at_the_other_values():
    assert problems({"word": "a", "limit": 3, "count": 4}, Demanding) == ["$.count: more than 3"]
    assert structure({"word": "a", "limit": 3, "count": 3}, Demanding).count == 3


def test_a_validator_that_looks_at_a_value_made_anew_is_not_misled():
    @frozen
    class Made:
        known: list[str] = Factory(lambda: ["a"])
        word: str = field(default="a")
        size: int = field(default=1, validator=validators.ge(1))

        @word.validator
        def _check(self, _: Any, word: str) -> None:
            if word not in self.known:
                raise ValueError("unknown")

    assert problems({"word": "a", "size": 0}, Made) == ["$.size: must be >= 1: 0"]
    assert problems({"word": "b"}, Made) == ["$: unknown"]


def test_a_validator_that_looks_at_a_wrong_value_does_not_hide_it():
    data = {"word": "a", "limit": "3", "count": 4}
    assert problems(data, Demanding) == ["$.limit: expected an integer, got '3'"]


def test_a_validator_does_not_take_a_wrong_value_for_one_left_out():
    data = {"word": "a", "limit": "3", "count": 11}
    assert problems(data, Demanding) == ["$.limit: expected an integer, got '3'"]


def test_what_the_class_itself_refuses_has_the_path_of_its_table():
    assert problems({"word": "a", "small": {"low": 3, "high": 2}}, Demanding) == [
        "$.small: low is above high"
    ]


def test_a_class_that_raises_by_mistake_is_a_problem_and_not_a_crash():
    @frozen
    class Broken:
        n: int = 0

        def __attrs_post_init__(self) -> None:
            raise KeyError

    assert problems({}, Broken) == ["$: KeyError"]


# --- what else an adapter's options may hold -----------------------------------------------


def test_options_are_read_from_every_kind_that_toml_can_write():
    @frozen
    class Options:
        sizes: Sequence[int] = ()
        names: list[str] = Factory(list)
        table: dict[str, float] = Factory(dict)
        anything: list = Factory(list)
        free: dict = Factory(dict)
        old: Optional[int] = None  # noqa: UP045 - as older plugins write it
        annotated: Annotated[int, "in steps"] = 1
        either: float | int = 0

    data = {
        "sizes": [1, 2],
        "names": ["a"],
        "table": {"a": 1},
        "anything": [1, "x"],
        "free": {"a": [1]},
        "old": 3,
        "annotated": 4,
        "either": 5,
    }
    read = structure(data, Options)
    assert read == Options([1, 2], ["a"], {"a": 1.0}, [1, "x"], {"a": [1]}, 3, 4, 5)
    assert type(read.either) is int


def test_a_union_names_all_that_it_takes():
    (problem,) = problems({"options": {"o": {"a": 1}}})
    nouns = "a string, an integer, true or false, an array or a number"
    assert problem == f"$.options.o: expected {nouns}, got a table"


def test_the_mistake_inside_the_one_fitting_part_of_a_union_is_named():
    assert problems({"options": {"o": ["a", 1, 1.5]}}) == [
        "$.options.o[2]: expected a string or an integer, got 1.5"
    ]


def test_a_type_that_no_file_can_hold_is_said_where_it_is_used():
    @frozen
    class Odd:
        n: int = 0
        pair: tuple[int, int] = (0, 0)
        bag: frozenset[int] = frozenset()

    assert structure({"n": 1}, Odd) == Odd(1)
    pair, bag = problems({"pair": [1, 2], "bag": [1]}, Odd)
    assert pair == "$.pair: no file can hold its type, tuple[int, int]"
    assert bag.startswith("$.bag: no file can hold its type, frozenset")


@pytest.mark.parametrize("kind", [bytes, set[int], tuple, type("Word", (str,), {}), object])
def test_a_type_is_refused_where_what_is_written_would_be_another_value(kind):
    odd = make_class("Odd", {"n": field(default=None, type=kind)})
    for value in ("ab", 5, [1], {"a": 1}):
        (problem,) = problems({"n": value}, odd)
        assert problem.startswith("$.n: no file can hold its type, ")


@frozen
class Box(Generic[T]):
    item: T
    size: int = field(default=1, validator=validators.ge(1))


@frozen
class Boxes:
    number: Box[int]
    words: tuple[Box[str], ...] = ()


def test_a_generic_class_is_read_with_the_types_it_is_given():
    read = structure({"number": {"item": 1}, "words": [{"item": "a"}]}, Boxes)
    assert read == Boxes(Box(1), (Box("a"),))
    assert problems({"number": {"item": 1, "size": 0}, "words": [{"item": 2}]}, Boxes) == [
        "$.number.size: must be >= 1: 0",
        "$.words[0].item: expected a string, got 2",
    ]


def test_an_annotation_that_names_nothing_is_said():
    @frozen
    class Unresolved:
        n: "Nowhere" = 0  # noqa: F821, UP037

    (problem,) = problems({"n": 1}, Unresolved)
    assert problem.startswith("$: Unresolved names a type that is not there: name 'Nowhere'")


def test_private_fields_are_read_by_the_name_their_class_takes():
    @frozen
    class Private:
        _n: int = 0
        made: int = field(default=7, init=False)

    assert structure({"n": 1}, Private) == Private(n=1)
    assert problems({"_n": 1}, Private) == ["$._n: unknown key; did you mean 'n'?"]
    assert problems({"made": 1}, Private) == ["$.made: unknown key; known: n"]


def test_a_converter_of_the_class_comes_after_the_reading():
    @frozen
    class Sorted:
        names: tuple[str, ...] = field(default=(), converter=lambda names: tuple(sorted(names)))

    assert structure({"names": ["b", "a"]}, Sorted).names == ("a", "b")


# --- writing -------------------------------------------------------------------------------


def test_json_keeps_the_order_of_fields():
    assert list(from_json(to_json(Leaf()))) == [a.name for a in Leaf.__attrs_attrs__]


def test_enums_paths_and_tuples_are_written_plainly():
    leaf = Leaf(colour=Colour.BLUE, level=Level.HIGH, path=Path("/a/b"), ids=(1, 2), words=("w",))
    written = from_json(to_json(leaf))
    assert {key: written[key] for key in ("colour", "level", "path", "ids", "words")} == {
        "colour": "blue",
        "level": 2,
        "path": "/a/b",
        "ids": [1, 2],
        "words": ["w"],
    }


def test_pretty_json_holds_the_same():
    assert from_json(to_json(Tree(name="t"), pretty=True)) == from_json(to_json(Tree(name="t")))
    assert b"\n  " in to_json(Tree(name="t"), pretty=True)


def test_an_engines_figures_are_written_whatever_their_keys_are():
    assert to_json({"hist": {1: 2, Colour.RED: 3}}) == b'{"hist":{"1":2,"red":3}}'


def test_what_json_cannot_hold_is_refused_by_name():
    with pytest.raises(TypeError, match="bytes"):
        to_json(Leaf(raw=b"x"))


def test_text_that_is_not_json_names_line_and_column():
    with pytest.raises(ValueError, match="line 2 column 2"):
        from_json('{"a": 1,\n x}')


@pytest.mark.parametrize("deep", ["[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_json_that_is_nested_without_end_is_refused(deep):
    with pytest.raises(ValueError, match=r"depth|recursion"):
        from_json(deep)


# --- digests -------------------------------------------------------------------------------


def test_a_digest_is_the_sha256_of_sorted_json_without_blanks():
    canonical = json.dumps({"a": [1, 2], "b": "ü"}, separators=(",", ":"), ensure_ascii=False)
    expected = hashlib.sha256(canonical.encode()).hexdigest()
    assert digest({"b": "ü", "a": (1, 2)}) == f"sha256:{expected}"


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_digest_depends_on_every_value():
    assert digest(Tree(name="t")) != digest(Tree(name="u"))
    assert digest(Leaf(ids=(1, 2))) != digest(Leaf(ids=(2, 1)))


def test_the_order_of_fields_in_a_class_is_not_part_of_a_digest():
    assert digest(Small()) == digest({"high": 9, "low": 0})


# --- there and back ------------------------------------------------------------------------

integers = st.integers(SMALLEST, LARGEST)
numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | integers | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
leaves = st.builds(
    Leaf,
    n=integers,
    x=numbers,
    s=texts,
    b=st.booleans(),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    maybe_n=st.none() | integers,
    maybe_x=st.none() | numbers,
    maybe_s=st.none() | texts,
    maybe_b=st.none() | st.booleans(),
    maybe_colour=st.none() | st.sampled_from(Colour),
    ids=st.lists(integers, max_size=5).map(tuple),
    maybe_ids=st.none() | st.lists(integers, max_size=5).map(tuple),
    words=st.lists(texts, max_size=3).map(tuple),
    path=texts.filter(lambda text: text and "\0" not in text).map(Path),
    counts=st.dictionaries(texts, integers, max_size=3),
    maybe_counts=st.none() | st.dictionaries(texts, integers, max_size=3),
    options=st.dictionaries(
        texts, st.none() | st.booleans() | integers | numbers | texts | st.lists(texts), max_size=3
    ),
    raw=json_values,
)
trees = st.recursive(
    st.builds(Tree, name=texts, leaf=leaves, leaves=st.lists(leaves, max_size=2).map(tuple)),
    lambda below: st.builds(Tree, name=texts, maybe=st.none() | leaves, below=below),
    max_leaves=3,
)


@settings(deadline=None)
@given(trees)
def test_a_value_that_is_written_is_read_again_as_it_was(tree):
    assert structure(from_json(to_json(tree)), Tree) == tree


@settings(deadline=None)
@given(trees)
def test_strict_and_lenient_read_the_same_from_what_we_wrote(tree):
    data = from_json(to_json(tree))
    assert structure(data, Tree, strict=True) == structure(data, Tree, strict=False)


@settings(deadline=None)
@given(trees)
def test_a_digest_outlives_writing_and_reading(tree):
    assert digest(structure(from_json(to_json(tree)), Tree)) == digest(tree)


@settings(deadline=None)
@given(json_values)
def test_any_json_is_read_or_refused_and_never_crashes(data):
    read, found = attempted({"name": "t", "leaf": data}, Tree)
    assert isinstance(read, Tree) or found
    assert all(problem.startswith("$.leaf") for problem in found)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([a.name for a in Leaf.__attrs_attrs__]), json_values))
def test_any_value_under_any_key_is_read_exactly_or_refused(data):
    read, found = attempted(data, Leaf)
    written = from_json(to_json(read)) if read else {}
    assert found or {key: written[key] for key in data} == data
