"""The exact bytes of an export, and that whatever was accepted comes back to the same values and the same bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import Internal
from reference.format.export_lines import blob_values, export_lines, row_json
from reference.format.records import read_records
from reference.schema.types import Catalog, EdgeType, NodeType, Property, PropertyType


def prop(
    name: str, scalar: str, *, nullable: bool = True, is_list: bool = False, dimensions: int | None = None
) -> Property:
    return Property(name, PropertyType(scalar, nullable=nullable, is_list=is_list, dimensions=dimensions))


SCALARS = ("Bool", "Date", "DateTime", "F32", "F64", "I32", "I64", "String", "U32", "U64")
EVERYTHING = NodeType(
    "Everything",
    (
        prop("blob", "Blob"),
        *(prop(f"l_{scalar.lower()}", scalar, is_list=True) for scalar in SCALARS),
        *(prop(f"p_{scalar.lower()}", scalar) for scalar in SCALARS),
        prop("vector", "Vector", dimensions=2),
    ),
)
KEYED = {scalar: NodeType(f"By{scalar}", (prop("k", scalar, nullable=False),), key=("k",)) for scalar in SCALARS}
PAIR = NodeType(
    "Pair",
    tuple(prop(f"k_{s.lower()}", s, nullable=False) for s in SCALARS),
    key=tuple(f"k_{s.lower()}" for s in SCALARS),
)
KNOWS = EdgeType("Knows", "Everything", "Everything", (prop("since", "Date"), prop("strength", "F32")))
NODES = (EVERYTHING, PAIR, *KEYED.values())
CATALOG = Catalog({}, {each.name: each for each in NODES}, {"Knows": KNOWS})


def exported(text: bytes | str) -> bytes:
    """Load, then export, tables in the order of an export."""
    tables = read_records(text, CATALOG).tables
    return b"".join(line for key in sorted(tables) for line in export_lines(tables[key].table, CATALOG.type_of(key)))


def shown(name: str, value: Any) -> bytes:
    """How an export shows one value of a property."""
    record = {"type": "Everything", "data": {"id": "x", name: value}}
    line = orjson.loads(exported(orjson.dumps(record)))["data"]
    assert list(line) == ["id", *(each.name for each in EVERYTHING.properties)]
    raw = exported(orjson.dumps(record))
    start = raw.index(f'"{name}":'.encode()) + len(name) + 3
    following = list(line)[list(line).index(name) + 1 :]
    end = raw.index(f',"{following[0]}":'.encode(), start) if following else -3
    return raw[start:end]


@pytest.mark.requirement("EXP-01")
def test_lines_are_compact_and_in_the_order_of_the_format() -> None:
    text = """
        {"type":"ByString","data":{"k":"Bob \\"the\\" Builder"}}
        {"edge":"knows","from":"alice","to":"bob","data":{"strength":0.25,"since":"2020-01-01","id":"k1"}}
        {"edge":"Knows","from":"eve","to":"alice","data":{"id":"k4"}}
    """
    assert exported(text) == (
        b'{"edge":"Knows","from":"alice","to":"bob","data":{"id":"k1","since":18262,"strength":0.25}}\n'
        b'{"edge":"Knows","from":"eve","to":"alice","data":{"id":"k4","since":null,"strength":null}}\n'
        b'{"type":"ByString","data":{"id":"Bob \\"the\\" Builder","k":"Bob \\"the\\" Builder"}}\n'
    )


@pytest.mark.requirement("EXP-01")
@pytest.mark.parametrize(
    ("number", "digits"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1, "1.0"),
        (0.25, "0.25"),
        (0.00001, "0.00001"),
        (0.000015, "0.000015"),
        (0.0000099, "9.9e-6"),
        (1.5e-7, "1.5e-7"),
        (1e-7, "1e-7"),
        (1e15, "1000000000000000.0"),
        (9999999999999998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (-1.25e300, "-1.25e+300"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_have_shortest_digits_in_the_engines_notation(number: float, digits: str) -> None:
    assert shown("p_f64", number) == digits.encode()


@pytest.mark.requirement("EXP-01")
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("p_f32", 0.1, "0.10000000149011612"),
        ("l_f32", [0.1, -0.0, None], "[0.10000000149011612,-0.0,null]"),
        ("vector", [0.1, 1], "[0.10000000149011612,1.0]"),
        ("p_u64", 2**64 - 1, "18446744073709551615"),
        ("p_date", "1969-12-31", "-1"),
        ("l_date", ["2020-01-01", None], "[18262,null]"),
        ("p_datetime", "2026-01-02T03:04:05Z", '"2026-01-02T03:04:05"'),
        ("p_datetime", "2026-01-02T03:04:05.6789", '"2026-01-02T03:04:05.678"'),
        ("p_datetime", "2026-01-02T03:04:05.1+02:00", '"2026-01-02T01:04:05.100"'),
        ("p_datetime", -1, '"1969-12-31T23:59:59.999"'),
        ("p_datetime", "0001-01-01T00:00:00", '"0001-01-01T00:00:00"'),
        ("l_datetime", [0, 1], '["1970-01-01T00:00:00","1970-01-01T00:00:00.001"]'),
        ("p_string", '\x00\x1f\b\f\n\r\t"\\/', '"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\/"'),
        ("p_string", "\x7f\u2028Ç☂\U0001f600", '"\x7f\u2028Ç☂\U0001f600"'),
        ("l_string", ["a", "", None], '["a","",null]'),
        ("l_string", [], "[]"),
        ("l_bool", [True, False], "[true,false]"),
        ("blob", "base64:aGVsbG8gd29ybGQ=", '"base64:aGVsbG8gd29ybGQ="'),
        ("blob", "base64:", '"base64:"'),
        ("blob", "s3://bucket/key", '"s3://bucket/key"'),
        ("blob", None, "null"),
    ],
)
def test_values_are_written_as_the_format_says(name: str, value: Any, text: str) -> None:
    assert shown(name, value) == text.encode()


def json_value(scalar: str) -> st.SearchStrategy[Any]:
    floats = st.floats(allow_nan=False, allow_infinity=False)
    times = st.datetimes().map(lambda moment: moment.isoformat())
    return {
        "Bool": st.booleans(),
        "Date": st.dates().map(str) | st.integers(-719_162, 2_932_896),
        "DateTime": times | times.map("{}Z".format) | st.integers(-62_135_596_800_000, 253_402_300_799_999),
        "F32": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
        "F64": floats | st.integers(-(2**64), 2**64),
        "I32": st.integers(-(2**31), 2**31 - 1),
        "I64": st.integers(-(2**63), 2**63 - 1),
        "String": st.text(),
        "U32": st.integers(0, 2**32 - 1),
        "U64": st.integers(0, 2**64 - 1),
    }[scalar]


BLOBS = st.binary(max_size=20).map(lambda content: "base64:" + base64.b64encode(content).decode())
EVERYTHING_DATA = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(min_size=1),
        "blob": BLOBS | st.just("s3://bucket/a%20b"),
        "vector": st.lists(json_value("F32"), min_size=2, max_size=2),
        **{f"p_{scalar.lower()}": json_value(scalar) for scalar in SCALARS},
        **{f"l_{scalar.lower()}": st.lists(st.none() | json_value(scalar), max_size=3) for scalar in SCALARS},
    },
)


def assert_round_trip(record: dict[str, Any]) -> None:
    first = read_records(json.dumps(record), CATALOG)
    line = b"".join(b"".join(export_lines(part.table, CATALOG.type_of(key))) for key, part in first.tables.items())
    second = read_records(line, CATALOG)
    assert exported(line) == line
    for key, part in first.tables.items():
        assert second.tables[key].table.equals(part.table), "the values changed on their way out and in"


@given(data=EVERYTHING_DATA)
@pytest.mark.requirement("EXP-03")
@pytest.mark.requirement("EXP-06")
def test_whatever_is_accepted_exports_and_loads_again_to_the_same_row(data: dict[str, Any]) -> None:
    assert_round_trip({"type": "Everything", "data": data})


@given(scalar_and_key=st.sampled_from(SCALARS).flatmap(lambda scalar: st.tuples(st.just(scalar), json_value(scalar))))
@pytest.mark.requirement("EXP-03")
@pytest.mark.requirement("LOD-17")
def test_keys_of_every_scalar_type_round_trip_with_their_ids(scalar_and_key: tuple[str, Any]) -> None:
    scalar, key = scalar_and_key
    assert_round_trip({"type": f"By{scalar}", "data": {"k": key}})


@given(data=st.fixed_dictionaries({f"k_{scalar.lower()}": json_value(scalar) for scalar in SCALARS}))
@pytest.mark.requirement("VAL-14")
def test_keys_of_several_columns_round_trip_with_their_ids(data: dict[str, Any]) -> None:
    assert_round_trip({"type": "Pair", "data": data})


def test_slices_and_chunks_export_like_the_whole() -> None:
    rows = [{"type": "Everything", "data": {"id": str(i), "l_i32": [i] * (i % 3), "vector": [i, i]}} for i in range(9)]
    table = read_records(b"\n".join(map(orjson.dumps, rows)), CATALOG).tables["node:Everything"].table
    whole = list(export_lines(table, EVERYTHING))
    assert list(export_lines(table.slice(2, 5), EVERYTHING)) == whole[2:7]
    assert list(export_lines(pa.concat_tables([table.slice(0, 4), table.slice(4)]), EVERYTHING)) == whole
    assert list(export_lines(table.to_batches()[0], EVERYTHING)) == whole


def test_blob_values_stay_with_their_rows_across_chunks() -> None:
    lines = [orjson.dumps({"type": "Everything", "data": {"id": str(i)}}) for i in range(3)]
    table = read_records(b"\n".join(lines), CATALOG).tables["node:Everything"].table
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    shown_blobs = [row["blob"] for row in row_json(chunked, {"blob": [b"a", None, "s3://b/c"]})]
    assert shown_blobs == ["base64:YQ==", None, "s3://b/c"]


def test_rows_as_json_show_the_values_of_an_export() -> None:
    line = '{"edge":"Knows","from":"a","to":"b","data":{"id":"k","since":"2020-01-01","strength":0.1}}'
    table = read_records(line, CATALOG).tables["edge:Knows"].table
    assert row_json(table) == [{"id": "k", "src": "a", "dst": "b", "since": 18_262, "strength": 0.10000000149011612}]
    assert row_json(table.select(["since", "id"])) == [{"since": 18_262, "id": "k"}]


@pytest.mark.requirement("EXP-06")
def test_an_infinity_on_disk_is_an_error_and_never_becomes_null() -> None:
    table = pa.table(
        {
            "id": ["a"],
            "src": ["a"],
            "dst": ["a"],
            "since": pa.array([0], pa.date32()),
            "strength": np.array([np.inf], np.float32),
        }
    )
    with pytest.raises(Internal, match="strength"):
        list(export_lines(table, KNOWS))


@pytest.mark.requirement("LAY-16")
@pytest.mark.requirement("EXP-03")
@pytest.mark.requirement("MRG-13")
def test_blobs_come_back_from_lance_as_they_went_in(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"not mine")
    contents = ["base64:aGk=", None, "base64:", outside.as_uri(), "base64:" + "QUFB" * 50_000]
    lines = [
        orjson.dumps({"type": "Everything", "data": {"id": str(i), "blob": blob}}) for i, blob in enumerate(contents)
    ]
    table = read_records(b"\n".join(lines), CATALOG).tables["node:Everything"].table
    dataset = lance.write_dataset(
        table, str(tmp_path / "t"), data_storage_version="2.2", allow_external_blob_outside_bases=True
    )
    stored = dataset.to_table()
    with pytest.raises(Internal):
        list(export_lines(stored, EVERYTHING))

    def read(indices: list[int]) -> list[bytes]:
        assert indices == [0, 4], "only contents are read, not references, empties or nulls"
        return [content or b"" for _, content in dataset.read_blobs("blob", indices=indices, preserve_order=True)]

    blobs = {"blob": blob_values(stored["blob"], read)}
    assert list(export_lines(stored, EVERYTHING, blobs)) == list(export_lines(table, EVERYTHING))
    assert [row["blob"] for row in row_json(stored, blobs)] == contents


def test_a_descriptor_of_nothing_is_an_empty_blob() -> None:
    nothing = {"kind": 0, "position": 0, "size": 0, "blob_id": 0, "blob_uri": ""}
    empty, part = {**nothing, "position": 64}, {**nothing, "kind": 3, "size": 2, "blob_uri": "s3://b/k"}
    column = pa.array([nothing, empty, None, part])
    assert blob_values(column, lambda _: [b"xy"]) == [b"", b"", None, b"xy"]
