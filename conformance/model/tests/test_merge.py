"""Merges in the model: the truth table, and histories that cross."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.model import Conflict, Model, Refusal
from conformance.model.tests.graphs import ids, insert, is_, knows, load, people, person

Statement = dict[str, Any]

OPERATIONS: dict[str, Callable[[int], list[Statement]]] = {
    "noop": lambda age: [],
    "addNode": lambda age: [insert(person("Eve", age))],
    "removeNode": lambda age: [{"op": "delete", "type": "Person", "where": is_("name", "Alice")}],
    "addEdge": lambda age: [insert(knows("Alice", "Carol", id=f"edge {age}"))],
    "removeEdge": lambda age: [{"op": "delete", "edge": "Knows", "where": is_("from", "Bob")}],
    "setProperty": lambda age: [{"op": "update", "type": "Person", "where": is_("name", "Alice"), "set": {"age": age}}],
}
CONFLICTS = {
    ("addNode", "addNode"): Conflict("node:Person", "Eve", "DivergentInsert"),
    ("removeNode", "addEdge"): Conflict("edge:Knows", "edge 60", "OrphanEdge"),
    ("removeNode", "setProperty"): Conflict("node:Person", "Alice", "DeleteVsUpdate"),
    ("addEdge", "removeNode"): Conflict("edge:Knows", "edge 50", "OrphanEdge"),
    ("setProperty", "removeNode"): Conflict("node:Person", "Alice", "DeleteVsUpdate"),
    ("setProperty", "setProperty"): Conflict("node:Person", "Alice", "DivergentUpdate"),
}


@pytest.mark.requirement("MRG-01", "MRG-02", "MRG-03", "MRG-04", "MRG-06", "LIN-09")
@pytest.mark.parametrize("target_op", OPERATIONS)
@pytest.mark.parametrize("source_op", OPERATIONS)
def test_a_merge_ends_as_the_truth_table_says(source_op: str, target_op: str) -> None:
    model = people()
    model.branch_create("feature")
    model.mutate(OPERATIONS[source_op](50), branch="feature")
    model.mutate(OPERATIONS[target_op](60), branch="main")
    heads = model.head("main"), model.head("feature")
    if (source_op, target_op) in CONFLICTS:
        with pytest.raises(Refusal) as refusal:
            model.merge("feature", "main")
        assert refusal.value.kind == "conflict" and refusal.value.conflicts == (CONFLICTS[source_op, target_op],)
        assert model.head("main") == heads[0]
        return
    done = model.merge("feature", "main")
    if source_op == "noop":
        assert done.outcome == "already_up_to_date" and done.commit is None
    else:
        assert done.outcome == ("fast_forward" if target_op == "noop" else "merged")
        assert done.commit is not None and model.parents(done.commit) == list(heads)
        assert model.merge("feature", "main").outcome == "already_up_to_date"


@pytest.mark.requirement("MRG-03")
def test_a_merge_lists_every_row_that_would_break_a_rule() -> None:
    model = people()
    model.branch_create("feature")
    load(model, knows("Alice", "Dan", id="1"), knows("Dan", "Alice", id="2"), branch="feature")
    model.mutate([{"op": "delete", "type": "Person", "where": is_("name", "Dan")}])
    with pytest.raises(Refusal) as refusal:
        model.merge("feature", "main")
    assert refusal.value.conflicts == (
        Conflict("edge:Knows", "1", "OrphanEdge"),
        Conflict("edge:Knows", "2", "OrphanEdge"),
    )


@pytest.mark.requirement("MRG-10", "MRG-12")
def test_merging_back_reverts_nothing_and_changes_that_cancel_out_are_a_commit() -> None:
    model = people()
    model.branch_create("feature")
    load(model, person("Alice", 1), branch="feature")
    model.merge("feature", "main")
    load(model, person("Alice", 2))
    load(model, person("Eve"), branch="feature")
    assert model.merge("feature", "main").outcome == "merged"
    assert model.entity_at("node:Person", "Alice") == {"id": "Alice", "age": 2, "name": "Alice"}
    assert model.merge("main", "feature").outcome == "fast_forward"
    assert model.export("feature") == model.export("main")

    load(model, person("Fay"), branch="feature")
    model.mutate([{"op": "delete", "type": "Person", "where": is_("name", "Fay")}], branch="feature")
    before = model.export()
    assert model.merge("feature", "main").commit is not None and model.export() == before


def crossed() -> Model:
    """Each of two branches has merged the other's first commit: two lowest common ancestors."""
    model = people()
    model.branch_create("one")
    model.branch_create("two")
    load(model, person("Eve", 1), branch="one")
    load(model, person("Fay", 1), branch="two")
    model.identify(model.head("one"), "first of one", 10)
    model.identify(model.head("two"), "first of two", 11)
    for branch in ("one", "two"):
        model.branch_create(f"{branch}-before", branch)
    model.merge("two-before", "one")
    model.merge("one-before", "two")
    return model


@pytest.mark.requirement("LIN-13")
def test_of_several_lowest_common_ancestors_the_one_with_the_larger_version_is_the_base() -> None:
    model = crossed()
    load(model, person("Eve", 2), branch="one")
    # The base is the first commit of "two", which has no Eve: both have added her since, with different ages.
    with pytest.raises(Refusal) as refusal:
        model.merge("one", "two")
    assert refusal.value.conflicts == (Conflict("node:Person", "Eve", "DivergentInsert"),)

    model = crossed()
    load(model, person("Fay", 2), branch="one")
    assert model.merge("one", "two").outcome == "merged"
    assert model.entity_at("node:Person", "Fay", "two") == {"id": "Fay", "age": 2, "name": "Fay"}


@pytest.mark.requirement("LIN-13", "MRG-05")
def test_histories_meet_in_a_branch_that_both_merged_until_it_is_deleted() -> None:
    def both_merged() -> Model:
        model = people()
        for branch in ("one", "two", "third"):
            model.branch_create(branch)
        load(model, person("Eve", 1), branch="third")
        load(model, person("Ann"), branch="one")
        load(model, person("Bea"), branch="two")
        model.merge("third", "one")
        model.merge("third", "two")
        return model

    model = both_merged()
    load(model, person("Eve", 2), branch="one")
    assert model.merge("one", "two").outcome == "merged"

    model = both_merged()
    model.branch_delete("third")
    load(model, person("Eve", 2), branch="one")
    with pytest.raises(Refusal) as refusal:
        model.merge("one", "two")
    assert refusal.value.conflicts == (Conflict("node:Person", "Eve", "DivergentInsert"),)
    assert "Eve" in ids(model, "node:Person", "two")
    with pytest.raises(Refusal):
        model.merge("one", "one")
