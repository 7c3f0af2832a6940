"""OPT: optimize makes tables of main compact and their indexes complete, and changes nothing that anybody can read."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

import pytest

from conformance.adapters import EngineError, Unsupported
from conformance.judge import JudgedGraph, proving
from conformance.judge.engine import Answer
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import SOCIAL, delete, edge, node, person, update, where
from conformance.suites.refusals import refused
from fixtures.forge import Forge

NOTES: Final = "node Note {\n  name: String @key\n  x: I32? @index\n}"
PICTURES: Final = "node Pic {\n  name: String @key\n  photo: Blob?\n}\nnode Note {\n  name: String @key\n}"


def note(name: str, x: int | None = None) -> dict[str, Any]:
    return node("Note", name=name, x=x)


def fragmented(judged: Judged) -> JudgedGraph:
    """A society that was written in several steps."""
    graph = judged(SOCIAL, [person("ann", age=1), person("bob"), node("Company", name="acme")])
    graph.load([person("cat"), edge("Knows", "ann", "cat", id="k1")])
    graph.load([person("dan"), edge("Knows", "cat", "dan", id="k2")])
    graph.mutate(delete("Person", where("name", "bob")))
    graph.mutate(update("Person", where("name", "ann"), age=2))
    return graph


def by_key(tables: list[Answer]) -> dict[str, Answer]:
    return {each["table_key"]: each for each in tables}


def versions(disk: Forge) -> set[str]:
    """The files of all versions of all tables."""
    return {name for name in disk.list("") if "/_versions/" in name and name.endswith(".manifest")}


@pytest.mark.requirement("OPT-01")
def test_a_table_can_be_optimized_again_and_again(judged: Judged) -> None:
    """A row that is rewritten leaves a gap in the row ids of its fragment. Who compacts that once more has to follow:
    an engine of this kind panics there.
    """
    graph = judged("node Note {\n  name: String @key\n  x: I32?\n}")
    meant: dict[str, int] = {}

    with proving("OPT-01"):
        for turn in "abc":
            for half in "12":
                graph.load([note(f"{turn}{half}0", 0), note(f"{turn}{half}1", 1)])
            graph.optimize()
            graph.mutate(update("Note", where("x", 0), x=50))
            graph.optimize()
            meant |= {f"{turn}{half}{number}": (50, 1)[number] for half in "12" for number in (0, 1)}
            assert {row["name"]: row["x"] for row in graph.handle.read("node:Note")} == meant


@pytest.mark.requirement("OPT-01", "OPT-02", "OPT-03", "OPT-07")
def test_optimize_compacts_indexes_and_commits_each_changed_table_once(judged: Judged, forge: ForgeOf) -> None:
    graph = fragmented(judged)
    disk = forge(graph.uri)
    commits, files = graph.handle.commits(), versions(disk)
    fragments = {key: len(disk.storage(key).get_fragments()) for key in ("node:Person", "edge:Knows")}
    states = {
        each["manifest_version"]: graph.handle.read("node:Person", version=each["manifest_version"])
        for each in commits[1:]
    }

    tables = graph.optimize()

    with proving("OPT-01"):
        keys = [each["table_key"] for each in tables]
        assert sorted(keys[:-1]) == ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"]
        assert keys[-1] == "__manifest", "the manifest comes last"
        changed = [each["table_key"] for each in tables[:-1] if each["committed"]]
        assert {"node:Person", "edge:Knows"} <= set(changed), "these had several fragments"
        assert not by_key(tables)["edge:WorksAt"]["committed"], "an empty table has nothing to do"
        assert by_key(tables)["node:Person"]["fragments_removed"] > by_key(tables)["node:Person"]["fragments_added"]
        assert len(graph.handle.commits()) == len(commits) + len(changed), "one commit for each changed table"
        for key, before in fragments.items():
            handle = disk.storage(key)
            assert handle.version == graph.handle.table(key)["table_version"], "what was done is published"
            assert len(handle.get_fragments()) <= before
            assert {index.rows_indexed for index in disk.indices(key)} == {handle.count_rows()}
        assert {("id",), ("name",), ("email",)} >= {index.columns for index in disk.indices("node:Person")}
        assert {("src",), ("dst",), ("id",)} == {index.columns for index in disk.indices("edge:Knows")}
    with proving("OPT-03"):
        assert files <= versions(disk), "no version is removed"
        for version, rows in states.items():
            assert graph.handle.read("node:Person", version=version) == rows
    with proving("OPT-07"):
        assert disk.sidecars() == {}
    with proving("OPT-02"):
        commits, pins = graph.handle.commits(), graph.handle.snapshot()["tables"]
        again = graph.optimize()
        assert not [each["table_key"] for each in again[:-1] if each["committed"]]
        assert graph.handle.commits() == commits and graph.handle.snapshot()["tables"] == pins


@pytest.mark.requirement("OPT-01")
def test_optimize_leaves_branches_alone_and_they_stay_writable(judged: Judged, forge: ForgeOf) -> None:
    graph = fragmented(judged)
    graph.branch_create("lazy")
    graph.branch_create("own")
    graph.load([person("eve")], branch="own")
    graph.load([person("fay")], branch="own")
    disk = forge(graph.uri)
    before = {branch: graph.handle.snapshot(branch)["tables"] for branch in ("lazy", "own")}
    head = disk.storage("node:Person", "own").version

    graph.optimize()

    with proving("OPT-01"):
        assert {branch: graph.handle.snapshot(branch)["tables"] for branch in before} == before
        assert disk.storage("node:Person", "own").version == head
        for branch in before:
            graph.mutate(update("Person", where("name", "cat"), age=7), branch=branch)
            graph.mutate(delete("Person", where("name", "dan")), branch=branch)
        graph.mutate(update("Person", where("name", "ann"), age=8))
        assert graph.merge("own")["outcome"] == "merged"
        assert graph.merge("main", "lazy")["outcome"] == "merged"
        graph.optimize()


@pytest.mark.requirement("OPT-03")
@pytest.mark.parametrize("dataset", ["node:Note", "__manifest"])
def test_optimize_removes_no_version_of_a_dataset_that_cleans_up_by_itself(
    judged: Judged, forge: ForgeOf, dataset: str
) -> None:
    """Somebody has told Lance to remove every version but the last with each commit."""
    graph = judged(NOTES, [note("a", 1)])
    graph.audited = False
    for number in range(3):
        graph.load([note(f"n{number}", number)])
    disk = forge(graph.uri)
    settings: dict[str, str | None] = {"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"}
    if dataset == "__manifest":
        disk.manifest().update_config(settings)
    else:
        disk.amend(dataset, lambda handle: handle.update_config(settings))
    before = versions(disk)
    graph.reopen()

    graph.optimize()

    with proving("OPT-03"):
        assert sorted(before - versions(disk)) == [], "these versions are gone"


@pytest.mark.requirement("OPT-04")
def test_tables_with_blobs_and_tables_that_drifted_are_skipped_and_the_others_are_not(
    judged: Judged, forge: ForgeOf
) -> None:
    graph = judged(
        PICTURES + "\nnode Drifted {\n  name: String @key\n}",
        [node("Pic", name="a", photo="base64:AAAA"), node("Note", name="a"), node("Drifted", name="a")],
    )
    graph.load([node("Pic", name="b", photo="base64:BBBB"), node("Note", name="b"), node("Drifted", name="b")])
    disk = forge(graph.uri)
    pin = disk.pin("node:Drifted")
    head = disk.raw_append("node:Drifted", [{"id": "x", "name": "x"}])
    pictures = disk.head("node:Pic")
    graph.audited = False
    graph.reopen()

    tables = by_key(graph.optimize())

    with proving("OPT-04"):
        assert tables["node:Pic"]["skipped"] == "blob_columns_unsupported_by_lance"
        assert disk.head("node:Pic") == pictures and not tables["node:Pic"]["committed"]
        drifted = tables["node:Drifted"]
        assert drifted["skipped"] == "drift_needs_repair" and not drifted["committed"]
        assert (drifted["manifest_version"], drifted["lance_head_version"]) == (pin, head)
        assert disk.head("node:Drifted") == head and disk.pin("node:Drifted") == pin, "drift is neither hidden nor kept"
        assert tables["node:Note"]["skipped"] is None and tables["node:Note"]["committed"]


@pytest.mark.requirement("OPT-05")
def test_optimize_waits_for_recovery(judged: Judged, forge: ForgeOf) -> None:
    graph = fragmented(judged)
    graph.engine.require_live_handles()
    disk = forge(graph.uri)
    name = disk.write_sidecar(disk.sidecar(tables=[disk.pin_of("node:Person")]))
    before = disk.listing()

    with proving("OPT-05"):
        refused("conflict", graph.handle.optimize, "optimize while a sidecar is pending")
        assert disk.listing() == before, "nothing is written, and the sidecar is recovery's"
    disk.delete(name)
    graph.optimize()


@pytest.mark.requirement("OPT-06")
def test_optimize_survives_conflicts_within_its_budget(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = fragmented(judged)
    graph.ensure_indices()
    graph.load([person("eve")])
    hindered = peers(failpoints="optimize.inject_reindex_conflict=error*2").open(graph.uri)

    with proving("OPT-06"):
        tables = by_key(graph.optimize(through=hindered))
        assert tables["node:Person"]["committed"] and tables["node:Person"]["skipped"] is None
        disk = forge(graph.uri)
        assert disk.head("node:Person") == disk.pin("node:Person") and disk.sidecars() == {}
        assert {index.rows_indexed for index in disk.indices("node:Person")} == {4}


@pytest.mark.requirement("OPT-06")
def test_optimize_beside_a_writer_loses_none_of_its_rows(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(NOTES, [note("a", 1)])
    graph.load([note("b", 1)])
    writer, optimizer = peers().open(graph.uri), peers().open(graph.uri)
    written, refusals, start = ["a", "b"], list[EngineError](), threading.Barrier(2)

    def write() -> None:
        start.wait()
        for number in range(6):
            try:
                writer.load(f'{{"type":"Note","data":{{"name":"n{number}"}}}}')
                written.append(f"n{number}")
            except EngineError as error:
                refusals.append(error)

    def optimize() -> None:
        start.wait()
        for _ in range(2):
            try:
                optimizer.optimize()
            except EngineError as error:
                refusals.append(error)

    threads = [threading.Thread(target=write), threading.Thread(target=optimize)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with proving("OPT-06"):
        assert {error.kind for error in refusals} <= {"conflict"}, "who loses is told so"
        handle = graph.engine.open(graph.uri)
        assert [row["id"] for row in handle.read("node:Note")] == sorted(written)
        handle.load('{"type":"Note","data":{"name":"late"}}')
        handle.optimize()
        disk = forge(graph.uri)
        assert disk.head("node:Note") == disk.pin("node:Note") and disk.sidecars() == {}


@pytest.mark.requirement("OPT-07")
def test_the_manifest_is_compacted_without_a_commit(judged: Judged, forge: ForgeOf) -> None:
    """All tables of this graph have blobs, so that the manifest is all there is to do."""
    graph = judged("node Pic {\n  name: String @key\n  photo: Blob?\n}", [node("Pic", name="p0")])
    for number in range(1, 5):
        graph.load([node("Pic", name=f"p{number}")])
    graph.branch_create("b")
    disk = forge(graph.uri)
    commits, tables = graph.handle.commits(), graph.handle.snapshot()["tables"]
    fragments = len(disk.manifest().get_fragments())
    branch = graph.handle.snapshot("b")

    graph.optimize()

    with proving("OPT-07"):
        assert graph.handle.commits() == commits, "no commit"
        assert graph.handle.snapshot()["tables"] == tables and graph.handle.snapshot("b") == branch
        assert disk.sidecars() == {}
        assert len(disk.manifest().get_fragments()) <= fragments
        with suppress(Unsupported):  # Not every engine shows old rows that have blobs.
            for commit in commits[1:]:
                version = commit["manifest_version"]
                assert graph.handle.read("node:Pic", version=version) == graph.handle.read(
                    "node:Pic", commit=commit["graph_commit_id"]
                )
        graph.load([node("Pic", name="late")])
        graph.load([node("Pic", name="late")], branch="b")


@pytest.mark.requirement("OPT-01")
@pytest.mark.long
def test_more_tables_than_are_worked_on_at_a_time_are_all_optimized(judged: Judged) -> None:
    """How many are worked on together nobody sees; that none is left out, one does."""
    names = [f"T{number}" for number in range(10)]
    graph = judged("\n".join(f"node {name} {{\n  name: String @key\n}}" for name in names))
    for row in ("a", "b"):
        graph.load([node(name, name=row) for name in names])

    tables = graph.optimize()

    with proving("OPT-01"):
        committed = {each["table_key"] for each in tables if each["committed"]}
        assert committed >= {f"node:{name}" for name in names}
