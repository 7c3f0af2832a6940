"""LIN, the second half: which commit is the head, which are the parents of the next, and where a merge starts.

From the rows of the manifest alone everybody finds the same head, so that a lineage is one chain however many write at
once, and a merge knows where two branches last met.
"""

from __future__ import annotations

import json
from functools import partial
from threading import Barrier, Thread
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    head_of,
    id_of,
    insert,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import refused

FIRST_ULID, LAST_ULID = "0" * 26, "7" + "Z" * 25


def order_of(commit: dict[str, Any]) -> tuple[int, int, str]:
    return commit["manifest_version"], commit["created_at"], commit["graph_commit_id"]


# -- heads and parents -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LIN-05", "LIN-10")
@pytest.mark.parametrize(
    ("commit_id", "later_by_versions", "later_by_micros", "is_head"),
    [
        (FIRST_ULID, 0, 1, True),
        (LAST_ULID, 0, 0, True),
        (FIRST_ULID, 0, 0, False),
        (LAST_ULID, 0, -1, False),
        (LAST_ULID, -1, 1_000_000, False),
        (FIRST_ULID, 1, -1_000_000, True),
    ],
)
def test_the_head_is_the_greatest_by_version_time_and_id(
    judged: Judged, forge: ForgeOf, commit_id: str, later_by_versions: int, later_by_micros: int, is_head: bool
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    before = head_of(graph)
    metadata = {"parent_commit_id": id_of(before), "created_at": before["created_at"] + later_by_micros}
    forge(graph.uri).add_row(
        object_id=commit_id,
        object_type="graph_commit",
        metadata=json.dumps(metadata),
        table_version=before["manifest_version"] + later_by_versions,
    )
    handle = graph.engine.open(graph.uri)
    with proving("LIN-10"):
        commits = handle.commits()
        assert commits == sorted(commits, key=order_of)
        assert (id_of(commits[-1]) == commit_id) == is_head
    with proving("LIN-05"):
        made = handle.mutate(insert("Person", name="dan"))["commit"]
        assert made["parent_commit_id"] == (commit_id if is_head else id_of(before))


@pytest.mark.requirement("LIN-05")
@pytest.mark.parametrize("damage", ["names another commit", "is gone"])
def test_the_head_row_is_not_where_the_parent_comes_from(judged: Judged, forge: ForgeOf, damage: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"))
    there, commits = forge(graph.uri), graph.handle.commits()
    if damage == "is gone":
        there.remove_row("graph_head:main")
    else:
        there.set_row_metadata("graph_head:main", head_commit_id=id_of(commits[0]), parent_commit_id=None)

    with proving("LIN-05"):
        graph.reopen()
        made = graph.mutate(insert("Person", name="eve"))["commit"]
        assert made["parent_commit_id"] == id_of(commits[-1])
        head = json.loads(there.row("graph_head:main")["metadata"])
        assert head == {"head_commit_id": id_of(made), "parent_commit_id": id_of(commits[-1])}


@pytest.mark.requirement("LIN-06")
def test_the_parent_is_the_head_at_the_moment_of_the_publish(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    other = peers().open(graph.uri)
    other.read("node:Person")
    turns = [graph.handle, other, other, graph.handle, other]
    for number, handle in enumerate(turns):
        head = id_of(head_of(graph))
        record = person(f"p{number}") if number % 2 else node("Company", name=f"c{number}")
        made = graph.load([record], through=handle)["commit"]
        with proving("LIN-06"):
            assert made["parent_commit_id"] == head, "the handle did not know of the last commit"


@pytest.mark.requirement("LIN-06")
def test_concurrent_commits_form_one_chain(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    engines = [peers() for _ in range(3)]
    barrier = Barrier(len(engines))
    made: list[str] = []

    def write(number: int, engine: Engine) -> None:
        handle = engine.open(graph.uri)
        barrier.wait()
        for turn in range(3):
            name = f"{number}-{turn}"
            record = person(name) if number else node("Company", name=name)
            try:
                made.append(id_of(handle.load(lines(record))["commit"]))
            except EngineError as error:
                assert error.kind in ("conflict", "outcome_pending"), str(error)

    threads = [Thread(target=write, args=each) for each in enumerate(engines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with proving("LIN-06"):
        commits = graph.engine.open(graph.uri).commits()
        ids = [id_of(commit) for commit in commits]
        assert set(made) <= set(ids), "an acknowledged commit is not in the lineage"
        assert [commit["parent_commit_id"] for commit in commits] == [None, *ids[:-1]], "the chain has a fork"


@pytest.mark.requirement("LIN-07")
def test_a_branch_gets_its_head_row_with_its_first_commit(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)

    def heads(branch: str) -> set[str]:
        return {row["object_id"] for row in there.rows(branch) if row["object_type"] == "graph_head"}

    graph.branch_create("feat/one")
    fork_point = id_of(head_of(graph))
    with proving("LIN-07"):
        assert heads("feat/one") == {"graph_head:main"}
    graph.mutate(insert("Person", name="dan"))  # Main goes on; the branch does not.
    made = graph.mutate(insert("Company", name="initech"), branch="feat/one")["commit"]
    graph.branch_create("later", "feat/one")
    second = graph.mutate(insert("Company", name="hooli"), branch="later")["commit"]

    with proving("LIN-07"):
        assert (made["parent_commit_id"], made["manifest_branch"]) == (fork_point, "feat/one")
        assert heads("feat/one") == {"graph_head:main", "graph_head:feat/one"}
        assert heads("main") == {"graph_head:main"}
        assert (second["parent_commit_id"], second["manifest_branch"]) == (id_of(made), "later")
        assert heads("later") == {"graph_head:main", "graph_head:feat/one", "graph_head:later"}
        head = json.loads(there.row("graph_head:feat/one", "feat/one")["metadata"])
        assert head == {"head_commit_id": id_of(made), "parent_commit_id": fork_point}


# -- merges ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LIN-09")
def test_a_merge_commit_has_two_parents_and_no_other_has(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("draft")
    graph.mutate(insert("Person", name="dan"), branch="draft")
    merges = []

    source, target = id_of(head_of(graph, "draft")), id_of(head_of(graph))
    forward = graph.merge("draft", actor="ann")
    merges.append((forward["commit"], target, source))
    graph.mutate(insert("Person", name="eve"), branch="draft")
    graph.load([person("fay")], through=peers().open(graph.uri))  # Behind the back of the handle that merges.
    source, target = id_of(head_of(graph, "draft")), id_of(head_of(graph))
    three_way = graph.merge("draft")
    merges.append((three_way["commit"], target, source))
    merges.append((graph.merge("main", "draft")["commit"], source, id_of(head_of(graph))))

    with proving("LIN-09"):
        assert (forward["outcome"], three_way["outcome"]) == ("fast_forward", "merged")
        for commit, parent, merged in merges:
            assert (commit["parent_commit_id"], commit["merged_parent_commit_id"]) == (parent, merged)
        ids = {id_of(commit) for commit, _, _ in merges}
        every = graph.handle.commits() + graph.handle.commits("draft")
        assert {id_of(commit) for commit in every if commit.get("merged_parent_commit_id")} == ids


@pytest.mark.requirement("LIN-10")
def test_commits_are_listed_in_order_and_found_on_any_branch(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    if graph.engine.supports("branch_create"):
        graph.branch_create("draft")
        graph.mutate(insert("Person", name="dan"), branch="draft")
        graph.branch_create("feat/one", "draft")
        graph.mutate(insert("Person", name="eve"), branch="feat/one")
    graph.mutate(insert("Person", name="fay"))
    listed = {branch: graph.handle.commits(branch) for branch in graph.model.branch_list()}

    with proving("LIN-10"):
        for branch, commits in listed.items():
            assert commits == sorted(commits, key=order_of)
            assert [id_of(each) for each in commits] == [each.commit_id for each in graph.model.commits(branch)]
            bound = graph.engine.look(graph.uri, branch=branch)
            assert bound.commits() == commits
            for commit in (each for others in listed.values() for each in others):
                assert bound.commit(id_of(commit)) == commit
        for unknown in (LAST_ULID, id_of(head_of(graph)).lower(), "main", "4", "' OR 1=1"):
            refused("not_found", partial(graph.handle.commit, unknown), f"commit {unknown!r}")


@pytest.mark.requirement("LIN-13")
def test_a_merge_starts_from_the_lowest_common_ancestor_not_the_nearest(judged: Judged) -> None:
    """Both branches reach an old commit in fewer steps than the one they last had in common, by merged parents.

    An engine that counts steps takes the old one, for which the branch has changed nothing, and loses its change.
    """
    graph = judged(SOCIAL, [person("ann", age=1)])
    for shortcut in ("left", "right"):
        graph.branch_create(shortcut)
        graph.mutate(insert("Person", name=shortcut), branch=shortcut)
    graph.mutate(update("Person", where("name", "ann"), age=2))  # The lowest common ancestor.
    graph.branch_create("draft")
    graph.mutate(update("Person", where("name", "ann"), age=1), branch="draft")
    graph.mutate(insert("Company", name="initech"), branch="draft")
    graph.merge("left", "draft")
    graph.mutate(insert("Company", name="acme"))
    graph.mutate(insert("Company", name="hooli"))
    graph.merge("right")

    with proving("LIN-13"):
        assert graph.merge("draft")["outcome"] == "merged"
        ages = {row["id"]: row["age"] for row in graph.handle.read("node:Person")}
        assert ages == {"ann": 1, "left": None, "right": None}, "the change of the branch is lost"


@pytest.mark.requirement("LIN-13")
def test_a_merge_starts_from_the_lowest_common_ancestor_not_from_the_largest_version(judged: Judged) -> None:
    """A long branch was merged: its last commit has a larger version than the merge that came after it, on main."""
    graph = judged(SOCIAL, [person("ann", age=0)])
    graph.branch_create("long")
    for turn in range(4):
        graph.mutate(insert("Company", name=f"c{turn}"), branch="long")
    graph.mutate(update("Person", where("name", "ann"), age=2))
    graph.merge("long")  # The lowest common ancestor.
    graph.branch_create("draft")
    graph.branch_create("third")
    graph.mutate(insert("Person", name="dan"), branch="third")
    graph.mutate(update("Person", where("name", "ann"), age=0), branch="draft")
    graph.merge("third", "draft")  # To know this one, the commits of all branches have to be looked at.
    graph.mutate(insert("Person", name="eve"))

    with proving("LIN-13"):
        graph.merge("draft")
        ages = {row["id"]: row["age"] for row in graph.handle.read("node:Person")}
        assert ages == {"ann": 0, "dan": None, "eve": None}, "the change of the branch is lost"


@pytest.mark.requirement("LIN-13")
def test_what_a_branch_of_a_branch_has_brought_along_is_merged_already(judged: Judged) -> None:
    """Main has taken all of `early` with the branch that was made from it, or that has merged it."""
    graph = judged(SOCIAL, [person("ann", age=1)])
    graph.branch_create("early")
    graph.mutate(update("Person", where("name", "ann"), age=2), branch="early")
    graph.branch_create("late", "early")
    graph.mutate(update("Person", where("name", "ann"), age=3), branch="late")
    graph.merge("late")

    with proving("LIN-13"):
        assert graph.merge("early")["outcome"] == "already_up_to_date"
        ann = graph.handle.row("node:Person", "ann")
        assert ann is not None and ann["age"] == 3


@pytest.mark.requirement("LIN-13")
def test_a_branch_that_came_by_way_of_another_one_is_merged_already(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann")])
    for name in ("one", "other"):
        graph.branch_create(name)
    graph.load([person("bob")], "append", branch="one")
    graph.merge("one", "other")
    graph.merge("other")

    with proving("LIN-13"):
        assert graph.merge("one")["outcome"] == "already_up_to_date"


@pytest.mark.requirement("LIN-13")
@pytest.mark.parametrize("ahead", ["main", "draft"])
def test_among_several_lowest_ancestors_the_larger_version_counts(judged: Judged, ahead: str) -> None:
    """Two merges cross each other, so that the branches have two lowest ancestors, neither above the other."""
    graph = judged(SOCIAL, [person("ann", age=0)])
    graph.branch_create("draft")
    for turn in range(2):
        graph.mutate(insert("Company", name=f"{ahead}{turn}"), branch=ahead)
    graph.mutate(update("Person", where("name", "ann"), age=5))
    graph.mutate(insert("Person", name="dan"), branch="draft")
    graph.branch_create("copy", "draft")
    ours, theirs = (head_of(graph, branch)["manifest_version"] for branch in ("main", "draft"))
    graph.merge("main", "draft")
    graph.merge("copy", "main")
    graph.mutate(update("Person", where("name", "ann"), age=0), branch="draft")

    with proving("LIN-13"):
        graph.merge("draft")
        ann = graph.handle.row("node:Person", "ann")
        # From main's commit on, only the branch changed the age; from the branch's own, only main did.
        assert ann is not None
        assert ann["age"] == (0 if ours > theirs else 5)
