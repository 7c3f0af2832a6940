"""MRG-04: the truth table. Six operations on a branch against the same six on main, and how each of the 36 merges ends.

The graph has the people Alice, Bob, Carol and Dan, and one edge from Bob to Carol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import Judged
from conformance.suites.graphs import delete, delete_edge, edge, insert, insert_edge, person, update, where
from conformance.suites.refusals import refused

SCHEMA: Final = """
node Person {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person
"""
PEOPLE: Final = (
    person("Alice", age=30),
    person("Bob", age=25),
    person("Carol", age=40),
    person("Dan", age=50),
    edge("Knows", "Bob", "Carol", id="bob-carol"),
)
Side = Literal["source", "target"]
# The same operation on both sides gives different values where it gives any.
AGES: Final[Mapping[Side, int]] = {"source": 61, "target": 72}

UP_TO_DATE: Final = "already_up_to_date"
FAST_FORWARD: Final = "fast_forward"
MERGED: Final = "merged"
DIVERGENT_INSERT: Final = ("node:Person", "DivergentInsert")
DIVERGENT_UPDATE: Final = ("node:Person", "DivergentUpdate")
DELETE_VS_UPDATE: Final = ("node:Person", "DeleteVsUpdate")
ORPHAN_EDGE: Final = ("edge:Knows", "OrphanEdge")

OPERATIONS: Final = ("noop", "add_node", "remove_node", "add_edge", "remove_edge", "set_property")
TABLE: Final[Mapping[str, tuple[str | tuple[str, str], ...]]] = {
    # On the branch, against the operations on main in the order above.
    "noop": (UP_TO_DATE,) * 6,
    "add_node": (FAST_FORWARD, DIVERGENT_INSERT, MERGED, MERGED, MERGED, MERGED),
    "remove_node": (FAST_FORWARD, MERGED, MERGED, ORPHAN_EDGE, MERGED, DELETE_VS_UPDATE),
    "add_edge": (FAST_FORWARD, MERGED, ORPHAN_EDGE, MERGED, MERGED, MERGED),
    "remove_edge": (FAST_FORWARD, MERGED, MERGED, MERGED, MERGED, MERGED),
    "set_property": (FAST_FORWARD, MERGED, DELETE_VS_UPDATE, MERGED, MERGED, DIVERGENT_UPDATE),
}
CELLS: Final = [
    pytest.param(source, target, TABLE[source][column], id=f"{source}-into-{target}")
    for source in OPERATIONS
    for column, target in enumerate(OPERATIONS)
]
CONFLICTING_ROWS: Final = {DIVERGENT_INSERT: "Eve", DIVERGENT_UPDATE: "Alice", DELETE_VS_UPDATE: "Alice"}


def statement(operation: str, side: Side) -> dict[str, Any]:
    return {
        "add_node": insert("Person", name="Eve", age=AGES[side]),
        "remove_node": delete("Person", where("name", "Alice")),
        "add_edge": insert_edge("Knows", "Alice", "Carol"),
        "remove_edge": delete_edge("Knows", where("from", "Bob")),
        "set_property": update("Person", where("name", "Alice"), age=AGES[side]),
    }[operation]


def run(graph: JudgedGraph, operation: str, side: Side, branch: str) -> None:
    if operation != "noop":
        graph.mutate(statement(operation, side), branch=branch)


@pytest.mark.requirement("MRG-04")
@pytest.mark.parametrize(("source", "target", "end"), CELLS)
def test_the_cell_of_the_truth_table(judged: Judged, source: str, target: str, end: str | tuple[str, str]) -> None:
    graph = judged(SCHEMA, PEOPLE)
    graph.branch_create("feature")
    run(graph, source, "source", "feature")
    run(graph, target, "target", "main")
    commits = len(graph.handle.commits())

    with proving("MRG-04"):
        if isinstance(end, tuple):
            error = refused("conflict", lambda: graph.merge("feature"))
            found = error.details["conflicts"]
            assert {(each["table_key"], each["kind"]) for each in found} == {end}, (
                "this conflict is listed, and no other"
            )
            if end in CONFLICTING_ROWS:
                assert found[0]["row_id"] == CONFLICTING_ROWS[end], "the conflict names its row"
            assert len(graph.handle.commits()) == commits, "a merge with conflicts makes no commit"
        else:
            assert graph.merge("feature")["outcome"] == end
            made = 0 if end == UP_TO_DATE else 1
            assert len(graph.handle.commits()) == commits + made, "up to date makes no commit, all else makes one"


@pytest.mark.requirement("MRG-04")
def test_an_edge_that_both_sides_added_is_there_twice(judged: Judged) -> None:
    graph = judged(SCHEMA, PEOPLE)
    graph.branch_create("feature")
    run(graph, "add_edge", "source", "feature")
    run(graph, "add_edge", "target", "main")

    graph.merge("feature")

    with proving("MRG-04"):
        ends = sorted((row["src"], row["dst"]) for row in graph.handle.read("edge:Knows"))
        assert ends == [("Alice", "Carol"), ("Alice", "Carol"), ("Bob", "Carol")]
