"""MRG-12: merges in both directions, back again and over three branches, and none of them loses or undoes a change."""

from __future__ import annotations

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import NOTES, delete, insert, note, set_note, where


def notes(graph: JudgedGraph, branch: str = "main") -> dict[str, int]:
    return {row["id"]: row["x"] for row in graph.handle.read("node:Note", branch)}


@pytest.mark.requirement("MRG-12")
def test_what_main_changed_is_visible_on_a_branch_with_higher_version_numbers(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    graph.branch_create("b")
    for number in range(1, 6):
        graph.mutate(set_note("b", number), branch="b")
    graph.merge("b")
    graph.mutate(set_note("a", 7))

    graph.merge("main", "b")

    with proving("MRG-12"):
        assert notes(graph, "b") == {"a": 7, "b": 5}
        graph.mutate(set_note("b", 6), branch="b")
        graph.merge("b")
        assert notes(graph) == {"a": 7, "b": 6}, "merging back takes nothing back"


@pytest.mark.requirement("MRG-12")
def test_an_adopted_pointer_is_not_hidden_by_versions_that_the_branch_had_before(judged: Judged) -> None:
    """The branch's changes cancel out, so it adopts what main has, whose version number is far lower than its own."""
    graph = judged(NOTES, [note("a", 0)])
    graph.branch_create("b")
    for number in (1, 2, 3, 0):
        graph.mutate(set_note("a", number), branch="b")
    graph.merge("b")
    graph.mutate(insert("Note", name="late", x=1))

    graph.merge("main", "b")

    with proving("MRG-12"):
        assert notes(graph, "b") == {"a": 0, "late": 1}
        graph.reopen()
        assert notes(graph, "b") == {"a": 0, "late": 1}
        graph.mutate(set_note("late", 2), branch="b")
        assert notes(graph, "b") == {"a": 0, "late": 2}


@pytest.mark.requirement("MRG-12")
def test_what_main_has_is_not_hidden_by_the_versions_of_a_branch_of_a_branch(judged: Judged) -> None:
    """The child reads a table of its parent, whose version numbers are far above those of main."""
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    graph.branch_create("parent")
    for number in range(1, 6):
        graph.mutate(set_note("b", number), branch="parent")
    graph.branch_create("child", "parent")
    graph.merge("parent")
    graph.mutate(set_note("a", 7))

    graph.merge("main", "child")

    with proving("MRG-12"):
        assert notes(graph, "child") == {"a": 7, "b": 5}
        graph.mutate(set_note("b", 6), branch="child")
        graph.merge("child")
        assert notes(graph) == {"a": 7, "b": 6}


@pytest.mark.requirement("MRG-12")
def test_a_row_that_was_removed_after_a_merge_does_not_come_back(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    graph.branch_create("b")
    graph.mutate(insert("Note", name="new", x=1), branch="b")
    graph.merge("b")
    graph.mutate(delete("Note", where("name", "new")))
    graph.mutate(set_note("b", 1), branch="b")

    graph.merge("b")

    with proving("MRG-12"):
        assert notes(graph) == {"a": 0, "b": 1}
        graph.merge("main", "b")
        assert notes(graph, "b") == {"a": 0, "b": 1}
        graph.mutate(set_note("a", 5), branch="b")
        graph.merge("b")
        assert notes(graph) == {"a": 5, "b": 1}


@pytest.mark.requirement("MRG-12")
def test_a_child_merged_past_its_parent_and_the_parent_after_it(judged: Judged) -> None:
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    graph.branch_create("parent")
    graph.mutate(set_note("a", 1), branch="parent")
    graph.branch_create("parent-child", "parent")
    graph.mutate(set_note("b", 1), branch="parent-child")
    graph.mutate(insert("Note", name="p", x=1), branch="parent")

    with proving("MRG-12"):
        assert graph.merge("parent-child", "main")["outcome"] == "fast_forward"
        assert notes(graph) == {"a": 1, "b": 1}
        assert graph.merge("parent", "main")["outcome"] == "merged"
        assert notes(graph) == {"a": 1, "b": 1, "p": 1}
        graph.merge("main", "parent-child")
        graph.merge("parent-child", "parent")
        assert notes(graph, "parent") == notes(graph, "parent-child") == notes(graph)


@pytest.mark.long
@pytest.mark.requirement("MRG-12", "LIN-13")
def test_the_base_is_the_lowest_common_ancestor_even_where_an_older_one_is_nearer(judged: Judged) -> None:
    """Both sides merged an old side branch, so the first commit is two steps from both heads, and the last that they
    have in common is many. With the older one as base, main's way back to 0 looks like no change, and is lost.
    """
    graph = judged(NOTES, [note("x", 0)])
    for side in ("c", "d"):
        graph.branch_create(side)
        graph.mutate(insert("Note", name=side, x=0), branch=side)
    graph.mutate(set_note("x", 1))
    graph.branch_create("s")
    graph.mutate(set_note("x", 0))
    for number in range(2):
        graph.mutate(insert("Note", name=f"main{number}", x=0))
        graph.mutate(insert("Note", name=f"s{number}", x=0), branch="s")
    graph.merge("c", "s")
    graph.merge("d", "main")

    graph.merge("s", "main")

    with proving("MRG-12", "LIN-13"):
        assert notes(graph)["x"] == 0, "what main changed after the two last met is kept"
        graph.merge("main", "s")
        assert notes(graph, "s") == notes(graph)


@pytest.mark.requirement("MRG-12", "LIN-13", "MRG-10")
def test_of_two_bases_of_a_criss_cross_merge_the_one_of_the_larger_version_counts(judged: Judged) -> None:
    """Each of two branches has merged the other as it was: two commits are the last that they have in common. The
    one of the larger manifest version has b = 1, so that the way back to 0 is a change, and is kept.
    """
    graph = judged(NOTES, [note("a", 0), note("b", 0)])
    graph.branch_create("one")
    graph.branch_create("two")
    graph.mutate(set_note("a", 1), branch="one")
    graph.mutate(insert("Note", name="more", x=1), branch="two")
    graph.mutate(set_note("b", 1), branch="two")
    graph.branch_create("one-then", "one")
    graph.merge("two", "one")
    graph.merge("one-then", "two")
    graph.mutate(set_note("b", 0), branch="one")

    with proving("MRG-12", "LIN-13"):
        assert graph.merge("one", "two")["outcome"] == "merged"
        assert notes(graph, "two") == {"a": 1, "b": 0, "more": 1}
    with proving("MRG-10"):
        assert graph.merge("two", "one")["outcome"] == "fast_forward", "both have the same rows already"
    with proving("MRG-12"):
        assert graph.merge("one", "main")["outcome"] == "fast_forward"
        assert notes(graph) == notes(graph, "one") == {"a": 1, "b": 0, "more": 1}


@pytest.mark.requirement("MRG-12")
@pytest.mark.long
def test_a_delta_larger_than_a_batch_merges_whole_and_leaves_no_staging_in_the_graph(
    judged: Judged, forge: ForgeOf
) -> None:
    """What is staged, and where, nobody sees; that no row is lost at the edge of a batch, one does."""
    graph = judged(NOTES, [note("a", 0)])
    graph.branch_create("b")
    graph.load([note(f"n{number:05}", number) for number in range(8193)], branch="b")
    graph.mutate(set_note("a", 1))

    with proving("MRG-12"):
        assert graph.merge("b")["outcome"] == "merged"
        found = notes(graph)
        assert len(found) == 8194 and found["n08192"] == 8192 and found["a"] == 1
        tops = {name.partition("/")[0] for name in forge(graph.uri).list("")}
        assert tops <= {"__manifest", "nodes", "__recovery", "_schema.pg", "_schema.ir.json", "__schema_state.json"}
