"""What a load accepts, what it refuses, and that the fast and the exact reader tell one story."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import BadRequest
from reference.format import records
from reference.format.records import read_records, rows_to_table
from reference.schema.types import Catalog, EdgeType, NodeType, Property, PropertyType


def prop(name: str, scalar: str, *, nullable: bool = True) -> Property:
    return Property(name, PropertyType(scalar, nullable=nullable))


PERSON = NodeType("Person", (prop("age", "I32"), prop("handle", "String", nullable=False)), key=("handle",))
DAY = NodeType("Day", (prop("on", "Date", nullable=False),), key=("on",))
NOTE = NodeType("Note", (prop("title", "String", nullable=False),))
KNOWS = EdgeType("Knows", "Person", "Person", (prop("since", "Date"),))
CATALOG = Catalog({}, {each.name: each for each in (PERSON, DAY, NOTE)}, {"Knows": KNOWS})

ALICE = '{"type":"Person","data":{"handle":"alice","age":31}}'
BOB = '{"type":"Person","data":{"handle":"bob"}}'
MET = '{"edge":"knows","from":"alice","to":"bob","data":{"id":"k1","since":"2020-01-01"}}'


def refusal(text: str | bytes) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        read_records(text, CATALOG)
    return refused.value


@pytest.mark.requirement("LOD-02")
@pytest.mark.requirement("LAY-13")
def test_records_become_typed_tables_with_their_numbers() -> None:
    read = read_records(f"{ALICE}\n{MET}\n\n{BOB}\n", CATALOG)
    assert read.record_count == 3
    people, met = read.tables["node:Person"], read.tables["edge:Knows"]
    assert people.table.schema == CATALOG.arrow_schema("node:Person")
    assert people.table.to_pylist() == [
        {"id": "alice", "age": 31, "handle": "alice"},
        {"id": "bob", "age": None, "handle": "bob"},
    ]
    assert people.positions.tolist() == [1, 3] and met.positions.tolist() == [2]
    assert met.table.schema == CATALOG.arrow_schema("edge:Knows")
    assert [(row["id"], row["src"], row["dst"]) for row in met.table.to_pylist()] == [("k1", "alice", "bob")]


@pytest.mark.requirement("LOD-02")
@pytest.mark.parametrize(
    "text",
    [
        f"{ALICE}\n{MET}\n{BOB}",
        f"\r\n{ALICE} \t{MET}\r\n\r\n{BOB}\r\n",
        f"{ALICE}{MET}{BOB}",
        "\n".join(json.dumps(json.loads(each), indent=2) for each in (ALICE, MET, BOB)),
        f"{ALICE}\n{MET}\n{BOB}".encode(),
    ],
)
def test_any_whitespace_may_stand_between_records(text: str | bytes) -> None:
    read = read_records(text, CATALOG)
    assert read.tables["node:Person"].table["id"].to_pylist() == ["alice", "bob"]
    assert read.tables["node:Person"].positions.tolist() == [1, 3]


@pytest.mark.requirement("LOD-02")
@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_an_input_without_records_has_no_tables(text: str) -> None:
    read = read_records(text, CATALOG)
    assert read.record_count == 0 and not read.tables


@pytest.mark.requirement("LOD-02")
@pytest.mark.requirement("LOD-03")
@pytest.mark.parametrize(
    "broken",
    [
        '{"type":',
        "// a comment",
        ALICE + ",",
        '{"type":"Note","data":{"title":NaN}}',
        '{"type":"Note","data":{"title":-Infinity}}',
        '{"type":"Note","data":{"title":"a\x01"}}',
        "[" * 100_000,
        "\x0b",
        b'{"type":"Note","data":{"title":"\xff"}}',
        b"\xff",
        '{"type":"Note","data":{"title":"\ud800"}}',
    ],
)
def test_what_is_not_json_is_refused_with_its_record_number(broken: str | bytes) -> None:
    lines = [
        ALICE.encode(),
        broken if isinstance(broken, bytes) else broken.encode(errors="surrogatepass"),
        BOB.encode(),
    ]
    error = refusal(b"\n".join(lines))
    assert error.code == "invalid_json"
    assert error.details["record"] == (3 if broken == ALICE + "," else 2)


@pytest.mark.parametrize(
    "twice",
    [
        '{"type":"Note","type":"Note","data":{"title":"a"}}',
        '{"type":"Note","data":{"title":"a","title":"b"}}',
        '{"type":"Note","data":{"title":"a" , "title" : "b:"}}',
        '{"type":"Note","data":{"title":"a","titl\\u0065":"b"}}',
    ],
)
def test_a_field_given_twice_is_refused(twice: str) -> None:
    error = refusal(f"{ALICE}\n{twice}\n")
    assert error.code == "duplicate_field" and error.details["record"] == 2


@pytest.mark.parametrize("title", [':"', '": ', ' : " :', 'a":1,"b', "12:30", "\u2028\x7f"])
def test_text_that_looks_like_a_field_is_text(title: str) -> None:
    line = json.dumps({"type": "Note", "data": {"title": title}})
    assert read_records(line, CATALOG).tables["node:Note"].table["title"].to_pylist() == [title]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("7", "invalid_record", marks=pytest.mark.requirement("LOD-02")),
        ("[]", "invalid_record"),
        ("{}", "invalid_record"),
        ('{"type":null}', "invalid_record"),
        ('{"type":["Note"]}', "invalid_record"),
        ('{"data":{"title":"a"}}', "invalid_record"),
        ('{"type":"Ghost"}', "unknown_type"),
        ('{"type":"person","data":{"handle":"a"}}', "unknown_type"),
        ('{"edge":"Haunts","from":"a","to":"b"}', "unknown_type"),
        ('{"edge":"Knows","to":"b"}', "invalid_endpoint"),
        ('{"edge":"Knows","from":"a"}', "invalid_endpoint"),
        ('{"edge":"Knows","from":1,"to":"b"}', "invalid_endpoint"),
        ('{"edge":"Knows","from":"a","to":"\\ud800"}', "invalid_endpoint"),
        pytest.param('{"type":"Note","edge":"Knows"}', "invalid_record", marks=pytest.mark.requirement("LOD-17")),
        ('{"type":"Note","data":{"title":"a"},"note":1}', "unknown_field"),
        ('{"type":"Note","data":{"title":"a"},"from":"b"}', "unknown_field"),
        ('{"type":"Note","data":[]}', "invalid_record"),
        ('{"type":"Note","data":null}', "invalid_record"),
        pytest.param(
            '{"type":"Note","data":{"title":"a","colour":null}}',
            "undeclared_property",
            marks=pytest.mark.requirement("LOD-16"),
        ),
        ('{"edge":"Knows","from":"a","to":"b","data":{"src":"a"}}', "undeclared_property"),
        pytest.param('{"type":"Note"}', "missing_value", marks=pytest.mark.requirement("LOD-14")),
        ('{"type":"Note","data":{"title":7}}', "invalid_value"),
        ('{"type":"Person","data":{"handle":"a","age":"old"}}', "invalid_value"),
        ('{"type":"Person","data":{"handle":"a","age":2147483648}}', "invalid_value"),
        ('{"type":"Person","data":{"handle":"a","age":1e400}}', "invalid_value"),
        ('{"type":"Note","data":{"title":"\\ud800"}}', "invalid_value"),
        pytest.param('{"type":"Person","data":{"age":1}}', "missing_key", marks=pytest.mark.requirement("LOD-05")),
        ('{"type":"Person","data":{"handle":"a","id":"b"}}', "id_mismatch"),
        ('{"type":"Person","data":{"handle":"a","id":null}}', "invalid_id"),
        ('{"type":"Note","data":{"title":"a","id":7}}', "invalid_id"),
        ('{"type":"Note","data":{"title":"a","id":""}}', "invalid_id"),
        ('{"type":"Note","data":{"title":"a","id":"\\ud800"}}', "invalid_id"),
        ('{"edge":"Knows","from":"a","to":"b","data":{"id":null}}', "invalid_id"),
    ],
)
def test_a_bad_record_is_refused_for_what_is_wrong_with_it(line: str, code: str) -> None:
    good = '{"type":"Note","data":{"title":"fine"}}'
    error = refusal(f"{ALICE}\n{MET}\n{line}\n{good}\n{BOB}")
    assert (error.code, error.details["record"]) == (code, 3)
    assert error.message.startswith("record 3")


@pytest.mark.requirement("LOD-14")
def test_a_refused_value_is_named_with_record_type_property_and_value() -> None:
    error = refusal(f'{ALICE}\n{{"type":"Person","data":{{"handle":"x","age":1.5}}}}')
    assert error.details == {"record": 2, "type": "Person", "property": "age", "value": 1.5, "expected": "I32"}


def test_of_several_offences_the_earliest_record_is_reported() -> None:
    late, early = '{"type":"Person","data":{"age":1}}', '{"edge":"Knows","from":"a","to":"b","data":{"since":true}}'
    assert refusal(f"{BOB}\n{early}\n{late}\n{{").details["record"] == 2
    assert refusal(f"{BOB}\n{late}\n{early}").details["record"] == 2


@pytest.mark.requirement("LOD-04")
def test_edge_names_match_in_any_case_and_keep_the_order_of_records() -> None:
    lines = [
        f'{{"edge":"{name}","from":"a","to":"b","data":{{"id":"{name}"}}}}' for name in ("knows", "Knows", "KNOWS")
    ]
    read = read_records("\n".join(lines), CATALOG)
    assert read.tables["edge:Knows"].table["id"].to_pylist() == ["knows", "Knows", "KNOWS"]


@pytest.mark.requirement("LOD-05")
@pytest.mark.requirement("LOD-06")
def test_ids_come_from_the_key_or_the_record_or_are_fresh() -> None:
    text = "\n".join(
        [
            '{"type":"Day","data":{"on":18262}}',
            '{"type":"Day","data":{"on":"2020-01-02","id":"2020-01-02"}}',
            '{"type":"Note","data":{"title":"a"}}',
            '{"type":"Note","data":{"title":"b","id":"b1"}}',
        ]
    )
    read = read_records(text, CATALOG)
    assert read.tables["node:Day"].table["id"].to_pylist() == ["2020-01-01", "2020-01-02"]
    fresh, given_id = read.tables["node:Note"].table["id"].to_pylist()
    assert len(fresh) == 26 and given_id == "b1"
    assert read.tables["node:Day"].explicit.tolist() == [True, True]
    assert read.tables["node:Note"].explicit.tolist() == [False, True]


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join([ALICE, MET, BOB, "", '{"type":"Note",', '"data":{"title":"t","id":"n"}}', ALICE])
    whole = read_records(text, CATALOG)
    monkeypatch.setattr(records, "CHUNK_BYTES", 10)
    monkeypatch.setattr(records, "CHUNK_RECORDS", 1)
    pieces = read_records(text, CATALOG)
    assert pieces.record_count == whole.record_count == 5
    for key, part in whole.tables.items():
        assert pieces.tables[key].table.equals(part.table)
        assert pieces.tables[key].positions.tolist() == part.positions.tolist()
    assert refusal(text + "\n{").details["record"] == 6


def test_the_collector_is_on_again_after_a_read() -> None:
    refusal("{")
    assert gc.isenabled()


NAMES = st.sampled_from(["type", "edge", "data", "from", "to", "id", "age", "handle", "title", "since", "x"])
LEAVES = st.sampled_from(["Person", "Note", "Knows", "knows", "a", "", 1, 1.5, None, True, "2020-01-01", "\ud800"])
DATA = st.dictionaries(NAMES, LEAVES, max_size=3)
ANYTHING = st.one_of(
    LEAVES,
    st.dictionaries(NAMES, LEAVES | DATA, max_size=4),
    st.fixed_dictionaries({"type": st.sampled_from(["Person", "Note", "Day"]), "data": DATA}),
    st.fixed_dictionaries(
        {"edge": st.sampled_from(["Knows", "KNOWS"]), "from": LEAVES, "to": LEAVES}, optional={"data": DATA}
    ),
)


@given(stream=st.lists(ANYTHING, max_size=4), separator=st.sampled_from(["\n", " ", "\n\n "]))
@pytest.mark.requirement("LOD-17")
def test_the_fast_reader_and_the_exact_reader_agree(stream: list[Any], separator: str) -> None:
    first_bad: BadRequest | None = None
    for number, record in enumerate(stream, 1):
        try:
            records.check_record(record, number, CATALOG)
        except BadRequest as refused:
            first_bad = refused
            break
    text = separator.join(json.dumps(record) for record in stream)
    if first_bad is None:
        assert read_records(text, CATALOG).record_count == len(stream)
    else:
        assert refusal(text).to_json() == first_bad.to_json()


@pytest.mark.requirement("MUT-08")
def test_rows_of_a_statement_become_a_table() -> None:
    people = rows_to_table(CATALOG, "node:Person", [{"handle": "zoe", "age": 3}], "statement 1")
    assert people.to_pylist() == [{"id": "zoe", "age": 3, "handle": "zoe"}]
    edges = rows_to_table(CATALOG, "edge:Knows", [{"since": 0}, {}], "statement 2", [("a", "b"), ("c", "d")])
    assert edges["src"].to_pylist() == ["a", "c"] and edges["dst"].to_pylist() == ["b", "d"]
    assert len(set(edges["id"].to_pylist())) == 2
    assert rows_to_table(CATALOG, "node:Note", [], "statement 3").schema == CATALOG.arrow_schema("node:Note")


@pytest.mark.requirement("LOD-16")
@pytest.mark.requirement("VAL-01")
@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"handle": "z", "age": "3"}, "invalid_value"),
        ({"age": 3}, "missing_key"),
        ({"handle": "z", "x": 1}, "undeclared_property"),
    ],
)
def test_a_statement_is_refused_like_a_record(row: dict[str, Any], code: str) -> None:
    with pytest.raises(BadRequest, match="^statement 4: ") as refused:
        rows_to_table(CATALOG, "node:Person", [row], "statement 4")
    assert refused.value.code == code
