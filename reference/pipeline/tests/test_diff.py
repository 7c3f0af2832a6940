"""The diff on Spark is the engine's diff, for every way in which a table can get from one state to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.forge import Forge
from reference.errors import BadRequest, NotFound
from reference.graph import Graph
from reference.pipeline.diff import diff, snapshot_at
from reference.pipeline.tests.graphs import SCHEMA, knows, person, rich_graph, text
from reference.protocol.manifests import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = 1_000_000
Changes = set[tuple[str, str, str]]


def named(number: int) -> dict[str, str]:
    return {"property": "name", "op": "eq", "value": person(number)["data"]["name"]}


def by_engine(graph: Graph, older: Snapshot, newer: Snapshot) -> Changes:
    return {(change.table_key, change.op, change.row_id) for change in graph.diff(older, newer).changes}


def on_spark(spark: SparkSession, graph: Graph, older: Snapshot, newer: Snapshot) -> Changes:
    found = diff(spark, graph, older, newer, samples=ALL)
    for table in found.tables:
        assert {op: len(rows) for op, rows in table.samples.items()} == dict(table.counts)
    return {
        (table.table_key, op, row["id"]) for table in found.tables for op, rows in table.samples.items() for row in rows
    }


@pytest.mark.requirement("CHG-02", "CHG-03", "CHG-04")
def test_every_kind_of_history_gives_what_the_engine_says(spark: SparkSession, tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=40)
    points = {"start": graph.snapshot()}
    # Of two upserted people one is as before; blobs differ in their content, or in being there at all.
    graph.load(
        text([person(1), person(2, age=99), person(3, photo="base64:eA=="), person(4, photo=None)]), mode="merge"
    )
    graph.mutate(
        [{"op": "insert", **person(50)}, {"op": "update", "type": "Person", "where": named(5), "set": {"size": -0.0}}]
    )
    graph.mutate([{"op": "delete", "type": "Person", "where": named(7)}])
    points["written"] = graph.snapshot()
    graph.optimize()
    points["optimized"] = graph.snapshot()
    graph.branch_create("side")
    graph.mutate([{"op": "update", "type": "Person", "where": named(9), "set": {"words": ["x"]}}], branch="side")
    graph.mutate([{"op": "update", "type": "Person", "where": named(11), "set": {"age": 1}}])
    points["side"], points["main"] = graph.snapshot("side"), graph.snapshot()
    graph.load(text([person(1), person(60)] + [knows(0, 1, 60)]), mode="overwrite", branch="side")
    points["overwritten"] = graph.snapshot("side")

    pairs = [
        ("start", "written"),
        ("written", "start"),
        ("written", "optimized"),
        ("start", "optimized"),
        ("side", "main"),
        ("main", "side"),
        ("start", "side"),
        ("main", "overwritten"),
    ]
    for older, newer in pairs:
        found = on_spark(spark, graph, points[older], points[newer])
        assert found == by_engine(graph, points[older], points[newer]), (older, newer)
        assert found or (older, newer) == ("written", "optimized"), "something must be compared"


def test_a_schema_change_is_what_the_engine_says(spark: SparkSession, tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=4)
    before = graph.snapshot()
    graph.schema_apply(
        SCHEMA.replace("size: F32?", "size: F32?\n  shoe: I32?") + "node New {\n  name: String @key\n}\n"
    )
    graph.load(text([{"type": "New", "data": {"name": "x"}}]), mode="append")
    after = graph.snapshot()
    for older, newer in ((before, after), (after, before)):
        found = on_spark(spark, graph, older, newer)
        assert found == by_engine(graph, older, newer)
        assert any(table == "node:New" for table, _, _ in found)


def test_a_column_that_was_dropped_in_place_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """This engine rewrites a table for another schema. Lance can drop a column alone, and compact what is left: every
    file is new then, every row has one value less, and the row versions say that nobody wrote it."""
    graph = rich_graph(tmp_path / "graph", people=4)
    older = graph.snapshot()

    def drop_and_compact(table: Any) -> None:
        table.drop_columns(["text"])
        table.optimize.compact_files()

    Forge(str(tmp_path / "graph")).amend("node:Note", drop_and_compact)
    graph = Graph.open(str(tmp_path / "graph"))
    graph.mutate([{"op": "insert", **person(50)}])
    newer = graph.snapshot()
    assert len(graph_files(graph, "node:Note")) == 2, "the table was compacted"
    found = on_spark(spark, graph, older, newer)
    assert found == by_engine(graph, older, newer) == {("node:Person", "insert", person(50)["data"]["name"])}


def test_what_did_not_change_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=60)
    older = graph.snapshot()
    files = set(graph_files(graph, "node:Person"))
    graph.mutate([{"op": "update", "type": "Person", "where": named(1), "set": {"age": 7}}])
    graph.load(text([person(70)]), mode="append")
    newer = graph.snapshot()
    expected = by_engine(graph, older, newer)
    # Person 1 is in the first of three fragments. Nobody needs the other two, nor the edges.
    untouched = [path for path in files if not holds(graph, older, path)]
    assert len(untouched) == 2
    for path in [*untouched, *graph_files(graph, "edge:Knows")]:
        path.write_bytes(b"")

    found = diff(spark, graph, older, newer, samples=0)

    assert {op: sum(table.counts[op] for table in found.tables) for op in ("insert", "update", "delete")} == {
        op: sum(change[1] == op for change in expected) for op in ("insert", "update", "delete")
    }
    assert "edge:Knows" in found.unread and "node:Person" not in found.unread


def graph_files(graph: Graph, table_key: str) -> list[Path]:
    entry = graph.snapshot().entries[table_key]
    return sorted((Path(graph.store.root.path) / entry.path / "data").glob("*.lance"))


def holds(graph: Graph, snapshot: Snapshot, path: Path) -> bool:
    """Whether a data file is that of the fragment with person 1."""
    entry = snapshot.entries["node:Person"]
    handle = graph.store.tables.open(entry.path, entry.branch, entry.version)
    for fragment in handle.get_fragments():
        if path.name in fragment.metadata.to_json()["files"][0]["path"]:
            return person(1)["data"]["name"] in fragment.to_table(columns=["id"])["id"].to_pylist()
    return False


def test_samples_are_the_first_rows_with_their_values(spark: SparkSession, tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=10)
    older = graph.snapshot()
    graph.load(text([person(number, age=1_000) for number in range(1, 9)]), mode="merge")
    body = diff(spark, graph, older, graph.snapshot(), samples=2).to_json()
    (people,) = body["tables"]
    assert (people["inserts"], people["updates"], people["deletes"]) == (0, 8, 0)
    rows = people["samples"]["update"]
    ids = sorted((person(number)["data"]["name"] for number in range(1, 9)), key=str.encode)
    assert [row["id"] for row in rows] == ids[:2]
    assert all(row["after"]["age"] == 1_000 and row["before"]["age"] != 1_000 for row in rows)
    assert body["stats"] == {"inserts": 0, "updates": 8, "deletes": 0, "types_affected": ["Person"]}


def test_states_are_named_by_branch_version_and_commit(tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=2)
    last = graph.commits()[-1]
    assert snapshot_at(graph, "main") == graph.snapshot()
    assert snapshot_at(graph, f"main@{last.manifest_version}").version == last.manifest_version
    assert snapshot_at(graph, last.graph_commit_id).version == last.manifest_version
    assert snapshot_at(graph, f"commit:{last.graph_commit_id}").version == last.manifest_version
    with pytest.raises(NotFound) as missing:
        snapshot_at(graph, "nowhere")
    assert missing.value.code == "point_not_found"
    with pytest.raises(BadRequest):
        snapshot_at(graph, "main@latest")
