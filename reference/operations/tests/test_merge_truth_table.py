"""Every operation on a branch against every operation on main, merged: the 36 cells of the truth table [MRG-04]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reference.errors import MergeConflicts
from reference.graph import Graph
from reference.operations.tests.people import (
    add_edge,
    add_person,
    ages,
    friendships,
    new_graph,
    remove_edges_of,
    remove_person,
    set_age,
)

Operation = Callable[[Graph, str, int], object]

OPERATIONS: dict[str, Operation] = {
    "noop": lambda graph, branch, age: None,
    "addNode": lambda graph, branch, age: add_person(graph, branch, "Eve", age),
    "removeNode": lambda graph, branch, age: remove_person(graph, branch, "Alice"),
    "addEdge": lambda graph, branch, age: add_edge(graph, branch, "Alice", "Carol"),
    "removeEdge": lambda graph, branch, age: remove_edges_of(graph, branch, "Bob"),
    "setProperty": lambda graph, branch, age: set_age(graph, branch, "Alice", age),
}
# source operation, target operation: the conflict of the cell.
CONFLICTS = {
    ("addNode", "addNode"): ("DivergentInsert", "node:Person", "Eve"),
    ("removeNode", "addEdge"): ("OrphanEdge", "edge:Knows", None),
    ("removeNode", "setProperty"): ("DeleteVsUpdate", "node:Person", "Alice"),
    ("addEdge", "removeNode"): ("OrphanEdge", "edge:Knows", None),
    ("setProperty", "removeNode"): ("DeleteVsUpdate", "node:Person", "Alice"),
    ("setProperty", "setProperty"): ("DivergentUpdate", "node:Person", "Alice"),
}


def expected_people(*operations: str, age: int) -> dict[str, int | None]:
    people: dict[str, int | None] = {"Alice": 30, "Bob": 31, "Carol": 32, "Dan": 33}
    if "addNode" in operations:
        people["Eve"] = age
    if "setProperty" in operations:
        people["Alice"] = age
    if "removeNode" in operations:
        del people["Alice"]
    return people


def expected_friendships(*operations: str) -> list[tuple[str, str]]:
    pairs = [] if "removeEdge" in operations else [("Bob", "Carol")]
    return sorted(pairs + [("Alice", "Carol")] * operations.count("addEdge"))


@pytest.mark.requirement("MRG-01", "MRG-02", "MRG-03", "MRG-04", "MRG-06", "MRG-14", "LIN-09")
@pytest.mark.parametrize("target_op", OPERATIONS)
@pytest.mark.parametrize("source_op", OPERATIONS)
def test_a_merge_ends_as_the_truth_table_says(tmp_path: Path, source_op: str, target_op: str) -> None:
    graph = new_graph(tmp_path)
    graph.branch_create("feature")
    OPERATIONS[source_op](graph, "feature", 50)
    OPERATIONS[target_op](graph, "main", 60)
    before = graph.snapshot()
    heads = graph.commits("feature")[-1], graph.commits("main")[-1]

    if (source_op, target_op) in CONFLICTS:
        with pytest.raises(MergeConflicts) as caught:
            graph.merge("feature", "main")
        kind, table_key, row_id = CONFLICTS[source_op, target_op]
        (conflict,) = caught.value.details["conflicts"]
        assert (conflict["kind"], conflict["table_key"]) == (kind, table_key)
        assert row_id is None or conflict["row_id"] == row_id
        assert graph.snapshot() == before, "a refused merge published something"
        assert Graph.open(graph.store.root.uri).snapshot() == before, "a refused merge was applied later"
        return

    result = graph.merge("feature", "main", actor="ann")
    if source_op == "noop":
        assert (result.outcome, result.commit) == ("already_up_to_date", None)
        assert graph.snapshot() == before
        return
    assert result.outcome == ("fast_forward" if target_op == "noop" else "merged")
    assert result.commit is not None
    assert (result.commit.merged_parent_commit_id, result.commit.parent_commit_id) == tuple(
        head.graph_commit_id for head in heads
    )
    assert graph.snapshot().version == before.version + 1
    age = 60 if target_op in ("addNode", "setProperty") and source_op not in ("addNode", "setProperty") else 50
    people = expected_people(source_op, target_op, age=age)
    if {source_op, target_op} == {"addNode", "setProperty"}:
        people |= {"Eve": 50, "Alice": 60} if source_op == "addNode" else {"Eve": 60, "Alice": 50}
    assert ages(graph) == people
    assert friendships(graph) == expected_friendships(source_op, target_op)
    assert graph.merge("feature", "main").outcome == "already_up_to_date"
