"""LOD: a load takes a stream of records and is one commit, or is refused and is nothing.

Appends add, merges replace by id, overwrites replace the tables that they name. In every mode an id names one row, the
state that the load would make is what is validated, and nothing in a record is ignored.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    as_statement,
    data_commits,
    delete,
    edge,
    insert,
    insert_edge,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import DEFINITE, refused

MODES: Final = ("append", "merge", "overwrite")
KEYLESS: Final = "node Note { text: String? }\nedge Cites: Note -> Note { page: I32? }"


def versions(graph: JudgedGraph) -> dict[str, int]:
    return {each["table_key"]: each["table_version"] for each in graph.handle.snapshot()["tables"]}


# -- one change ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-01")
@pytest.mark.parametrize("mode", MODES)
def test_a_load_is_one_commit_whatever_its_mode(judged: Judged, forge: ForgeOf, mode: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"), insert("Company", name="b"), insert_edge("Knows", "dan", "ann"))
    disk = forge(graph.uri)
    before = {key: disk.pin(key) for key in ("node:Person", "node:Company", "edge:Knows")}
    commits = len(graph.handle.commits())
    kept = [] if mode == "append" else [person(name) for name in ("ann", "bob", "cat", "dan")]
    companies = [] if mode == "append" else [node("Company", name="acme")]

    with proving("LOD-01"):
        records = [*kept, person("eve"), *companies, node("Company", name="c"), edge("Knows", "eve", "ann")]
        answer = graph.load(records, mode, actor="loader")
        assert (answer["branch"], answer["nodes_loaded"], answer["edges_loaded"]) == ("main", len(records) - 1, 1)
        assert len(graph.handle.commits()) == commits + 1
        for key, version in before.items():
            assert data_commits(disk, key, version) == 1, f"a load is one commit of {key}"


@pytest.mark.requirement("LOD-01")
def test_a_load_of_many_tables_is_still_one_commit(judged: Judged) -> None:
    """Files may be written side by side; what becomes visible is one change."""
    graph = judged("".join(f"node T{n} {{ name: String @key\n n: I32? }}\n" for n in range(12)))
    records = [node(f"T{n % 12}", name=f"row {n}", n=n) for n in range(600)]

    with proving("LOD-01"):
        graph.load(records, "append")
        assert len(graph.handle.commits()) == 2
        assert {each["row_count"] for each in graph.handle.snapshot()["tables"]} == {50}


# -- the input -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-02")
@pytest.mark.parametrize(
    "data",
    [
        '{"type":"Note","data":{"id":"a"}}{"type":"Note","data":{"id":"b"}}',
        '{"type":"Note","data":{"id":"a"}} \t {"type":"Note","data":{"id":"b"}}',
        '\r\n\r\n{"type":"Note","data":{"id":"a"}}\r\n\r\n{"type":"Note","data":{"id":"b"}}\r\n',
        json.dumps(node("Note", id="a"), indent=4) + "\n" + json.dumps(node("Note", id="b"), indent="\t"),
        '{"data":{"id":"a","text":null},"type":"Note"}\n{ "type" : "Note" , "data" : { "id" : "b" } }',
    ],
    ids=["nothing", "spaces and tabs", "empty lines", "pretty", "fields in any order"],
)
def test_records_may_have_any_whitespace_between_them(judged: Judged, data: str) -> None:
    with proving("LOD-02"):
        graph = judged(KEYLESS, data)
        assert [row["id"] for row in graph.handle.read("node:Note")] == ["a", "b"]


@pytest.mark.requirement("LOD-02")
def test_a_record_needs_no_data(judged: Judged) -> None:
    graph = judged(KEYLESS, [node("Note", id="a")])

    with proving("LOD-02"):
        graph.load('{"type":"Note"}{"type":"Note","data":{}}{"edge":"Cites","from":"a","to":"a"}')
        assert (len(graph.handle.read("node:Note")), len(graph.handle.read("edge:Cites"))) == (3, 1)


BAD_RECORDS: Final = {
    "broken json": '{"type":"Person","data":{"name":"x"}',
    "a missing quote": '{"type:"Person"}',
    "a bare word": "Person",
    "a list": '[{"type":"Person","data":{"name":"x"}}]',
    "a text": '"Person"',
    "an empty object": "{}",
    "only data": '{"data":{"name":"x"}}',
    "an unknown node type": '{"type":"Robot","data":{"name":"x"}}',
    "a node type in another case": '{"type":"person","data":{"name":"x"}}',
    "an edge type as a node": '{"type":"Knows","data":{}}',
    "a node type as an edge": '{"edge":"Person","from":"ann","to":"bob"}',
    "an unknown edge type": '{"edge":"Hates","from":"ann","to":"bob"}',
    "no source": '{"edge":"Knows","to":"bob"}',
    "no target": '{"edge":"Knows","from":"ann"}',
    "a source of no text": '{"edge":"Knows","from":1,"to":"bob"}',
    "a target that is null": '{"edge":"Knows","from":"ann","to":null}',
    "data that is no object": '{"type":"Person","data":["x"]}',
}


@pytest.mark.requirement("LOD-02")
def test_a_bad_record_is_refused_and_named_by_its_number(judged: Judged) -> None:
    """Counting from nought is counting too."""
    graph = judged(SOCIAL, PEOPLE)
    good = [person(f"p{chr(97 + n)}") for n in range(40)]

    with proving("LOD-02"):
        for what, bad in BAD_RECORDS.items():
            data = lines(*good[:36]) + bad + "\n" + lines(*good[36:])
            error = refused("bad_request", partial(graph.handle.load, data), what)
            said = f"{error.message} {error.hint} {error.details}"
            assert "37" in said or "36" in said, f"{what}: it is record 37, and the refusal says {said}"
        graph.compare("only refused loads", "LOD-02")


@pytest.mark.requirement("LOD-17")
@pytest.mark.parametrize(
    "record",
    [
        {"type": "Person", "edge": "Knows", "from": "ann", "to": "bob", "data": {"name": "x"}},
        {"type": "Person", "data": {"name": "x"}, "extra": 1},
        {"type": "Person", "data": {"name": "x"}, "id": "x"},
        {"type": "Person", "data": {"name": "x"}, "from": "ann"},
        {"type": "Person", "name": "x"},
        {"edge": "Knows", "from": "ann", "to": "bob", "since": 2020},
        {"edge": "Knows", "from": "ann", "to": "bob", "src": "ann"},
    ],
    ids=["type and edge", "extra", "id outside", "from on a node", "no data", "property outside", "src"],
)
def test_a_field_that_no_record_has_makes_it_invalid(judged: Judged, record: dict[str, Any]) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("LOD-17"):
        for mode in ("append", "merge"):
            refused("bad_request", partial(graph.load, [record], mode), f"{record} ({mode})")


@pytest.mark.requirement("LOD-17")
@pytest.mark.parametrize(
    ("type_name", "spelled", "again", "stored"),
    [
        ("I32", -7, -7, -7),
        ("U64", 2**64 - 1, 2**64 - 1, 2**64 - 1),
        ("Bool", False, False, False),
        ("F64", 0.5, 0.5, 0.5),
        ("Date", "1969-12-31", -1, -1),
        ("DateTime", "2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00", "2026-01-02T03:04:05"),
        ("enum(a, b)", "a", "a", "a"),
    ],
    ids=["I32", "U64", "Bool", "F64", "Date", "DateTime", "enum"],
)
def test_a_key_is_a_value_of_its_type(
    engine: Engine, root: str, type_name: str, spelled: Any, again: Any, stored: Any
) -> None:
    """However a value is spelled, it is one row. What its id looks like is asked elsewhere."""
    engine.init(root, f"node Item {{ k: {type_name} @key\n n: I32? }}\nedge Next: Item -> Item")
    handle = engine.open(root)

    with proving("LOD-17"):
        handle.load(lines(node("Item", k=spelled, n=1)), "append")
        handle.load(lines(node("Item", k=again, n=2)), "merge")
        handle.mutate(insert("Item", k=spelled, n=3))
        row, *others = (json.loads(each)["data"] for each in handle.export(types=["Item"]).splitlines())
        assert not others, f"one key is one row, and there are {[row, *others]}"
        assert (row["k"], row["n"]) == (stored, 3)
        handle.load(lines(edge("Next", row["id"], row["id"])))
        wrong = [None, [spelled], {"k": spelled}, str(spelled) + "?"]
        for value in wrong:
            refused("bad_request", partial(handle.load, lines(node("Item", k=value))), f"the key {value!r}")


@pytest.mark.requirement("LOD-16")
def test_a_property_that_is_not_declared_is_refused_by_name(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    strange = "shoe_size"

    with proving("LOD-16"):
        for record in (
            person("new", shoe_size=44),
            person("ann", shoe_size=None),
            edge("Knows", "ann", "bob", shoe_size=1),
            edge("WorksAt", "bob", "acme", shoe_size=1),
        ):
            calls = [partial(graph.handle.load, lines(record), mode) for mode in MODES]
            for call in (*calls, partial(graph.handle.mutate, as_statement(record))):
                error = refused("bad_request", call, f"the undeclared property of {record}")
                said = f"{error.message} {error.hint} {error.details}"
                assert strange in said, f"the refusal must name '{strange}', and says {said}"
        change = update("Person", where("name", "ann"), shoe_size=1)
        assert strange in str(refused("bad_request", partial(graph.handle.mutate, change)))
        for name in ("Age", "src", "_rowid", "name "):
            refused(
                "bad_request", partial(graph.handle.load, lines(person("new", **{name: 1}))), f"the property {name!r}"
            )
        graph.compare("only refused writes", "LOD-16")


@pytest.mark.requirement("LOD-15")
def test_a_load_computes_no_embeddings(judged: Judged) -> None:
    schema = 'node Doc { name: String @key\n body: String?\n face: Vector(3)? @embed("body") }'

    with proving("LOD-15"):
        graph = judged(schema, [node("Doc", name="a", body="words"), node("Doc", name="b", body="x", face=[1, 2, 3])])
        graph.mutate(insert("Doc", name="c", body="more words"))
        assert [row["face"] for row in graph.handle.read("node:Doc")] == [None, [1.0, 2.0, 3.0], None]


# -- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-04")
def test_edge_types_are_found_in_any_case_and_stored_in_their_own(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("LOD-04"):
        graph.load([edge(name, "ann", "cat", id=name) for name in ("knows", "KNOWS", "kNoWs")], "append")
        graph.load([edge("worksat", "bob", "acme", id="w9")], "merge")
        stored = {json.loads(each)["edge"] for each in graph.handle.export(tables=["edge:Knows"]).splitlines()}
        assert stored == {"Knows"}


@pytest.mark.requirement("LOD-05")
def test_a_key_makes_the_id_and_without_one_it_is_given_or_new(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann", id="ann"), person("bob")])
    given = {"it's mine", "ünï/\U0001f600"}
    notes = judged(KEYLESS, [*(node("Note", id=each) for each in sorted(given)), node("Note"), node("Note")])

    with proving("LOD-05"):
        for bad in (node("Person", age=1), node("Person", name=None), person("cat", id="dog"), person("cat", id="Cat")):
            for mode in ("append", "merge"):
                refused("bad_request", partial(graph.load, [bad], mode), f"{bad} ({mode})")
            refused("bad_request", partial(graph.mutate, as_statement(bad)), f"{bad} (insert)")
        refused("bad_request", partial(graph.load, [person("cat", id=7)]), "an id that is no text")
        fresh = {row["id"] for row in notes.handle.read("node:Note")} - given
        assert len(fresh) == 2 and all(len(each) == 26 and each.isalnum() for each in fresh), f"fresh ids are {fresh}"
        notes.load([edge("Cites", "it's mine", min(fresh)), edge("Cites", "ünï/\U0001f600", "it's mine", id="c'1")])


@pytest.mark.requirement("LOD-06")
@pytest.mark.parametrize("mode", MODES)
def test_an_id_names_one_record_of_a_load(judged: Judged, mode: str) -> None:
    graph = judged(SOCIAL, [person("old"), node("Company", name="old")])
    notes = judged(KEYLESS, [node("Note", id="a")])

    with proving("LOD-06"):
        keep = [person("old"), node("Company", name="old")] if mode == "overwrite" else []
        refused("bad_request", partial(graph.load, [*keep, person("x"), person("y"), person("x")], mode), "a key twice")
        refused(
            "bad_request", partial(graph.load, [*keep, person("x", age=1), person("x", age=2)], mode), "with changes"
        )
        twins = [edge("Knows", "old", "old", id="k"), edge("Knows", "old", "old", id="k")]
        refused("bad_request", partial(graph.load, [*keep, *twins], mode), "the id of an edge twice")
        refused("bad_request", partial(notes.load, [node("Note", id="b"), node("Note", id="b")], mode), "an id twice")
        others = [person("x"), node("Company", name="x"), edge("Knows", "x", "x", id="x")]
        graph.load([*keep, *others], mode)  # In two tables it names two rows.


@pytest.mark.requirement("LOD-07")
def test_an_append_never_touches_a_row_that_is_there(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    notes = judged(KEYLESS, [node("Note", id="a"), node("Note", id="b"), edge("Cites", "a", "b", id="c")])
    branches = ["main"]
    if graph.engine.supports("branch_create"):
        graph.branch_create("feat")
        branches.append("feat")

    with proving("LOD-07"):
        for branch in branches:
            for records in (
                [person("ann")],
                [person("new"), person("cat", age=1)],
                [edge("Knows", "ann", "bob", id="k2")],
            ):
                refused(DEFINITE, partial(graph.load, records, "append", branch=branch), f"{records} on {branch}")
        refused(DEFINITE, partial(notes.load, [node("Note", id="a", text="x")], "append"), "a given id")
        refused(DEFINITE, partial(notes.load, [edge("Cites", "b", "a", id="c")], "append"), "a given id of an edge")
        graph.mutate(delete("Person", where("name", "ann")))
        graph.load([person("ann", age=1)], "append")  # What was deleted is free again.
        refused(DEFINITE, partial(graph.load, [person("ann")], "append"), "and then taken")


@pytest.mark.requirement("LOD-06")
def test_an_insert_with_a_given_id_never_makes_a_second_row_of_it(judged: Judged) -> None:
    handle = judged(KEYLESS, [node("Note", id="a", text="old"), edge("Cites", "a", "a", id="c", page=1)]).handle

    with proving("LOD-06"):
        for statement in (insert("Note", id="a", text="new"), insert_edge("Cites", "a", "a", id="c", page=2)):
            try:
                handle.mutate(statement)
            except EngineError as error:
                assert error.kind == "bad_request", f"{statement} was refused as {error}"
        assert [row["id"] for row in handle.read("node:Note")] == ["a"]
        assert [row["id"] for row in handle.read("edge:Cites")] == ["c"]
