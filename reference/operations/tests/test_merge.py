"""Merging branches: outcomes, refusals, how rows are compared, how they get there, and what a crash leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failpoints import registry
from reference.errors import BadRequest, ExpectedVersionMismatch, MergeConflicts, NotFound, OutcomePending
from reference.graph import Graph
from reference.operations import merge
from reference.operations.tests.people import (
    add_edge,
    add_person,
    add_place,
    ages,
    friendships,
    new_graph,
    person,
    places,
    remove_person,
    set_age,
)
from reference.protocol.lineage import merge_base
from reference.storage.tables import Tables


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Alice, Bob, Carol and Dan on main, and a branch `feature` that equals it."""
    graph = new_graph(tmp_path)
    graph.branch_create("feature")
    return graph


def kinds(error: MergeConflicts) -> list[tuple[str, str, str]]:
    return sorted((c["table_key"], c["row_id"], c["kind"]) for c in error.details["conflicts"])


def heads_of_tables(graph: Graph) -> dict[tuple[str, str | None], int]:
    """The HEAD of every table on main and on every fork."""
    tables = graph.store.tables
    return {
        (entry.path, branch): tables.open_latest(entry.path, branch).version
        for entry in graph.snapshot("main").entries.values()
        for branch in [None, *tables.branches(entry.path)]
    }


# -- outcomes and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("MRG-05", "BRA-03")
@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("feature", "feature", "same_branch"),
        ("main", "main", "same_branch"),
        ("__schema_apply_lock__", "main", "internal_branch"),
        ("feature", "/__schema_apply_lock__", "internal_branch"),
    ],
)
def test_a_branch_is_not_merged_with_itself_or_with_the_lock(graph: Graph, source: str, target: str, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        graph.merge(source, target)
    assert caught.value.code == code


@pytest.mark.requirement("MRG-05")
def test_merging_a_branch_that_does_not_exist_is_refused(graph: Graph) -> None:
    with pytest.raises(NotFound):
        graph.merge("nowhere", "main")


@pytest.mark.requirement("MRG-01", "MRG-12")
def test_a_fast_forward_makes_a_merge_commit_and_the_way_back_needs_no_rows(graph: Graph) -> None:
    add_person(graph, "feature", "Eve", 5)
    assert graph.merge("feature", "main").outcome == "fast_forward"
    assert graph.merge("main", "feature").outcome == "fast_forward"
    assert graph.merge("main", "feature").outcome == "already_up_to_date"
    assert ages(graph, "feature") == ages(graph, "main") == {"Alice": 30, "Bob": 31, "Carol": 32, "Dan": 33, "Eve": 5}


@pytest.mark.requirement("MRG-10")
def test_edits_that_cancel_out_merge_once_and_move_no_table(graph: Graph) -> None:
    add_person(graph, "feature", "Eve")
    remove_person(graph, "feature", "Eve")
    graph.load(person("Alice", 30), mode="merge", branch="feature")  # what main has already
    add_place(graph, "main", "Oslo", "p")
    before, heads = graph.snapshot("main"), heads_of_tables(graph)

    result = graph.merge("feature", "main")

    assert result.outcome == "merged" and result.commit is not None
    after = graph.snapshot("main")
    assert (after.version, after.entries) == (before.version + 1, before.entries)
    assert heads_of_tables(graph) == heads
    assert graph.merge("feature", "main").outcome == "already_up_to_date"


@pytest.mark.requirement("MRG-02")
def test_conflicts_of_all_tables_are_reported_together(graph: Graph) -> None:
    for branch, age in (("feature", 1), ("main", 2)):
        set_age(graph, branch, "Alice", age)
        add_place(graph, branch, f"Oslo {age}", "p")
        add_person(graph, branch, "Eve", 7)  # the same on both: no conflict
    set_age(graph, "feature", "Dan", 1)
    remove_person(graph, "main", "Dan")
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("feature", "main")
    assert kinds(caught.value) == [
        ("node:Person", "Alice", "DivergentUpdate"),
        ("node:Person", "Dan", "DeleteVsUpdate"),
        ("node:Place", "p", "DivergentInsert"),
    ]


@pytest.mark.requirement("LIN-13", "MRG-12")
def test_what_was_removed_after_a_third_branch_brought_it_stays_removed(graph: Graph) -> None:
    """Both branches merged a third one. Only its commit is the base on which a removal on one side counts."""
    for branch in ("left", "right"):
        graph.branch_create(branch)
    add_person(graph, "feature", "Eve")
    graph.merge("feature", "left")
    graph.merge("feature", "right")
    remove_person(graph, "right", "Eve")
    assert graph.merge("left", "right").outcome == "merged"
    assert "Eve" not in ages(graph, "right"), "the merge brought back what its target had removed"


@pytest.mark.requirement("MRG-12", "LIN-13")
def test_the_base_may_lie_on_a_branch_between_the_two(graph: Graph) -> None:
    add_person(graph, "feature", "Eve", 1)
    graph.branch_create("feature/a", "feature")
    graph.branch_create("feature/b", "feature")
    set_age(graph, "feature/a", "Eve", 2)
    add_person(graph, "feature/b", "Finn")
    assert graph.merge("feature/a", "feature/b").outcome == "merged"
    assert ages(graph, "feature/b")["Eve"] == 2
    assert ages(graph, "feature")["Eve"] == 1


# -- rules of the schema -----------------------------------------------------------------------------------------------

RULES = """
node Person { name: String @key  age: I32?  email: String? @unique  @range(age, 0..100) }
edge Owns: Person -> Person @card(0..1)
"""


@pytest.mark.requirement("MRG-03", "VAL-02")
def test_each_side_alone_is_valid_and_both_together_are_not(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), RULES)
    graph.load(
        "\n".join(json.dumps({"type": "Person", "data": {"name": name}}) for name in ("Ann", "Ben")), mode="merge"
    )
    graph.branch_create("feature")
    for branch, name in (("feature", "Ann"), ("main", "Ben")):
        edge = {"edge": "Owns", "from": "Ann", "to": name, "data": {}}
        mail = {"type": "Person", "data": {"name": name, "email": "us@x.org"}}
        graph.load(f"{json.dumps(edge)}\n{json.dumps(mail)}", mode="merge", branch=branch)
    before = graph.snapshot()
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("feature", "main")
    assert {kind for _, _, kind in kinds(caught.value)} == {"UniqueViolation", "CardinalityViolation"}
    assert graph.snapshot() == before


@pytest.mark.requirement("MRG-03", "MRG-09")
def test_an_adopted_table_is_held_against_the_other_tables_of_the_target(graph: Graph) -> None:
    """The edge table is adopted whole, and still one of its edges has lost its end on the target."""
    add_edge(graph, "main", "Dan", "Alice")
    remove_person(graph, "feature", "Dan")
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("main", "feature")
    assert [kind for _, _, kind in kinds(caught.value)] == ["OrphanEdge"]
    assert friendships(graph, "feature") == [("Bob", "Carol")]


# -- how the rows get there --------------------------------------------------------------------------------------------


@pytest.mark.requirement("MRG-08", "IDX-09")
def test_a_fast_forward_of_new_rows_only_appends(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add_person(graph, "feature", "Eve")
    monkeypatch.delattr(Tables, "stage_merge")
    monkeypatch.delattr(Tables, "stage_delete")
    assert graph.merge("feature", "main").outcome == "fast_forward"
    entry = graph.snapshot("main").entry("node:Person")
    handle = graph.store.tables.open(entry.path, None, entry.version)
    assert handle.list_indices() == []


@pytest.mark.requirement("COST-06", "COST-08")
def test_tables_that_no_side_changed_are_not_opened(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add_place(graph, "feature", "Oslo", "p")
    fresh = Graph.open(graph.store.root.uri)
    untouched = {fresh.snapshot().entry(key).path for key in ("node:Person", "edge:Knows")}
    opened: list[str] = []
    open_table = Tables._open

    def spy(self: Tables, path: str, branch: str | None, version: int | None) -> Any:
        opened.append(path)
        return open_table(self, path, branch, version)

    monkeypatch.setattr(Tables, "_open", spy)
    assert fresh.merge("feature", "main").outcome == "fast_forward"
    assert not untouched & set(opened), "a table was opened that the merge does not concern"


@pytest.mark.requirement("MRG-09", "MRG-12")
def test_a_branch_that_has_no_copy_of_a_table_reads_what_main_has(graph: Graph) -> None:
    add_person(graph, "main", "Eve")
    add_place(graph, "feature", "Oslo", "p")
    heads = heads_of_tables(graph)
    assert graph.merge("main", "feature").outcome == "merged"
    assert graph.snapshot("feature").entry("node:Person") == graph.snapshot("main").entry("node:Person")
    assert heads_of_tables(graph) == heads, "a pointer moved a HEAD"
    set_age(graph, "feature", "Eve", 9)
    assert (ages(graph, "feature")["Eve"], ages(graph, "main")["Eve"]) == (9, None)


@pytest.mark.requirement("MRG-12")
def test_changes_of_main_are_seen_where_version_numbers_are_higher(graph: Graph) -> None:
    """The branch below reads its parent's copy, so it could point at main's; but main's number is the lower one."""
    for age in range(4):
        set_age(graph, "feature", "Alice", age)
    graph.branch_create("below", "feature")
    graph.merge("feature", "main")
    set_age(graph, "main", "Bob", 99)
    assert graph.snapshot("below").entry("node:Person").version > graph.snapshot().entry("node:Person").version
    for branch in ("feature", "below"):
        assert graph.merge("main", branch).outcome == "fast_forward"
        assert (ages(graph, branch)["Alice"], ages(graph, branch)["Bob"]) == (3, 99), "a lower version hid the merge"


@pytest.mark.requirement("MRG-12", "BRA-18", "SNP-07")
def test_a_branch_keeps_its_own_copy_and_its_history_when_main_is_merged(graph: Graph) -> None:
    set_age(graph, "feature", "Alice", 1)
    older = graph.snapshot("feature")
    graph.merge("feature", "main")
    for age in range(5):
        set_age(graph, "main", "Bob", age)
    graph.merge("main", "feature")
    set_age(graph, "feature", "Carol", 2)
    assert graph.snapshot("feature").entry("node:Person").branch == "feature"
    reopened = Graph.open(graph.store.root.uri)
    past = {row["name"]: row["age"] for row in reopened.read("node:Person", older)}
    assert past == {"Alice": 1, "Bob": 31, "Carol": 32, "Dan": 33}
    assert ages(reopened, "feature") == {"Alice": 1, "Bob": 4, "Carol": 2, "Dan": 33}


@pytest.mark.requirement("MRG-07")
@pytest.mark.parametrize("change", [lambda g: set_age(g, "main", "Bob", 1), lambda g: remove_person(g, "main", "Dan")])
def test_a_target_that_moves_while_a_merge_is_planned_stops_it(graph: Graph, change: Callable[[Graph], None]) -> None:
    """The edge table is written, the table of its ends is only looked at: neither may move."""
    add_edge(graph, "feature", "Alice", "Dan")
    other = Graph.open(graph.store.root.uri)
    moves_first = registry.armed("recovery.sidecar_write", lambda: change(other), times=1)
    with moves_first, pytest.raises(ExpectedVersionMismatch):
        graph.merge("feature", "main")
    assert friendships(graph) == [("Bob", "Carol")]
    reopened = Graph.open(graph.store.root.uri)
    assert friendships(reopened) == [("Bob", "Carol")], "a refused merge was applied later"


# -- crashes -----------------------------------------------------------------------------------------------------------


def all_three_moves(graph: Graph) -> None:
    add_person(graph, "feature", "Eve", 1)
    set_age(graph, "feature", "Alice", 2)
    remove_person(graph, "feature", "Dan")


@pytest.mark.requirement("REC-08", "PUB-23", "MRG-06")
@pytest.mark.parametrize(
    ("point", "diverged"),
    [
        ("branch_merge.adopt_after_append_pre_upsert", False),
        ("branch_merge.adopt_after_upsert_pre_delete", False),
        ("branch_merge.rewrite_after_merge_pre_delete", True),
        ("branch_merge.rewrite_after_delete_pre_index", True),
        ("recovery.sidecar_confirm", True),
    ],
)
def test_a_merge_that_dies_before_it_confirms_is_rolled_back(graph: Graph, point: str, diverged: bool) -> None:
    all_three_moves(graph)
    if diverged:
        set_age(graph, "main", "Bob", 3)
    before = ages(graph)
    with registry.armed(point, "error"), pytest.raises(OutcomePending):
        graph.merge("feature", "main")

    reopened = Graph.open(graph.store.root.uri)

    assert [row.recovery_kind for row in reopened.recovered] == ["RolledBack"]
    assert ages(reopened) == before
    assert reopened.merge("feature", "main").outcome == "merged"
    assert ages(reopened)["Eve"] == 1 and "Dan" not in ages(reopened)


@pytest.mark.requirement("REC-08", "MRG-06", "LIN-09")
def test_a_confirmed_merge_is_rolled_forward_as_a_merge(graph: Graph) -> None:
    all_three_moves(graph)
    source_head = graph.commits("feature")[-1].graph_commit_id
    with registry.armed("branch_merge.post_phase_b_pre_manifest_commit", "error"), pytest.raises(OutcomePending):
        graph.merge("feature", "main", actor="ann")

    reopened = Graph.open(graph.store.root.uri)

    assert [(row.recovery_kind, row.recovery_for_actor) for row in reopened.recovered] == [("RolledForward", "ann")]
    assert reopened.commits()[-1].merged_parent_commit_id == source_head
    assert ages(reopened) == {"Alice": 2, "Bob": 31, "Carol": 32, "Eve": 1}
    assert reopened.merge("feature", "main").outcome == "already_up_to_date"


@pytest.mark.requirement("REC-08", "MRG-09", "MRG-12")
def test_recovery_of_a_merge_into_a_branch_loses_no_table(graph: Graph) -> None:
    """One table needs rows, the other could be a pointer, which no sidecar can carry: so it is not one."""
    set_age(graph, "feature", "Alice", 2)
    set_age(graph, "main", "Bob", 3)
    add_place(graph, "main", "Oslo", "p")
    with registry.armed("branch_merge.post_phase_b_pre_manifest_commit", "error"), pytest.raises(OutcomePending):
        graph.merge("main", "feature")
    reopened = Graph.open(graph.store.root.uri)
    assert (ages(reopened, "feature")["Bob"], places(reopened, "feature")) == (3, {"Oslo"})
    assert reopened.merge("main", "feature").outcome == "already_up_to_date"


@pytest.mark.requirement("CLN-07", "MRG-12")
def test_a_cleanup_leaves_what_the_next_merge_starts_from(graph: Graph) -> None:
    """The base is a version of main that no branch reads any more and no fork starts from."""
    set_age(graph, "feature", "Alice", 1)
    set_age(graph, "main", "Bob", 2)
    graph.merge("main", "feature")
    for age in range(3):
        set_age(graph, "main", "Carol", age)
    graph.cleanup(keep_versions=1, confirm=True)
    assert Graph.open(graph.store.root.uri).merge("feature", "main").outcome == "merged"
    assert ages(graph) == {"Alice": 1, "Bob": 2, "Carol": 2, "Dan": 33}


@pytest.mark.requirement("MRG-07", "MRG-12")
def test_a_write_of_the_same_handle_while_a_merge_looks_for_its_base_is_not_undone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held manifest moves on under whoever holds it, so the base must be read as of its commit."""
    set_age(graph, "feature", "Alice", 1)

    def write_first(*arguments: Any) -> Any:
        monkeypatch.setattr(merge, "merge_base", merge_base)
        set_age(graph, "main", "Bob", 99)
        return merge_base(*arguments)

    monkeypatch.setattr(merge, "merge_base", write_first)
    graph.merge("feature", "main")
    assert ages(graph) == {"Alice": 1, "Bob": 99, "Carol": 32, "Dan": 33}
