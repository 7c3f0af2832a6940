"""Every scalar type, by value and by column: the two ways in must agree, and neither may repair anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import BadRequest
from reference.format import values
from reference.schema.types import NodeType, Property, PropertyType

VECTOR = {"scalar": "Vector", "dimensions": 2}


def prop(scalar: str, *, nullable: bool = False, is_list: bool = False, dimensions: int | None = None) -> Property:
    return Property("p", PropertyType(scalar, nullable=nullable, is_list=is_list, dimensions=dimensions))


def physical(array: pa.Array) -> list[Any]:
    """A column's canonical values."""
    if pa.types.is_date(array.type):
        return list(array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()).to_pylist())
    if isinstance(array.type, pa.BaseExtensionType):
        return [row and (row["data"] if row["uri"] is None else row["uri"]) for row in array.storage.to_pylist()]
    return list(array.to_pylist())


def test_a_value_means_the_same_alone_and_in_a_column() -> None:
    assert values.coerce(prop("Date"), "2024-02-29", "here") == 19_782
    assert physical(values.column(prop("Date"), ["2024-02-29", 19_782])) == [19_782, 19_782]


@pytest.mark.requirement("LOD-14")
@pytest.mark.parametrize(
    ("scalar", "given_value", "canonical"),
    [
        ("String", "", ""),
        ("String", "Çarol ☂\x00", "Çarol ☂\x00"),
        ("Bool", True, True),
        ("I32", -(2**31), -(2**31)),
        ("I64", 2**63 - 1, 2**63 - 1),
        ("U32", 2**32 - 1, 2**32 - 1),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("F64", 3, 3.0),
        ("F64", 2**53 + 1, float(2**53)),
        ("F32", 0.1, 0.10000000149011612),
        ("Date", "0001-01-01", values.DAYS_MIN),
        ("Date", "9999-12-31", values.DAYS_MAX),
        ("Date", -1, -1),
        ("DateTime", "2026-01-02T03:04:05", 1_767_323_045_000),
        ("DateTime", "2026-01-02T03:04:05Z", 1_767_323_045_000),
        ("DateTime", "2026-01-02 04:34:05.6789+01:30", 1_767_323_045_678),
        ("DateTime", "1969-12-31T23:59:59.9999", -1),
        ("DateTime", "2026-01-02", 1_767_312_000_000),
        ("DateTime", "1970-01-01T00:01:00.6", 60_600),
        ("DateTime", 5, 5),
        ("Blob", "base64:aGk=", b"hi"),
        ("Blob", "base64:", b""),
        ("Blob", "s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_values_that_fit_become_canonical(scalar: str, given_value: Any, canonical: Any) -> None:
    assert values.coerce(prop(scalar), given_value, "here") == canonical
    assert physical(values.column(prop(scalar), [given_value])) == [canonical]


@pytest.mark.requirement("LOD-14")
@pytest.mark.requirement("EXP-06")
@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize(
    ("scalar", "misfit"),
    [
        ("String", 1),
        ("String", "\ud800"),
        ("String", ["a"]),
        ("Bool", 1),
        ("Bool", "true"),
        ("I32", "old"),
        ("I32", 2**31),
        ("I32", -(2**31) - 1),
        ("I32", 1.5),
        ("I32", 1.0),
        ("I32", True),
        ("I64", 2**63),
        ("U32", -1),
        ("U32", 2**32),
        ("U64", 2**64),
        ("F64", True),
        ("F64", "1"),
        ("F64", float("inf")),
        ("F64", float("nan")),
        ("F64", 10**400),
        ("F32", 1e39),
        ("F32", 3.4028236e38),
        ("Date", "2023-02-29"),
        ("Date", "0000-01-01"),
        ("Date", "20240229"),
        ("Date", "2024-02-29T00:00:00"),
        ("Date", "٢٠٢٤-02-29"),
        ("Date", 1.5),
        ("Date", values.DAYS_MAX + 1),
        ("DateTime", "yesterday"),
        ("DateTime", "2026-01-02T24:00:00"),
        ("DateTime", "2026-01-02T03:04:05+24:00"),
        ("DateTime", "9999-12-31T23:59:59-00:01"),
        ("DateTime", "0001-01-01T00:00:00+00:01"),
        ("DateTime", values.MILLIS_MIN - 1),
        ("DateTime", True),
        ("Blob", "base64:???"),
        ("Blob", "base64:aGk"),
        ("Blob", "base64:é"),
        ("Blob", ""),
        ("Blob", "notes.txt"),
        ("Blob", "https://example.org/a"),
        ("Blob", "s3://bucket/a b"),
        ("Blob", 7),
    ],
)
def test_values_that_do_not_fit_are_refused_whether_or_not_null_is_allowed(
    scalar: str, misfit: Any, nullable: bool
) -> None:
    with pytest.raises(BadRequest) as alone:
        values.coerce(prop(scalar, nullable=nullable), misfit, "record 7")
    assert alone.value.code == "invalid_value"
    assert alone.value.message.startswith("record 7: ") and "'p'" in alone.value.message
    assert alone.value.details["property"] == "p" and "value" in alone.value.details
    with pytest.raises(BadRequest, match=r"^row 0: "):
        values.column(prop(scalar, nullable=nullable), [misfit], "row {}".format)


@pytest.mark.requirement("LOD-14")
@pytest.mark.requirement("VAL-01")
def test_null_needs_a_nullable_property() -> None:
    assert values.coerce(prop("I32", nullable=True), None, "here") is None
    assert values.column(prop("I32", nullable=True), [None, 1]).to_pylist() == [None, 1]
    with pytest.raises(BadRequest) as refused:
        values.column(prop("I32"), [1, None], "row {}".format)
    assert refused.value.code == "missing_value"
    assert refused.value.message.startswith("row 1: ")


@pytest.mark.requirement("LOD-14")
def test_list_items_are_checked_like_values_and_may_be_null() -> None:
    assert values.column(prop("I32", is_list=True), [[1, None], []]).to_pylist() == [[1, None], []]
    dates = prop("Date", is_list=True, nullable=True)
    assert values.column(dates, [["2024-02-29"], None, []]).type == pa.list_(pa.date32())
    assert values.coerce(prop("Date", is_list=True), ["1970-01-02", 3], "here") == [1, 3]
    for misfit in ([2**31], ["1"], 5, "ab", [[1]], [True]):
        with pytest.raises(BadRequest):
            values.coerce(prop("I32", is_list=True), misfit, "here")
        with pytest.raises(BadRequest):
            values.column(prop("I32", is_list=True), [[1], misfit])


@pytest.mark.requirement("LOD-14")
def test_vectors_have_their_length_and_only_numbers() -> None:
    vector = prop("Vector", dimensions=2, nullable=True)
    assert values.column(vector, [[1, 0.5], None]).to_pylist() == [[1.0, 0.5], None]
    misfits: list[Any] = [[1.0], [1.0, 2.0, 3.0], [], [1.0, "x"], [1.0, None], [1e39, 0.0], [True, 0.0], 1.0, {}]
    for misfit in misfits:
        with pytest.raises(BadRequest):
            values.coerce(vector, misfit, "here")
        with pytest.raises(BadRequest):
            values.column(vector, [[0.0, 0.0], misfit, None])


@given(
    scalar=st.sampled_from(["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob"]),
    raw=st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(2**65), 2**65)
        | st.integers(-10, 10)
        | st.floats()
        | st.text()
        | st.dates().map(str)
        | st.datetimes().map(lambda moment: moment.isoformat())
        | st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())
        | st.binary(max_size=9).map(lambda content: "base64:" + content.hex()),
        max_size=3,
    ),
    is_list=st.booleans(),
)
@pytest.mark.requirement("LOD-14")
def test_a_column_is_its_values_one_by_one(scalar: str, raw: list[Any], is_list: bool) -> None:
    is_list = is_list and scalar != "Blob"
    typed = prop(scalar, nullable=True, is_list=is_list)
    column_values = [raw, None, raw[:1]] if is_list else raw
    try:
        alone = [values.coerce(typed, value, "here") for value in column_values]
    except BadRequest:
        with pytest.raises(BadRequest):
            values.column(typed, column_values)
        return
    together = values.column(typed, column_values)
    expected = values.blob_column(alone) if scalar == "Blob" else pa.array(alone, typed.type.arrow_type())
    assert together.type == typed.type.arrow_type()
    assert together.equals(expected)


def key_type(**scalars: str) -> NodeType:
    properties = tuple(Property(name, PropertyType(scalar)) for name, scalar in sorted(scalars.items()))
    return NodeType("Thing", properties, key=tuple(sorted(scalars)))


@pytest.mark.requirement("LOD-05")
@pytest.mark.requirement("LOD-17")
@pytest.mark.parametrize(
    ("scalar", "value", "text"),
    [
        ("String", "a b", "a b"),
        ("I32", -5, "-5"),
        ("U64", 2**64 - 1, "18446744073709551615"),
        ("Bool", True, "true"),
        ("F64", 1.5, "1.5"),
        ("F64", 2, "2.0"),
        ("F64", 1e16, "1e+16"),
        ("F32", 0.1, "0.10000000149011612"),
        ("Date", 18_262, "2020-01-01"),
        ("Date", "2020-01-01", "2020-01-01"),
        ("DateTime", "2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05"),
        ("DateTime", 678, "1970-01-01T00:00:00.678"),
    ],
)
def test_a_single_key_gives_its_text_as_the_id(scalar: str, value: Any, text: str) -> None:
    assert values.row_id(key_type(k=scalar), {"k": value}) == text


@pytest.mark.requirement("VAL-14")
def test_several_key_columns_give_a_json_array_in_sorted_order() -> None:
    owner = key_type(b="String", a="I64", c="Date")
    assert values.row_id(owner, {"c": 18_262, "b": 'x",', "a": 7}) == '[7,"x\\",","2020-01-01"]'
    columns = {
        "a": values.column(owner.properties[0], [1, 2]),
        "b": values.column(owner.properties[1], ["x", "y"]),
        "c": values.column(owner.properties[2], [0, 1]),
    }
    assert values.row_ids(owner, columns).to_pylist() == ['[1,"x","1970-01-01"]', '[2,"y","1970-01-02"]']


@pytest.mark.requirement("LOD-05")
@pytest.mark.parametrize("data", [{}, {"k": None}])
def test_a_key_without_a_value_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        values.row_id(key_type(k="String"), data, "record 3")
    assert refused.value.code == "missing_key" and refused.value.message.startswith("record 3: ")


def test_fresh_ids_are_ulids_of_this_moment_and_all_different() -> None:
    ids = values.fresh_ids(1000).to_pylist()
    assert len(set(ids)) == 1000
    assert all(
        len(each) == 26 and each[0] <= "7" and set(each) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for each in ids
    )
    assert len({each[:10] for each in ids}) == 1
    millis = sum("0123456789ABCDEFGHJKMNPQRSTVWXYZ".index(digit) << 5 * (9 - i) for i, digit in enumerate(ids[0][:10]))
    assert 1_700_000_000_000 < millis < 2**48


def test_a_predicate_may_compare_with_null_but_not_with_another_type() -> None:
    assert values.literal(prop("I32"), None) is None
    assert values.literal(prop("Date"), "1970-01-02") == 1
    with pytest.raises(BadRequest, match="^predicate: "):
        values.literal(prop("I32"), "1")


@pytest.mark.requirement("LAY-16")
@pytest.mark.parametrize("scheme", sorted(values.BLOB_SCHEMES))
def test_lance_takes_references_of_every_scheme_that_is_accepted(scheme: str, tmp_path: Path) -> None:
    uri = f"{scheme}:///nowhere/x" if scheme == "file" else f"{scheme}://bucket/x"
    column = values.column(prop("Blob"), [uri])
    table = pa.Table.from_arrays([column], names=["p"])
    dataset = lance.write_dataset(
        table, str(tmp_path / "t"), data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    assert dataset.to_table()["p"].to_pylist()[0]["blob_uri"] == uri
