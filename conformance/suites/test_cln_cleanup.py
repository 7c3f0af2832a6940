"""CLN: cleanup removes what is old by the caller's word, and never what somebody still reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import JudgedGraph, proving
from conformance.judge.engine import Answer
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import SOCIAL, delete, edge, insert, insert_edge, node, person, update, where
from conformance.suites.refusals import refused
from fixtures.forge import Forge

NOTES: Final = "node Note {\n  name: String @key\n  x: I32?\n}\nnode Other {\n  name: String @key\n}"
AN_HOUR: Final = 3600


def note(x: int) -> dict[str, Any]:
    return node("Note", name="a", x=x)


def written_often(judged: Judged, times: int = 5) -> JudgedGraph:
    graph = judged(NOTES, [node("Other", name="o")])
    for number in range(times):
        graph.load([note(number)])
    return graph


def versions(disk: Forge, table_key: str = "node:Note", fork: str | None = None) -> list[int]:
    """The versions of a table, or of a fork of it, that are there."""
    return sorted(int(each["version"]) for each in disk.storage(table_key, fork).versions())


def by_key(tables: list[Answer]) -> dict[str, Answer]:
    return {each["table_key"]: each for each in tables}


@pytest.mark.requirement("CLN-01")
def test_cleanup_without_a_limit_is_a_bad_request(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged, 2)
    before = forge(graph.uri).listing()

    with proving("CLN-01"):
        refused("bad_request", graph.handle.cleanup, "cleanup without a limit")
        assert forge(graph.uri).listing() == before


# The policy, and how many of the newest versions it leaves of so many; None leaves all.
POLICIES: Final[Mapping[str, tuple[dict[str, Any], int | None]]] = {
    "keep one": ({"keep_versions": 1}, 1),
    "keep two": ({"keep_versions": 2}, 2),
    "keep more than there are": ({"keep_versions": 1000}, None),
    "older than nothing": ({"older_than_seconds": 0}, 1),
    "older than an hour": ({"older_than_seconds": AN_HOUR}, None),
    "keep one, older than an hour": ({"keep_versions": 1, "older_than_seconds": AN_HOUR}, None),
    "keep three, older than nothing": ({"keep_versions": 3, "older_than_seconds": 0}, 3),
}


@pytest.mark.requirement("CLN-02", "CLN-03", "CLN-04")
@pytest.mark.parametrize("name", POLICIES)
def test_a_version_goes_when_every_limit_allows_it_and_never_the_newest(
    judged: Judged, forge: ForgeOf, name: str
) -> None:
    policy, left = POLICIES[name]
    graph = written_often(judged)
    disk = forge(graph.uri)
    before = versions(disk)
    manifest = [int(each["version"]) for each in disk.manifest().versions()]

    tables = by_key(graph.cleanup(**policy))

    with proving("CLN-02"):
        assert versions(disk) == (before if left is None else before[-left:])
        assert before[-1] == graph.handle.table("node:Note")["table_version"], "the newest is what the graph reads"
    with proving("CLN-03"):
        assert set(manifest) <= {int(each["version"]) for each in disk.manifest().versions()}
    with proving("CLN-04"):
        assert tables.keys() == {"node:Note", "node:Other"}
        removed = 0 if left is None else len(before) - left
        assert tables["node:Note"]["old_versions_removed"] == removed
        assert (tables["node:Note"]["bytes_removed"] > 0) == (removed > 0)
        assert [each["error"] for each in tables.values()] == [None, None]


@pytest.mark.requirement("CLN-02")
@pytest.mark.parametrize("beside", [-1, 0, 1], ids=["one less", "as many", "one more"])
def test_keeping_as_many_versions_as_there_are_removes_none(judged: Judged, forge: ForgeOf, beside: int) -> None:
    graph = written_often(judged, 3)
    disk = forge(graph.uri)
    before = versions(disk)

    graph.cleanup(keep_versions=len(before) + beside)

    with proving("CLN-02"):
        assert versions(disk) == (before[1:] if beside < 0 else before)


@pytest.mark.requirement("CLN-03")
def test_cleanup_leaves_forks_the_manifest_and_the_audit_table_alone(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged, 2)
    disk = forge(graph.uri)
    # A recovery, so that there is an audit table.
    disk.crash_between_commit_and_publish(lambda: graph.handle.load(text()), writer_kind="Load")
    graph = graph_after_recovery(graph)
    graph.branch_create("b")
    for number in range(3):
        graph.load([note(10 + number)], branch="b")
    audit = [name for name in disk.list("_graph_commit_recoveries.lance") if "/_versions/" in name]
    before = versions(disk, fork="b")
    manifest = {int(each["version"]) for each in disk.manifest().versions()}
    assert audit, "there was a recovery"

    graph.cleanup(keep_versions=1, older_than_seconds=0)

    with proving("CLN-03"):
        assert versions(disk, fork="b") == before
        assert manifest <= {int(each["version"]) for each in disk.manifest().versions()}
        assert audit == [name for name in disk.list("_graph_commit_recoveries.lance") if "/_versions/" in name]


def text() -> str:
    return '{"type":"Note","data":{"name":"crashed","x":1}}'


def graph_after_recovery(graph: JudgedGraph) -> JudgedGraph:
    """The model does not know whether an engine that builds indexes takes a crashed load forward or back: ask it."""
    handle = graph.engine.open(graph.uri)
    if handle.row("node:Note", "crashed") is not None:
        graph.model.load(text(), mode="merge")
        made = handle.commits()[-1]
        graph.model.identify(graph.model.head(), made["graph_commit_id"], made["manifest_version"], made["created_at"])
    graph.reopen()
    return graph


@pytest.mark.requirement("CLN-04")
def test_the_failure_of_one_table_is_reported_and_does_not_stop_the_others(
    judged: Judged, peers: Peers, forge: ForgeOf
) -> None:
    graph = judged(NOTES)
    for number in range(3):
        graph.load([note(number), node("Other", name=f"o{number}")])
    failing = peers(failpoints="cleanup.table_gc=error*1").open(graph.uri)

    tables = graph.cleanup(through=failing, keep_versions=1)

    with proving("CLN-04"):
        assert len(tables) == 2
        (failed,) = (each for each in tables if each["error"] is not None)
        (done,) = (each for each in tables if each["error"] is None)
        assert done["old_versions_removed"] > 0 and failed["old_versions_removed"] == 0
        assert len(versions(forge(graph.uri), failed["table_key"])) > 1


@pytest.mark.requirement("CLN-05", "CLN-02")
def test_orphaned_forks_go_whatever_the_policy_and_others_stay(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann")])
    graph.branch_create("live")
    graph.branch_create("placed-elsewhere")
    graph.load([person("bob")], branch="live")
    disk = forge(graph.uri)
    disk.create_table_branch("node:Person", "ghost")
    disk.create_table_branch("node:Person", "ghost/child")
    disk.create_table_branch("node:Person", "placed-elsewhere")
    before = versions(disk, "node:Person")
    graph.reopen()

    graph.cleanup(keep_versions=1000)

    with proving("CLN-05"):
        files = [name for name in disk.list("nodes") if "/tree/" in name and "/_versions/" in name]
        forks = {name.partition("/tree/")[2].rpartition("/_versions/")[0] for name in files}
        assert forks == {"live"}, "no manifest places the table on the others"
    with proving("CLN-02"):
        assert versions(disk, "node:Person") == before
    graph.load([person("cat")], branch="placed-elsewhere")
    graph.load([person("dan")], branch="live")


@pytest.mark.requirement("CLN-05")
def test_a_fork_that_a_deleted_branch_left_behind_is_removed(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note(1)])
    graph.branch_create("b")
    graph.load([note(2)], branch="b")
    failing = peers(failpoints="branch_delete.before_table_cleanup=error*1").open(graph.uri)
    graph.branch_delete("b", through=failing)
    disk = forge(graph.uri)

    graph.cleanup(keep_versions=1000)

    with proving("CLN-05"):
        assert [name for name in disk.list("nodes") if "/tree/" in name] == []
    graph.branch_create("b")
    graph.load([note(3)], branch="b")


@pytest.mark.requirement("CLN-06")
def test_after_cleanup_the_graph_works_and_what_is_gone_is_an_error(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann", age=0), person("bob"), edge("Knows", "ann", "bob", id="k")])
    old = graph.handle.snapshot()["manifest_version"]
    for number in range(1, 4):
        graph.mutate(update("Person", where("name", "ann"), age=number))

    graph.cleanup(keep_versions=1)

    with proving("CLN-06"):
        with pytest.raises(EngineError):
            graph.engine.look(graph.uri).read("node:Person", version=old)
        assert graph.handle.row("node:Person", "ann")["age"] == 3  # type: ignore[index]
        graph.reopen()
        graph.load([person("cat", age=1)])
        graph.mutate(update("Person", where("name", "ann"), age=4))
        graph.mutate(insert_edge("Knows", "cat", "ann"))
        graph.mutate(delete("Person", where("name", "bob")))
        graph.load([person("ann"), person("cat")], "overwrite")
        graph.optimize()
        graph.cleanup(keep_versions=1)


# -- what branches read ------------------------------------------------------------------------------------------------

BRANCH_POLICIES: Final = (
    pytest.param({"keep_versions": 1}, False, id="keep one"),
    pytest.param({"older_than_seconds": 0}, False, id="older than nothing"),
    pytest.param({"keep_versions": 2, "older_than_seconds": 0}, False, id="both"),
    pytest.param({"keep_versions": 1}, True, id="keep one, optimized"),
)


def with_branches(judged: Judged) -> JudgedGraph:
    """Branches in every relation to main: one that reads its old versions, one with tables of its own, one made from
    that, and one that has taken over what main had by a merge. Main has moved on after each.
    """
    graph = judged(SOCIAL, [person("ann", age=0), person("bob"), edge("Knows", "ann", "bob", id="k1")])
    graph.branch_create("lazy")
    graph.mutate(update("Person", where("name", "ann"), age=1))
    graph.branch_create("own")
    graph.mutate(update("Person", where("name", "ann"), age=2))
    graph.load([person("own")], branch="own")
    graph.branch_create("own-child", "own")
    graph.load([person("own", age=9)], branch="own")
    graph.branch_create("adopting")
    graph.mutate(insert("Person", name="cat"), insert_edge("Knows", "ann", "cat", id="k2"))
    graph.merge("main", "adopting")
    for number in range(3, 5):
        graph.mutate(update("Person", where("name", "ann"), age=number))
    graph.load([edge("Knows", "bob", "ann", id="k3")])
    return graph


@pytest.mark.long
@pytest.mark.requirement("CLN-07")
@pytest.mark.parametrize(("policy", "optimized"), BRANCH_POLICIES)
def test_every_branch_is_readable_and_writable_after_a_cleanup(
    judged: Judged, policy: dict[str, Any], optimized: bool
) -> None:
    graph = with_branches(judged)
    branches = ("lazy", "own", "own-child", "adopting")
    if optimized:
        graph.optimize()

    with proving("CLN-07"):
        graph.cleanup(**policy)
        graph.reopen()
        for branch in branches:
            graph.mutate(update("Person", where("name", "ann"), email=branch), branch=branch)
            graph.mutate(delete("Person", where("name", "bob")), branch=branch)
        graph.cleanup(**policy)
        for branch in branches:
            graph.load(
                [person(f"late-{branch}"), edge("Knows", f"late-{branch}", "ann", id=f"e-{branch}")], branch=branch
            )
        graph.ensure_indices("lazy")
        graph.branch_create("lazy-child", "lazy")
        graph.mutate(update("Person", where("name", "ann"), age=77), branch="lazy-child")


@pytest.mark.requirement("CLN-07")
@pytest.mark.parametrize("policy", [{"keep_versions": 1}, {"older_than_seconds": 0}], ids=["keep one", "older"])
def test_every_branch_can_be_merged_after_a_cleanup(judged: Judged, policy: dict[str, Any]) -> None:
    """A merge reads the table as it was where the two sides last met, which no branch reads any more."""
    graph = judged(SOCIAL, [person("ann", age=0), person("bob", age=0)])
    graph.branch_create("own")
    graph.mutate(update("Person", where("name", "bob"), age=1), branch="own")
    graph.mutate(update("Person", where("name", "ann"), age=1))
    graph.merge("main", "own")
    for number in range(2, 4):
        graph.mutate(update("Person", where("name", "ann"), age=number))

    with proving("CLN-07"):
        graph.cleanup(**policy)
        graph.mutate(update("Person", where("name", "bob"), age=2), branch="own")
        assert graph.merge("own", "main")["outcome"] == "merged"
        graph.cleanup(**policy)
        assert graph.merge("main", "own")["outcome"] == "fast_forward"
