"""Predicates mean what SQL would mean by them, on every scalar type and whatever a property is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import BadRequest
from reference.format.values import blob_column, column
from reference.operations.predicates import DEPTH_MAX, compile_predicate
from reference.schema.types import EdgeType, NodeType, Property, PropertyType


def prop(name: str, scalar: str, **rest: Any) -> Property:
    return Property(name, PropertyType(scalar, nullable=True, **rest))


SCALARS: dict[str, list[Any]] = {
    "String": [None, "", "a", "b'c"],
    "Bool": [None, False, True],
    "I32": [None, -1, 0, 7],
    "I64": [None, 2**53, 2**53 + 1],
    "U64": [None, 2**64 - 2, 2**64 - 1],
    "F64": [None, -0.0, 0.0, 0.1],
    "F32": [None, 0.0, 0.1, 0.5],
    "Date": [None, "1969-12-31", "2024-02-29"],
    "DateTime": [None, "2024-02-29T00:00:00", "2024-02-29T00:00:00.001"],
}
# Words of query languages, which must be ordinary names here.
NAMES = dict(
    zip(SCALARS, ("null", "true", "interval", "exists", "select", "Case", "case", "date", "from"), strict=True)
)
THING = NodeType(
    "Thing",
    (
        *(prop(NAMES[scalar], scalar) for scalar in SCALARS),
        prop("words", "String", is_list=True),
        prop("face", "Vector", dimensions=2),
        prop("body", "Blob"),
    ),
)
KNOWS = EdgeType("Knows", "Thing", "Thing", (prop("since", "Date"),))


def rows_of(records: list[dict[str, Any]]) -> pa.Table:
    columns: dict[str, Any] = {"id": pa.array([str(index) for index in range(len(records))], pa.string())}
    for each in THING.properties:
        values = [record.get(each.name) for record in records]
        columns[each.name] = blob_column(values) if each.name == "body" else column(each, values)
    return pa.table(columns)


def fitting(where: Any, records: list[dict[str, Any]]) -> list[int]:
    mask = compile_predicate(THING, where, "here").mask(rows_of(records))
    return [index for index, fits in enumerate(mask.to_pylist()) if fits]


def is_(name: str, op: str, *value: Any) -> dict[str, Any]:
    return {"property": name, "op": op} | ({"value": value[0]} if value else {})


@pytest.mark.requirement("VAL-16")
@pytest.mark.parametrize("scalar", SCALARS)
def test_equality_finds_exactly_the_equal_values_of_every_scalar(scalar: str) -> None:
    name, values = NAMES[scalar], SCALARS[scalar]
    records = [{name: value} for value in values]
    for value in values[1:]:
        equal = [index for index, other in enumerate(values) if other is not None and other == value]
        assert fitting(is_(name, "eq", value), records) == equal
        assert fitting(is_(name, "in", [value]), records) == equal
        others = [index for index, other in enumerate(values) if other is not None and other != value]
        assert fitting(is_(name, "ne", value), records) == others
        assert fitting({"not": is_(name, "in", [value])}, records) == others


@pytest.mark.requirement("VAL-16")
def test_neighbours_that_floats_cannot_tell_apart_are_told_apart() -> None:
    records = [{"exists": 2**53}, {"exists": 2**53 + 1}]
    assert fitting(is_("exists", "gt", 2**53), records) == [1]
    records = [{"select": 2**64 - 2}, {"select": 2**64 - 1}]
    assert fitting(is_("select", "ge", 2**64 - 1), records) == [1]


@pytest.mark.requirement("MUT-11")
def test_a_comparison_with_null_is_never_true_and_neither_is_its_opposite() -> None:
    records: list[dict[str, Any]] = [{"interval": None}, {"interval": 1}]
    for op in ("eq", "ne", "lt", "ge"):
        assert fitting(is_("interval", op, None), records) == []
        assert fitting({"not": is_("interval", op, None)}, records) == []
    assert fitting({"not": is_("interval", "eq", 2)}, records) == [1]
    assert fitting(is_("interval", "in", [None, 1]), records) == [1]
    assert fitting({"not": is_("interval", "in", [None, 2])}, records) == []
    assert fitting(is_("interval", "in", []), records) == []
    assert fitting(is_("interval", "is_null"), records) == [0]
    assert fitting(is_("interval", "is_not_null"), records) == [1]
    unknown, false = is_("interval", "eq", None), is_("interval", "eq", 2)
    assert fitting({"not": {"and": [unknown, false]}}, records) == [1], "false and unknown is false"
    assert fitting({"or": [unknown, is_("interval", "eq", 1)]}, records) == [1], "true or unknown is true"


def test_lists_vectors_and_blobs_can_be_asked_for_nulls() -> None:
    records: list[dict[str, Any]] = [{}, {"words": ["a"], "face": [1.0, 2.0], "body": b""}]
    for name in ("words", "face", "body"):
        assert fitting(is_(name, "is_null"), records) == [0]
        assert fitting(is_(name, "is_not_null"), records) == [1]


@pytest.mark.requirement("MUT-12")
@pytest.mark.parametrize(
    ("where", "code"),
    [
        (None, "invalid_predicate"),
        ({}, "invalid_predicate"),
        ([], "invalid_predicate"),
        ({"all": False}, "invalid_predicate"),
        ({"all": 1}, "invalid_predicate"),
        ({"and": []}, "invalid_predicate"),
        ({"or": {}}, "invalid_predicate"),
        ({"and": [is_("null", "is_null")], "or": []}, "invalid_predicate"),
        ({"xor": []}, "invalid_predicate"),
        (is_("null", "like", "a"), "invalid_predicate"),
        (is_("null", "contains", "a"), "unsupported_operator"),
        (is_("words", "contains", "a"), "unsupported_operator"),
        ({"property": "null", "value": "a"}, "invalid_predicate"),
        (is_("null", "eq"), "invalid_predicate"),
        (is_("null", "is_null", 1), "invalid_predicate"),
        (is_("null", "eq", "a") | {"extra": 1}, "invalid_predicate"),
        ({"property": "null", "op": ["eq"], "value": 1}, "invalid_predicate"),
        (is_("words", "eq", ["a"]), "invalid_predicate"),
        (is_("face", "in", []), "invalid_predicate"),
        (is_("body", "eq", "base64:"), "invalid_predicate"),
        (is_("nothing", "eq", 1), "undeclared_property"),
        ({"property": 7, "op": "eq", "value": 1}, "undeclared_property"),
        (is_("Null", "eq", "a"), "undeclared_property"),
        (is_("src", "eq", "a"), "undeclared_property"),
        (is_("interval", "eq", 2**31), "invalid_value"),
        (is_("interval", "eq", "1"), "invalid_value"),
        (is_("interval", "eq", True), "invalid_value"),
        (is_("interval", "in", [1, 1.5]), "invalid_value"),
        (is_("interval", "in", 1), "invalid_predicate"),
        (is_("date", "lt", "2023-02-29"), "invalid_value"),
        (is_("id", "eq", 1), "invalid_value"),
        (is_("null", "eq", {"now": True}), "invalid_value"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_its_place(where: Any, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        compile_predicate(THING, {"not": where}, "statement 3")
    assert refused.value.code == code
    assert refused.value.message.startswith("statement 3: ")


def test_a_predicate_without_end_is_refused() -> None:
    where: dict[str, Any] = {"all": True}
    for _ in range(DEPTH_MAX + 1):
        where = {"not": where}
    with pytest.raises(BadRequest, match="nested"):
        compile_predicate(THING, where, "statement 1")


@pytest.mark.requirement("MUT-12")
def test_the_ends_of_an_edge_are_spelled_src_and_dst_or_from_and_to() -> None:
    rows = pa.table({"id": ["1", "2"], "src": ["a", "b"], "dst": ["b", "c"], "since": pa.array([0, 1], pa.date32())})
    for name, value, expected in (
        ("from", "b", [False, True]),
        ("src", "b", [False, True]),
        ("to", "b", [True, False]),
    ):
        assert compile_predicate(KNOWS, is_(name, "eq", value), "here").mask(rows).to_pylist() == expected
    declared = EdgeType("Moves", "Thing", "Thing", (prop("from", "Date"),))
    assert compile_predicate(declared, is_("from", "is_null"), "here").columns == {"from"}


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (is_("id", "eq", "a"), {"a"}),
        (is_("id", "in", ["a", None, "b"]), {"a", "b"}),
        ({"and": [is_("id", "in", ["a", "b"]), is_("id", "eq", "b"), is_("null", "is_null")]}, {"b"}),
        ({"or": [is_("id", "eq", "a"), is_("id", "eq", "b")]}, {"a", "b"}),
        ({"or": [is_("id", "eq", "a"), is_("null", "is_null")]}, None),
        ({"not": is_("id", "eq", "a")}, None),
        (is_("id", "ne", "a"), None),
        ({"all": True}, None),
    ],
)
def test_ids_are_known_beforehand_only_where_nothing_else_can_fit(where: Any, ids: set[str] | None) -> None:
    assert compile_predicate(THING, where, "here").ids == ids


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
FIELDS = {NAMES[scalar]: values for scalar, values in SCALARS.items()}


@st.composite
def comparisons(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(FIELDS)))
    op = draw(st.sampled_from([*OPERATORS, "in", "is_null", "is_not_null"]))
    value = st.sampled_from(FIELDS[name])
    if op in OPERATORS:
        return is_(name, op, draw(value))
    return is_(name, op, draw(st.lists(value, max_size=3))) if op == "in" else is_(name, op)


TREES = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)
RECORDS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FIELDS.items()}), max_size=5
)


def truth(where: Any, record: dict[str, Any]) -> bool | None:
    """What SQL says: true, false, or null for unknown."""
    if "property" not in where:
        word, inner = next(iter(where.items()))
        if word == "not":
            found = truth(inner, record)
            return None if found is None else not found
        parts = [truth(each, record) for each in inner]
        decisive = word == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    value, op, operand = record[where["property"]], where["op"], where.get("value")
    if op in ("is_null", "is_not_null"):
        return (value is None) is (op == "is_null")
    if op == "in":
        found = value in [each for each in operand if each is not None]
        return None if value is None or (not found and None in operand) else found
    return None if value is None or operand is None else OPERATORS[op](value, operand)


@pytest.mark.requirement("MUT-11", "VAL-16")
@given(TREES, RECORDS)
def test_every_predicate_agrees_with_a_naive_evaluation(where: Any, records: list[dict[str, Any]]) -> None:
    assert fitting(where, records) == [index for index, record in enumerate(records) if truth(where, record)]
