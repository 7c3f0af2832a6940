"""MAN, the second half: what the rows of a manifest mean together, which is the snapshot of a branch.

Of each table the highest version counts, unless a tombstone hides it, whoever owns the data; and what the manifest says
about the number of rows is true of every version that it ever pinned.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.audit.names import tombstone_object_id, version_object_id
from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, insert, node, person, update, where


def keys_of(snapshot: dict[str, Any]) -> list[str]:
    return [entry["table_key"] for entry in snapshot["tables"]]


@pytest.mark.requirement("MAN-09")
@pytest.mark.parametrize(("distance", "is_hidden"), [(-1, False), (0, True), (1, True)])
def test_a_tombstone_hides_the_versions_up_to_its_own(
    judged: Judged, forge: ForgeOf, distance: int, is_hidden: bool
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    version = there.pin("edge:Knows") + distance
    there.add_row(
        object_id=tombstone_object_id("edge:Knows", version),
        object_type="table_tombstone",
        table_key="edge:Knows",
        table_version=version,
    )

    with proving("MAN-09"):
        keys = keys_of(graph.engine.look(graph.uri).snapshot())
        others = ["edge:WorksAt", "node:Company", "node:Person"]
        assert keys == (others if is_hidden else ["edge:Knows", *others])


@pytest.mark.requirement("MAN-09")
def test_a_snapshot_takes_the_highest_version_wherever_its_row_lies(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"))
    there, pinned = forge(graph.uri), graph.handle.table("node:Person")
    # Rewritten rows come last in the dataset: version 1 now lies behind the pinned one.
    there.set_row(version_object_id("node:Person", 1), row_count=0)

    with proving("MAN-09"):
        graph.reopen()
        assert graph.handle.table("node:Person") == pinned
        assert len(graph.handle.read("node:Person")) == 4


@pytest.mark.requirement("MAN-09")
def test_a_snapshot_is_sorted_by_table_key(judged: Judged) -> None:
    names = ["Zoo", "Aa", "A_x", "AZ", "Bee"]
    source = "".join(f"node {name} {{\n  name: String @key\n}}\n" for name in names)
    graph = judged(source + "edge Zips: Zoo -> Aa\nedge Eats: Bee -> Bee\n", [node("Zoo", name="z")])

    with proving("MAN-09"):
        keys = keys_of(graph.handle.snapshot())
        assert keys == ["edge:Eats", "edge:Zips", "node:AZ", "node:A_x", "node:Aa", "node:Bee", "node:Zoo"]


@pytest.mark.requirement("MAN-10")
def test_a_branch_has_one_entry_per_table_whoever_owns_the_data(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("draft")
    graph.mutate(insert("Person", name="dan"), branch="draft")
    graph.branch_create("later", "draft")
    graph.mutate(insert("Company", name="initech"), branch="later")
    for name in ("eve", "fay", "gus"):  # Main moves further ahead than the branch is.
        graph.mutate(insert("Person", name=name))

    owners = {branch: _owners(graph, branch) for branch in ("main", "draft", "later")}
    with proving("MAN-10"):
        nobody = {"edge:Knows": None, "edge:WorksAt": None, "node:Company": None, "node:Person": None}
        assert owners["main"] == nobody
        assert owners["draft"] == {**nobody, "node:Person": "draft"}
        assert owners["later"] == {**nobody, "node:Person": "draft", "node:Company": "later"}
        for branch in ("draft", "later"):
            assert len(keys_of(graph.handle.snapshot(branch))) == 4
            versions = [row for row in forge(graph.uri).rows(branch) if row["object_id"].startswith("node:Person$")]
            assert {row["table_branch"] for row in versions} == {None, "draft"}, "the rows of main stay in it"
            assert [row["id"] for row in graph.handle.read("node:Person", branch)] == ["ann", "bob", "cat", "dan"]


def _owners(graph: JudgedGraph, branch: str) -> dict[str, str | None]:
    return {entry["table_key"]: entry["table_branch"] for entry in graph.handle.snapshot(branch)["tables"]}


@pytest.mark.requirement("MAN-11")
def test_row_counts_are_the_live_rows_of_the_pinned_versions(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.load([person("ann", age=1), person("dan")])  # One row replaced, one new.
    graph.mutate(update("Person", where("name", "bob"), age=7))
    graph.mutate(delete("Person", where("name", "cat")))  # With the edge at it.
    graph.load([node("Company", name="acme"), node("Company", name="initech")], mode="overwrite")
    if graph.engine.supports("branch_create", "merge"):
        graph.branch_create("draft")
        graph.mutate(delete("Person", where("name", "dan")), branch="draft")
        graph.merge("draft")
    if graph.engine.supports("optimize"):
        graph.optimize()

    with proving("MAN-11"):
        for branch in graph.model.branch_list():
            for entry in graph.handle.snapshot(branch)["tables"]:
                key = entry["table_key"]
                assert entry["row_count"] == len(graph.model.state(branch)[key]), f"{key} of {branch}"
        datasets = {key: forge(graph.uri).storage(key) for key in keys_of(graph.handle.snapshot())}
        for row in forge(graph.uri).rows():
            if row["object_type"] == "table_version" and row["table_branch"] is None:
                rows = datasets[row["table_key"]].checkout_version(row["table_version"]).count_rows()
                assert row["row_count"] == rows, f"{row['object_id']} counts {row['row_count']} rows and has {rows}"
