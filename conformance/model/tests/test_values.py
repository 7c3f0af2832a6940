"""Values by example: what fits, what is the same, and how it is written."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.model import Refusal
from conformance.model.schema import Property, schema_from_ir
from conformance.model.tests.graphs import ir, node, prop
from conformance.model.values import identity, json_text, key_id, read_value, shown


@pytest.mark.requirement("LOD-14", "EXP-01", "EXP-06")
@pytest.mark.parametrize(
    "scalar, given, exported",
    [
        ("String", '\x1f\x7f\u2028é"\\\n', '"\\u001f\x7f\u2028é\\"\\\\\\n"'),
        ("I64", -(2**63), "-9223372036854775808"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("F64", 1e-5, "0.00001"),
        ("F64", 1e15, "1000000000000000.0"),
        ("F64", 1e16, "1e+16"),
        ("F64", 1.5e-7, "1.5e-7"),
        ("F64", 5e-324, "5e-324"),
        ("F64", -0.0, "-0.0"),
        ("F64", 3, "3.0"),
        ("F64", 1.7976931348623157e308, "1.7976931348623157e+308"),
        ("F32", 0.1, "0.10000000149011612"),
        ("Date", "2020-01-01", "18262"),
        ("Date", -719162, "-719162"),
        ("DateTime", "2026-01-02T05:04:05.678999+02:00", '"2026-01-02T03:04:05.678"'),
        ("DateTime", "2026-01-02 03:04", '"2026-01-02T03:04:00"'),
        ("DateTime", -62135596800000, '"0001-01-01T00:00:00"'),
        ("Blob", "base64:", '"base64:"'),
        ("Blob", "s3://bucket/key", '"s3://bucket/key"'),
    ],
)
def test_a_value_is_written_as_the_format_says(scalar: str, given: Any, exported: str) -> None:
    column = Property("p", scalar)
    assert json_text(shown(column, read_value(column, given))) == exported


@pytest.mark.requirement("LOD-14")
@pytest.mark.parametrize(
    "scalar, given",
    [
        ("I32", 2**31), ("I32", 1.0), ("I32", True), ("I32", "1"), ("U32", -1), ("U64", 2**64), ("F64", "1"),
        ("F64", 10**400), ("F64", True), ("F32", 1e39), ("Bool", 1), ("String", 1), ("String", "\ud800"),
        ("Date", "2026-02-29"), ("Date", "0000-01-01"), ("Date", 2932897), ("DateTime", "2026-01-02T24:00:00"),
        ("DateTime", "9999-12-31T23:59:59-00:01"), ("Blob", "base64:eA"), ("Blob", "text"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_though_null_would_do(scalar: str, given: Any) -> None:
    column = Property("p", scalar, nullable=True)
    assert read_value(column, None) is None
    with pytest.raises(Refusal):
        read_value(column, given)


@pytest.mark.requirement("LOD-14")
def test_vectors_have_their_length_and_lists_may_hold_nulls() -> None:
    vector, dates = Property("v", "Vector", dimensions=2), Property("d", "Date", is_list=True)
    assert read_value(vector, [0, 0.5]) == (0.0, 0.5)
    assert read_value(dates, ["1970-01-02", None]) == (1, None)
    for column, given in ((vector, [1]), (vector, [1, None]), (dates, ["x"]), (dates, "1970-01-01")):
        with pytest.raises(Refusal):
            read_value(column, given)


@pytest.mark.requirement("MRG-13")
def test_values_are_the_same_by_type_and_bits() -> None:
    different = [None, "", (), (None,), ("",), ("a", "b"), ("a, b",), b"", b"a", "a", 0.0, -0.0]
    assert len({(type(each), identity(each)) for each in different}) == len(different)


@pytest.mark.requirement("VAL-14")
@pytest.mark.parametrize(
    "scalars, given, row_id",
    [
        (["String"], ["a"], "a"),
        (["I64"], [-7], "-7"),
        (["Bool"], [True], "true"),
        (["Date"], ["2026-01-02"], "2026-01-02"),
        (["DateTime"], ["2026-01-02"], "2026-01-02T00:00:00"),
        (["F64"], [1e16], "1e+16"),
        (["String", "I32"], ['é"', 1], '["é\\"",1]'),
        (["Date", "F64"], [0, 0.5], '["1970-01-01",0.5]'),
    ],
)
def test_a_key_makes_the_id(scalars: list[str], given: list[Any], row_id: str) -> None:
    names = [f"k{number}" for number in range(len(scalars))]
    columns = [prop(name, scalar, nullable=False) for name, scalar in zip(names, scalars, strict=True)]
    owner = schema_from_ir(ir(node("T", *columns, constraints=({"Key": names},)))).types["node:T"]
    row = {each.name: read_value(each, value) for each, value in zip(owner.properties, given, strict=True)}
    assert key_id(owner, row) == row_id
