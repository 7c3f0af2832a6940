"""DEL: what a delete takes with it, what it leaves, and that it is one commit.

Deleting a node deletes every edge that begins or ends there, of whatever type, and nothing else. A delete that matches
nothing is no write at all, and one that fails half way has moved nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    data_commits,
    delete,
    delete_edge,
    edge,
    insert,
    insert_edge,
    node,
    person,
    where,
)
from conformance.suites.refusals import ANY_KIND, refused

# Every way in which an edge type can touch a node type: from it, to it, both, and not at all.
TOWNS: Final = """
node Town { name: String @key }
node Person { name: String @key }
node Tree { name: String @key }
edge Road: Town -> Town
edge Lives: Person -> Town
edge Hosts: Town -> Person
edge Knows: Person -> Person
edge Plants: Person -> Tree
"""
TOWN_RECORDS: Final = (
    *(node("Town", name=name) for name in ("x", "y", "z")),
    *(node("Person", name=name) for name in ("x", "p", "q")),
    *(node("Tree", name=name) for name in ("x", "oak")),
    edge("Road", "x", "x", id="loop"),
    edge("Road", "x", "y", id="out"),
    edge("Road", "y", "x", id="in"),
    edge("Road", "y", "z", id="away"),
    edge("Lives", "p", "x", id="p in x"),
    edge("Lives", "x", "y", id="x in y"),
    edge("Hosts", "x", "q", id="x hosts q"),
    edge("Hosts", "z", "x", id="z hosts x"),
    edge("Knows", "x", "p", id="x knows p"),
    edge("Plants", "x", "x", id="x plants x"),
)


def versions(graph: JudgedGraph, branch: str | None = None) -> dict[str, int]:
    return {each["table_key"]: each["table_version"] for each in graph.handle.snapshot(branch)["tables"]}


@pytest.mark.requirement("DEL-01")
def test_all_deletes_of_a_mutation_are_one_commit_of_each_table(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [*PEOPLE, *(person(f"p{n}", age=n) for n in range(6))])
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann"))
    disk = forge(graph.uri)
    before = {key: disk.pin(key) for key in ("node:Person", "edge:Knows")}
    commits = len(graph.handle.commits())

    graph.mutate(
        delete("Person", where("age", 2, "lt")),
        delete("Person", where("name", "ann")),
        delete("Person", where("age", [2, 3], "in")),
        delete_edge("Knows", where("from", "bob")),
    )

    with proving("DEL-01"):
        for key, version in before.items():
            assert data_commits(disk, key, version) == 1, f"the deletes of {key} must be one commit of it"
        assert len(graph.handle.commits()) == commits + 1, "and all of them one commit of the graph"


@pytest.mark.requirement("DEL-02")
@pytest.mark.parametrize(
    ("statements", "nodes", "edges"),
    [
        ((delete("Town", where("name", "x")),), 1, 5),
        ((delete("Person", where("name", "x")),), 1, 4),
        ((delete("Tree", where("name", "x")),), 1, 1),
        ((delete("Tree", where("name", "oak")),), 1, 0),
        ((delete("Town", {"all": True}),), 3, 8),
        ((delete("Town", where("name", ["x", "y"], "in")), delete("Person", where("name", "x"))), 3, 10),
        ((delete_edge("Road", where("from", "x")), delete("Town", where("name", "x"))), 1, 5),
        ((delete("Town", where("name", "x")), delete_edge("Road", where("from", "x"))), 1, 5),
        ((delete_edge("Road", where("from", "x")),), 0, 2),
    ],
    ids=["a town", "a person", "a tree", "no edges", "every town", "several", "edge first", "node first", "edges only"],
)
def test_the_edges_of_a_node_go_with_it_each_counted_once(
    judged: Judged, statements: tuple[dict[str, object], ...], nodes: int, edges: int
) -> None:
    """Nodes of three types are called x here: an edge belongs to the node of its own end's type."""
    graph = judged(TOWNS, TOWN_RECORDS)
    commits = len(graph.handle.commits())

    with proving("DEL-02"):
        answer = graph.mutate(*statements)
        assert (answer["affected_nodes"], answer["affected_edges"]) == (nodes, edges)
        assert len(graph.handle.commits()) == commits + 1, "nodes and edges go in one commit"


@pytest.mark.requirement("DEL-02")
def test_the_cascade_finds_ids_of_any_spelling(judged: Judged) -> None:
    names = ("it's", 'a "b"', "back\\slash", "日本", "\U0001f600", "%", "a,b", "('x')", "null", " space ", "line\nfeed")
    graph = judged(SOCIAL, [*(person(name) for name in names), *(edge("Knows", name, name) for name in names)])
    graph.mutate(*(insert_edge("Knows", names[n - 1], name) for n, name in enumerate(names)))

    with proving("DEL-02"):
        for name in names[:3]:
            assert graph.mutate(delete("Person", where("name", name)))["affected_nodes"] == 1
        graph.mutate(delete("Person", where("name", list(names), "in")))
        assert graph.handle.read("edge:Knows") == []


@pytest.mark.requirement("DEL-03")
def test_a_delete_that_matches_nothing_is_no_write(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = forge(graph.uri).listing()

    with proving("DEL-03"):
        for statement in (
            delete("Person", where("name", "nobody")),
            delete("Person", where("age", 99, "gt")),
            delete_edge("Knows", where("from", "nobody")),
            delete_edge("Knows", where("since", None)),
            delete("Company", {"not": {"all": True}}),
        ):
            answer = graph.mutate(statement)
            assert (answer["affected_nodes"], answer["affected_edges"], answer["commit"]) == (0, 0, None)
        assert forge(graph.uri).listing() == before, "nothing on disk has changed"


@pytest.mark.requirement("DEL-03")
def test_a_delete_moves_only_the_tables_in_which_it_found_rows(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [*PEOPLE, person("lone")])
    disk = forge(graph.uri)
    before = versions(graph)
    heads = {key: disk.head(key) for key in before}

    graph.mutate(delete("Person", where("name", "lone")), delete("Company", where("name", "nobody")))

    with proving("DEL-03"):
        after = versions(graph)
        moved = {key for key in before if after[key] != before[key]}
        assert moved == {"node:Person"}, "edge tables without an edge of it, and tables without a match, stay"
        assert {key for key in heads if disk.head(key) != heads[key]} == {"node:Person"}


@pytest.mark.requirement("DEL-06")
def test_a_delete_on_a_branch_forks_every_table_that_it_reaches(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("feat/one")
    before = versions(graph)

    graph.mutate(delete("Person", where("name", "ann")), branch="feat/one")

    with proving("DEL-06"):
        owners = {each["table_key"]: each["table_branch"] for each in graph.handle.snapshot("feat/one")["tables"]}
        assert owners == {
            "node:Person": "feat/one",
            "edge:Knows": "feat/one",
            "edge:WorksAt": "feat/one",
            "node:Company": None,
        }
        assert versions(graph) == before, "main has not moved"
        assert all(each["table_branch"] is None for each in graph.handle.snapshot()["tables"])
        graph.mutate(delete("Person", where("name", "bob")))
        graph.mutate(delete("Person", where("name", "bob")), branch="feat/one")


@pytest.mark.requirement("DEL-07")
def test_deleted_rows_can_be_read_at_older_versions(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = graph.handle.snapshot()["manifest_version"]
    commit = graph.handle.commits()[-1]["graph_commit_id"]
    rows = {key: graph.handle.read(key) for key in versions(graph)}

    graph.mutate(delete("Person", where("name", "ann")))
    graph.mutate(delete("Person", {"all": True}))
    graph.load([person("ann", age=99)])

    with proving("DEL-07"):
        for handle in (graph.handle, graph.reopen()):
            for key, meant in rows.items():
                assert handle.read(key, version=before) == meant, f"{key} at version {before}"
                assert handle.read(key, commit=commit) == meant, f"{key} at commit {commit}"


@pytest.mark.requirement("DEL-08")
def test_a_failure_within_a_cascade_moves_nothing(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    failing = peers(failpoints="mutation.delete_node_pre_primary_delete=error*1")
    handle = failing.open(graph.uri)
    heads = {key: disk.head(key) for key in versions(graph)}
    before = versions(graph), graph.handle.export()

    with proving("DEL-08"):
        refused(ANY_KIND, partial(handle.mutate, delete("Person", where("name", "ann"))), "the delete that is cut")
        assert {key: disk.head(key) for key in heads} == heads, "no table has moved"
        assert disk.sidecars() == {}
        assert (versions(graph), graph.handle.export()) == before
        failing.close()
        graph.mutate(delete("Person", where("name", "ann")))
