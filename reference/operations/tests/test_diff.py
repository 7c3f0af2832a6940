"""What changed between two snapshots, against a naive comparison of all rows."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.errors import BadRequest, MergeConflicts
from reference.format.manifest import TableEntry
from reference.graph import Graph
from reference.operations import merge_rows
from reference.operations.tests.people import (
    add_person,
    add_place,
    ages,
    new_graph,
    person,
    remove_person,
    set_age,
)
from reference.protocol.manifests import Snapshot
from reference.protocol.publish import Changes


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def changes(graph: Graph, older: Snapshot, newer: Snapshot) -> set[tuple[str, str, str]]:
    found = graph.diff(older, newer).to_json()["changes"]
    return {(change["table_key"], change["id"], change["op"]) for change in found}


@pytest.mark.requirement("CHG-01")
def test_a_diff_says_what_happened_to_which_row_and_which_nodes_an_edge_joined(graph: Graph) -> None:
    older = graph.snapshot()
    add_person(graph, "main", "Eve", 1)
    set_age(graph, "main", "Alice", 2)
    (edge,) = graph.read("edge:Knows", older)
    remove_person(graph, "main", "Carol")
    newer = graph.snapshot()

    def row(name: str, op: str) -> dict[str, Any]:
        return {"table_key": "node:Person", "kind": "node", "type_name": "Person", "id": name, "op": op} | {
            "manifest_version": newer.version
        }

    assert graph.diff(older, newer).to_json() == {
        "from_version": older.version,
        "to_version": newer.version,
        "branch": "main",
        "changes": [
            {
                "table_key": "edge:Knows",
                "kind": "edge",
                "type_name": "Knows",
                "id": edge["id"],
                "op": "delete",
                "manifest_version": newer.version,
                "endpoints": {"src": "Bob", "dst": "Carol"},
            },
            row("Alice", "update"),
            row("Carol", "delete"),
            row("Eve", "insert"),
        ],
        "stats": {"inserts": 1, "updates": 1, "deletes": 2, "types_affected": ["Knows", "Person"]},
    }


@pytest.mark.requirement("CHG-01")
def test_a_diff_of_commits_is_filtered_by_type_and_by_op(graph: Graph) -> None:
    first = graph.commits()[-1].graph_commit_id
    add_person(graph, "main", "Eve", 1)
    set_age(graph, "main", "Alice", 2)
    add_place(graph, "main", "Oslo", "p")
    last = graph.commits()[-1].graph_commit_id
    older, newer = graph.snapshot(commit=first), graph.snapshot(commit=last)
    assert [change.row_id for change in graph.diff(older, newer, types=["Place"]).changes] == ["p"]
    assert [change.row_id for change in graph.diff(older, newer, ops=["update"]).changes] == ["Alice"]
    for wrong in ({"types": ["Nothing"]}, {"ops": ["upsert"]}):
        with pytest.raises(BadRequest):
            graph.diff(older, newer, **wrong)


@pytest.mark.requirement("CHG-03")
def test_a_row_that_came_and_went_leaves_no_change(graph: Graph) -> None:
    older = graph.snapshot()
    add_person(graph, "main", "Eve")
    remove_person(graph, "main", "Eve")
    assert changes(graph, older, graph.snapshot()) == set()


@pytest.mark.requirement("CHG-03")
def test_a_table_that_only_one_snapshot_has_is_all_inserts_or_all_deletes(graph: Graph) -> None:
    whole = graph.snapshot()
    partial = Snapshot(None, whole.version, whole.stamp, {"edge:Knows": whole.entry("edge:Knows")})
    assert {op for _, _, op in changes(graph, partial, whole)} == {"insert"}
    assert {op for _, _, op in changes(graph, whole, partial)} == {"delete"}


@pytest.mark.requirement("CHG-04", "IDX-01")
def test_compaction_and_indexes_are_no_changes(graph: Graph) -> None:
    add_person(graph, "main", "Eve")
    older = graph.snapshot()
    entry = older.entry("node:Person")
    handle = graph.store.tables.open_latest(entry.path, None)
    handle.create_scalar_index("id", "BTREE")
    graph.store.tables.compact(handle)
    moved = TableEntry(entry.table_key, entry.path, handle.version, None, entry.row_count)
    assert moved.version > entry.version + 1, "the compaction had nothing to do"
    graph.store.publisher.publish(None, Changes(updates=(moved,)), {}, None)
    assert changes(graph, older, graph.snapshot()) == set()


@pytest.mark.requirement("CHG-04", "LAY-07")
def test_an_overwrite_reports_the_rows_that_it_changed(graph: Graph) -> None:
    older = graph.snapshot()
    rows = [person("Alice", 30), person("Bob", 99), person("Carol", 32)]
    graph.load("\n".join(rows), mode="overwrite")
    found = changes(graph, older, graph.snapshot())
    assert {("node:Person", "Bob", "update"), ("node:Person", "Dan", "delete")} <= found


@pytest.mark.requirement("CHG-02", "BRA-08")
def test_siblings_that_count_their_versions_alike_are_compared_by_value(graph: Graph) -> None:
    for branch, age in (("left", 1), ("right", 2)):
        graph.branch_create(branch)
        set_age(graph, branch, "Alice", age)
    left, right = graph.snapshot("left"), graph.snapshot("right")
    assert left.entry("node:Person").version == right.entry("node:Person").version
    assert changes(graph, left, right) == {("node:Person", "Alice", "update")}


@pytest.mark.requirement("CHG-02", "CHG-05", "COST-06")
def test_rows_that_no_commit_touched_are_not_read(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.branch_create("feature")
    set_age(graph, "feature", "Alice", 1)
    compared: list[frozenset[str]] = []
    compare = merge_rows.differing

    def spy(*arguments: Any) -> frozenset[str]:
        compared.append(arguments[3])
        return compare(*arguments)

    monkeypatch.setattr(merge_rows, "differing", spy)
    assert changes(graph, graph.snapshot("main"), graph.snapshot("feature")) == {("node:Person", "Alice", "update")}
    assert compared == [frozenset({"Alice"})]


@pytest.mark.requirement("CHG-02")
def test_many_rows_are_compared_as_a_few_are(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    older = graph.snapshot()
    graph.load("\n".join(person(name, 1) for name in ("Alice", "Bob", "O'Neil", "Zoë")), mode="merge")
    few = changes(graph, older, graph.snapshot())
    monkeypatch.setattr(merge_rows, "LOOKED_UP_MAX", 1)
    assert changes(graph, older, graph.snapshot()) == few
    assert few == {("node:Person", "Alice", "update"), ("node:Person", "Bob", "update")} | {
        ("node:Person", name, "insert") for name in ("O'Neil", "Zoë")
    }


names = st.sampled_from("abcd")
writes = st.one_of(
    st.tuples(st.just("put"), names, st.sampled_from([None, 1, 2])),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("merge")),
)
history = st.lists(st.tuples(st.sampled_from(["main", "feature"]), writes), min_size=4, max_size=10)


@pytest.mark.requirement("CHG-02", "CHG-03")
@settings(max_examples=6, deadline=None)
@given(steps=history)
def test_every_diff_of_a_history_equals_the_naive_comparison(steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        graph = Graph.init(f"{directory}/graph", "node Person { name: String @key  age: I32? }")
        graph.branch_create("feature")
        seen = [(graph.snapshot("main"), ages(graph))]
        for branch, step in steps:
            write(graph, branch, step)
            seen.append((graph.snapshot(branch), ages(graph, branch)))
        for older, before in seen:
            for newer, after in seen:
                assert changes(graph, older, newer) == naive(before, after)


def write(graph: Graph, branch: str, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", name, age):
            record = {"type": "Person", "data": {"name": name, "age": age}}
            graph.load(json.dumps(record), mode="merge", branch=branch)
        case ("remove", name):
            remove_person(graph, branch, name)
        case _:
            merge_unless_they_conflict(graph, branch)


def merge_unless_they_conflict(graph: Graph, target: str) -> None:
    with suppress(MergeConflicts):
        graph.merge("feature" if target == "main" else "main", target)


def naive(before: dict[str, int | None], after: dict[str, int | None]) -> set[tuple[str, str, str]]:
    found = {(name, "insert") for name in after.keys() - before.keys()}
    found |= {(name, "delete") for name in before.keys() - after.keys()}
    found |= {(name, "update") for name in before.keys() & after.keys() if before[name] != after[name]}
    return {("node:Person", name, op) for name, op in found}
