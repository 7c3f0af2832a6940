"""A mutation is one commit or nothing: what it changes, what it refuses, and what it leaves alone."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from failpoints.registry import armed, recorded
from reference.errors import BadRequest, Conflict, ExpectedVersionMismatch, InjectedFailure, NotFound, OutcomePending
from reference.graph import Graph
from reference.operations import reading
from reference.operations.branches import create_branch
from reference.protocol.schema_lock import release_schema_lock, take_schema_lock

SCHEMA = """
node Person {
  handle: String @key
  age: I32?
  email: String? @unique
  joined: Date?
  seen: DateTime?
  null: String?
  @range(age, 0..150)
}
node Note { title: String  body: Blob?  cover: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Note @card(1..2)
edge LivesIn: Person -> City @card(0..1)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(str(tmp_path / "graph"), SCHEMA)


def person(handle: str, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "type": "Person", "data": {"handle": handle, **data}}


def note(title: str, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "type": "Note", "data": {"title": title, **data}}


def edge(name: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "edge": name, "from": source, "to": target, "data": data}


def update(type_: str, where: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"op": "update", "type": type_, "where": where, "set": values}


def delete(kind: str, name: str, where: dict[str, Any]) -> dict[str, Any]:
    return {"op": "delete", kind: name, "where": where}


def is_(name: str, op: str, *value: Any) -> dict[str, Any]:
    return {"property": name, "op": op} | ({"value": value[0]} if value else {})


ALL = {"all": True}


def ids(graph: Graph, table_key: str) -> list[str]:
    return [row["id"] for row in graph.read(table_key)]


def versions(graph: Graph) -> dict[str, int]:
    return {key: entry.version for key, entry in graph.snapshot().entries.items()}


def affected(graph: Graph, *statements: dict[str, Any]) -> tuple[int, int]:
    result = graph.mutate(list(statements))
    assert (result.commit is None) == (result.affected_nodes == result.affected_edges == 0)
    return result.affected_nodes, result.affected_edges


# -- inserts and updates ------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-01", "MUT-08", "LIN-02")
def test_a_query_over_several_tables_is_one_commit_with_one_version_per_table(graph: Graph) -> None:
    before, commits = versions(graph), graph.commits()
    result = graph.mutate(
        [person("ann"), person("bob"), person("ann", age=3), note("n", id="n"), edge("Wrote", "ann", "n")], actor="me"
    )
    assert (result.affected_nodes, result.affected_edges) == (4, 1)
    assert result.commit is not None and result.commit.actor_id == "me"
    moved = {key for key, version in versions(graph).items() if version == before[key] + 1}
    assert moved == {"node:Person", "node:Note", "edge:Wrote"}
    assert graph.commits() == [*commits, result.commit]
    assert graph.entity_at("node:Person", "ann") == {
        "id": "ann",
        "age": 3,
        "email": None,
        "handle": "ann",
        "joined": None,
        "null": None,
        "seen": None,
    }


@pytest.mark.requirement("MUT-08", "VAL-07")
def test_an_insert_replaces_the_row_of_the_same_key_and_doubles_what_has_none(graph: Graph) -> None:
    for title in ("one", "one"):
        graph.mutate([person("ann", age=len(graph.read("node:Note"))), note(title)])
    assert [(row["id"], row["age"]) for row in graph.read("node:Person")] == [("ann", 1)]
    notes = ids(graph, "node:Note")
    assert len(notes) == 2 and all(len(note_id) == 26 for note_id in notes)


@pytest.mark.requirement("MUT-04", "MUT-07")
def test_each_statement_sees_what_those_before_it_did(graph: Graph) -> None:
    graph.mutate([person("old", age=40)])
    result = graph.mutate(
        [
            person("new", age=40),
            update("Person", is_("age", "eq", 40), age=41),
            update("Person", {"and": [is_("age", "eq", 41), is_("handle", "eq", "new")]}, email="x@y"),
            update("Person", is_("age", "eq", 40), age=99),
            edge("Knows", "new", "old"),
        ]
    )
    assert (result.affected_nodes, result.affected_edges) == (4, 1)
    rows = [(row["id"], row["age"], row["email"]) for row in graph.read("node:Person")]
    assert rows == [("new", 41, "x@y"), ("old", 41, None)]


@pytest.mark.requirement("VAL-06")
def test_a_unique_value_that_an_earlier_statement_freed_can_be_used(graph: Graph) -> None:
    graph.mutate([person("ann", email="a@x")])
    with pytest.raises(BadRequest) as refused:
        graph.mutate([person("bob", email="a@x")])
    assert refused.value.code == "unique_violation"
    graph.mutate([update("Person", is_("handle", "eq", "ann"), email="other"), person("bob", email="a@x")])
    assert [row["email"] for row in graph.read("node:Person")] == ["other", "a@x"]


@pytest.mark.requirement("MUT-13")
def test_an_update_keeps_the_blobs_that_it_does_not_name(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference.operations.mutate.PROBE_VALUES_MAX", 2)
    contents: list[Any] = ["base64:aGVsbG8=", None, "base64:", "s3://bucket/key", "base64:" + "QUFB" * 9000]
    graph.mutate([note("t", id=str(number), body=body) for number, body in enumerate(contents)])
    graph.mutate([update("Note", ALL, title="new", cover="base64:eA=="), note("also", id="9")])
    rows = graph.read("node:Note")
    assert [row["body"] for row in rows] == [*contents, None]
    assert {row["title"] for row in rows[:5]} == {"new"} and {row["cover"] for row in rows[:5]} == {"base64:eA=="}
    graph.mutate([update("Note", is_("body", "is_null"), body="base64:eQ==")])
    assert [row["body"] for row in graph.read("node:Note")] == [
        contents[0],
        "base64:eQ==",
        *contents[2:],
        "base64:eQ==",
    ]


@pytest.mark.requirement("MUT-14")
def test_now_is_one_moment_in_all_of_a_query(graph: Graph) -> None:
    now = {"now": True}
    before = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    graph.mutate(
        [person("ann", seen=now, joined=now), person("bob"), update("Person", is_("id", "eq", "bob"), seen=now)]
    )
    ann, bob = graph.read("node:Person")
    assert ann["seen"] == bob["seen"]
    taken = datetime.datetime.fromisoformat(ann["seen"])
    assert abs(taken - before) < datetime.timedelta(seconds=30)
    assert ann["joined"] == taken.date().toordinal() - datetime.date(1970, 1, 1).toordinal()
    assert affected(graph, update("Person", is_("seen", "le", now), age=1)) == (2, 0)
    with pytest.raises(BadRequest):
        graph.mutate([person("eve", email=now)])


@pytest.mark.requirement("MUT-08", "LOD-07")
def test_an_id_chosen_by_hand_must_be_free(graph: Graph) -> None:
    graph.mutate([note("a", id="n"), person("ann"), edge("Knows", "ann", "ann", id="k")])
    for statements in (
        [note("b", id="n")],
        [note("b", id="m"), note("c", id="m")],
        [edge("Knows", "ann", "ann", id="k")],
    ):
        with pytest.raises(BadRequest) as refused:
            graph.mutate(statements)
        assert refused.value.code == "row_exists"
    assert ids(graph, "node:Note") == ["n"]


@pytest.mark.requirement("VAL-16")
def test_an_update_finds_rows_by_a_property_whose_name_is_a_word_of_sql(graph: Graph) -> None:
    graph.mutate([person("ann", null="it's"), person("bob")])
    assert affected(graph, update("Person", is_("null", "eq", "it's"), age=1)) == (1, 0)
    assert affected(graph, delete("type", "Person", is_("null", "is_null"))) == (1, 0)
    assert ids(graph, "node:Person") == ["ann"]


def test_large_updates_read_the_table_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PROBE_VALUES_MAX", 2)
    graph.mutate([person(f"p{number}", age=number) for number in range(9)])
    assert affected(graph, update("Person", is_("age", "ge", 3), age=100)) == (6, 0)
    assert sorted(row["age"] for row in graph.read("node:Person")) == [0, 1, 2, *[100] * 6]


# -- deletes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def town(graph: Graph) -> Graph:
    graph.mutate(
        [
            *(person(handle, age=age) for handle, age in (("ann", 1), ("bob", 2), ("eve", None))),
            {"op": "insert", "type": "City", "data": {"name": "rome"}},
            note("n", id="n"),
            edge("Knows", "ann", "ann", id="self"),
            edge("Knows", "ann", "bob", id="ab"),
            edge("Knows", "bob", "eve", id="be"),
            edge("LivesIn", "ann", "rome", id="lives"),
            edge("Wrote", "bob", "n", id="wrote"),
        ]
    )
    return graph


@pytest.mark.requirement("DEL-01", "DEL-02", "DEL-07")
def test_deleting_a_node_deletes_its_edges_in_the_same_commit_each_counted_once(town: Graph) -> None:
    before, snapshot = versions(town), town.snapshot()
    assert affected(town, delete("type", "Person", is_("handle", "eq", "ann"))) == (1, 3)
    assert ids(town, "node:Person") == ["bob", "eve"] and ids(town, "edge:Knows") == ["be"]
    assert ids(town, "edge:LivesIn") == [] and ids(town, "edge:Wrote") == ["wrote"]
    moved = {key: version - before[key] for key, version in versions(town).items() if version != before[key]}
    assert moved == {"node:Person": 1, "edge:Knows": 1, "edge:LivesIn": 1}
    assert town.entity_at("node:Person", "ann", snapshot) is not None
    assert town.snapshot().version == snapshot.version + 1


@pytest.mark.requirement("MUT-11", "DEL-02")
def test_overlapping_deletes_count_each_row_once(town: Graph) -> None:
    counts = affected(
        town,
        delete("edge", "Knows", is_("from", "eq", "ann")),
        delete("type", "Person", is_("age", "lt", 2)),
        delete("type", "Person", is_("age", "lt", 3)),
        delete("edge", "knows", ALL),
    )
    assert counts == (2, 5)
    assert ids(town, "node:Person") == ["eve"], "a null age is not below three"
    assert all(not town.read(key) for key in ("edge:Knows", "edge:LivesIn", "edge:Wrote"))


@pytest.mark.requirement("LIN-03", "MUT-10", "DEL-03")
def test_what_matches_nothing_makes_no_commit_and_moves_no_table(town: Graph) -> None:
    before, version = versions(town), town.snapshot().version
    assert affected(town, delete("type", "Person", is_("age", "gt", 100))) == (0, 0)
    assert affected(town, delete("edge", "Knows", is_("id", "in", []))) == (0, 0)
    assert affected(town, update("Person", is_("handle", "eq", "nobody"), age=1)) == (0, 0)
    assert affected(town) == (0, 0)
    assert versions(town) == before and town.snapshot().version == version


@pytest.mark.requirement("DEL-04")
def test_a_delete_may_not_take_the_last_edge_that_a_source_must_have(town: Graph) -> None:
    with pytest.raises(BadRequest) as refused:
        town.mutate([delete("edge", "Wrote", ALL)])
    assert refused.value.code == "cardinality_violation"
    assert affected(town, delete("type", "Person", is_("handle", "eq", "bob"))) == (1, 3)


@pytest.mark.requirement("DEL-08", "MUT-05")
def test_a_failure_inside_a_cascade_moves_nothing(town: Graph) -> None:
    before = versions(town)
    with armed("mutation.delete_node_pre_primary_delete", "error"), pytest.raises(InjectedFailure):
        town.mutate([delete("type", "Person", ALL)])
    assert versions(town) == before
    assert affected(town, delete("type", "Person", ALL)) == (3, 5)


@pytest.mark.requirement("DEL-06")
def test_a_delete_on_a_branch_leaves_main_alone(town: Graph) -> None:
    create_branch(town.store, "side")
    main = {key: (town.read(key), entry) for key, entry in town.snapshot().entries.items()}
    assert town.mutate([delete("type", "Person", ALL)], branch="side").affected_edges == 5
    side = town.snapshot("side").entries
    assert {key for key, entry in side.items() if entry.branch == "side"} == {
        "node:Person",
        "edge:Knows",
        "edge:LivesIn",
        "edge:Wrote",
    }
    assert {key: (town.read(key), entry) for key, entry in town.snapshot().entries.items()} == main


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-03")
def test_inserts_and_deletes_in_one_query_are_refused_before_anything_is_read(graph: Graph) -> None:
    for other in (person("ann"), update("Person", ALL, age=1)):
        with recorded() as reached, pytest.raises(BadRequest) as refused:
            graph.mutate([other, delete("type", "Person", ALL)], name="clean-up")
        assert refused.value.code == "mixed_mutation" and "clean-up" in refused.value.message
        assert reached == [], "not even the recovery directory is listed"


@pytest.mark.requirement("MUT-09", "MUT-12", "LOD-16", "LOD-17", "VAL-01")
@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("insert", "invalid_statement"),
        ({"type": "Person"}, "invalid_statement"),
        ({"op": "upsert", "type": "Person"}, "invalid_statement"),
        ({"op": "insert"}, "invalid_statement"),
        ({"op": "insert", "type": "Person", "edge": "Knows"}, "invalid_statement"),
        ({"op": "insert", "type": ["Person"]}, "invalid_statement"),
        (person("ann") | {"where": ALL}, "unknown_field"),
        (person("ann") | {"data": []}, "invalid_statement"),
        ({"op": "insert", "edge": "Knows", "from": "ann"}, "missing_field"),
        (edge("Knows", 1, "ann"), "invalid_endpoint"),  # type: ignore[arg-type]
        ({"op": "insert", "type": "Nobody"}, "unknown_type"),
        ({"op": "insert", "type": "Person"}, "missing_key"),
        (note("x", titel="y"), "undeclared_property"),
        ({"op": "insert", "type": "Note"}, "missing_value"),
        (person("ann", age="3"), "invalid_value"),
        (person("ann", age=151), "range_violation"),
        ({"op": "delete", "type": "Person"}, "missing_field"),
        (delete("type", "Person", {}), "invalid_predicate"),
        (delete("type", "Person", is_("handle", "contains", "a")), "unsupported_operator"),
        (delete("type", "Person", is_("nothing", "eq", 1)), "undeclared_property"),
        ({"op": "update", "type": "Person", "set": {"age": 1}}, "missing_field"),
        ({"op": "update", "edge": "Knows", "where": ALL, "set": {"since": None}}, "update_of_edge"),
        (update("Person", ALL), "invalid_statement"),
        (update("Person", ALL, handle="x"), "update_of_key"),
        (update("Person", ALL, id="x"), "undeclared_property"),
        (update("Person", ALL, age=2**31), "invalid_value"),
        (update("Note", ALL, title=None), "missing_value"),
        (edge("Knows", "ann", "nobody"), "orphan_edge"),
    ],
)
def test_a_statement_that_is_wrong_refuses_the_whole_query(graph: Graph, statement: Any, code: str) -> None:
    before = versions(graph)
    first = (
        delete("edge", "Knows", ALL)
        if isinstance(statement, dict) and statement.get("op") == "delete"
        else person("ann")
    )
    with pytest.raises(BadRequest) as refused:
        graph.mutate([first, statement])
    assert refused.value.code == code
    if code not in ("range_violation", "orphan_edge"):
        assert refused.value.message.startswith("statement 2: ")
    assert versions(graph) == before
    assert affected(graph, person("ann")) == (1, 0), "the next mutation is not blocked"


@pytest.mark.requirement("MUT-15", "MUT-16", "SNP-09")
def test_internal_branches_missing_branches_and_locked_graphs_are_not_written(graph: Graph) -> None:
    with pytest.raises(BadRequest) as refused:
        graph.mutate([person("ann")], branch="__schema_apply_lock__")
    assert refused.value.code == "internal_branch"
    with pytest.raises(NotFound):
        graph.mutate([person("ann")], branch="missing")
    reader = Graph.open(graph.store.root.uri, read_only=True)
    with pytest.raises(BadRequest, match="read"):
        reader.mutate([person("ann")])
    take_schema_lock(graph.store.tables, graph.store.manifests)
    with pytest.raises(Conflict) as locked:
        graph.mutate([person("ann")])
    assert locked.value.code == "schema_apply_in_progress"
    release_schema_lock(graph.store.tables, graph.store.manifests)
    assert affected(graph, person("ann")) == (1, 0)


# -- other writers ------------------------------------------------------------------------------------------------


def meanwhile(graph: Graph, *statements: dict[str, Any]) -> Any:
    """Another handle commits after the next mutation has chosen its rows, and before it says so by a sidecar."""
    other = Graph.open(graph.store.root.uri)
    return armed("recovery.sidecar_write", lambda: other.mutate(list(statements)), times=1)


@pytest.mark.requirement("PUB-18", "DEL-05")
@pytest.mark.parametrize("late", [update("Person", ALL, age=9), delete("type", "Person", ALL)])
def test_rows_chosen_on_a_state_that_moved_are_not_written(town: Graph, late: dict[str, Any]) -> None:
    with meanwhile(town, person("new")), pytest.raises(ExpectedVersionMismatch):
        town.mutate([late])
    assert ids(town, "node:Person") == ["ann", "bob", "eve", "new"]
    assert {row["age"] for row in town.read("node:Person")} == {1, 2, None}


@pytest.mark.requirement("PUB-18", "VAL-11")
def test_an_insert_is_run_again_on_what_others_have_committed(town: Graph) -> None:
    with meanwhile(town, edge("LivesIn", "bob", "rome")):
        town.mutate([edge("LivesIn", "eve", "rome")])
    assert len(town.read("edge:LivesIn")) == 3
    with meanwhile(town, edge("LivesIn", "bob", "rome")), pytest.raises(BadRequest):
        town.mutate([edge("LivesIn", "ann", "rome")])


@pytest.mark.requirement("VAL-09", "PUB-23")
def test_an_edge_to_a_node_that_is_deleted_meanwhile_is_a_conflict(town: Graph) -> None:
    town.mutate([{"op": "insert", "type": "City", "data": {"name": "oslo"}}])
    with meanwhile(town, delete("type", "City", is_("name", "eq", "oslo"))), pytest.raises(Conflict) as lost:
        town.mutate([edge("LivesIn", "eve", "oslo")])
    assert lost.value.code == "read_set_changed"
    with meanwhile(town, delete("type", "City", ALL)), pytest.raises(BadRequest) as refused:
        town.mutate([edge("LivesIn", "eve", "rome")])
    assert refused.value.code == "orphan_edge", "its own table moved too, so it was run again and found no city"
    assert town.read("edge:LivesIn") == []


@pytest.mark.requirement("VAL-09", "PUB-23")
def test_a_node_that_gets_an_edge_meanwhile_is_not_deleted(town: Graph) -> None:
    town.mutate([{"op": "insert", "type": "City", "data": {"name": "oslo"}}])
    with meanwhile(town, edge("LivesIn", "eve", "oslo")), pytest.raises(Conflict) as lost:
        town.mutate([delete("type", "City", is_("name", "eq", "oslo"))])
    assert lost.value.code == "read_set_changed"
    assert ids(town, "node:City") == ["oslo", "rome"]


@pytest.mark.requirement("MUT-02", "PUB-23")
def test_a_cut_between_the_tables_and_the_publish_is_recovered(town: Graph) -> None:
    with armed("mutation.post_finalize_pre_publisher", "error"), pytest.raises(OutcomePending):
        town.mutate([person("new")])
    assert "new" not in ids(town, "node:Person")
    town.mutate([person("next")])
    assert {"new", "next"} <= set(ids(town, "node:Person")), "the next writer finishes what was cut"


@pytest.mark.requirement("PUB-08")
def test_many_threads_insert_at_once_and_none_is_lost(graph: Graph) -> None:
    def insert(number: int) -> None:
        Graph.open(graph.store.root.uri).mutate([person(f"p{number}")])

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(graph, "node:Person") == ["p0", "p1", "p2", "p3"]
    assert len(graph.commits()) == 5


# -- cost ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("COST-04", "COST-08")
def test_a_keyed_insert_opens_no_table_that_it_does_not_write(town: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = reading.read_entry

    def spy(store: Any, entry: Any, **rest: Any) -> Any:
        read.append(entry.table_key)
        return original(store, entry, **rest)

    monkeypatch.setattr(reading, "read_entry", spy)
    town.mutate([{"op": "insert", "type": "City", "data": {"name": "oslo"}}])
    assert read == []
    town.mutate([edge("LivesIn", "eve", "oslo")])
    assert sorted(read) == ["edge:LivesIn", "node:City", "node:Person"]


def test_a_look_up_reads_few_values_by_filter_and_many_by_column(town: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = town.snapshot().entries["node:Person"]
    schema = pa.schema([("id", pa.string()), ("age", pa.int32())])

    def found(column: str, wanted: Any) -> list[str]:
        rows = reading.read_matching(town.store, entry, schema, column, wanted)
        return sorted(rows["id"].to_pylist())

    for most in (1_000, 0):
        monkeypatch.setattr(reading, "PROBE_VALUES_MAX", most)
        assert found("id", pa.array(["eve", "it's", "bob"])) == ["bob", "eve"]
        assert found("age", pa.array([2, 7], pa.int32())) == ["bob"]
        assert found("id", None) == ["ann", "bob", "eve"]
        assert found("id", pa.array([], pa.string())) == []
