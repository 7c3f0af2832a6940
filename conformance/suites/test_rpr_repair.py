"""RPR, TMB: tables whose HEAD is ahead of the manifest with no sidecar, and tables that a tombstone hides."""

from __future__ import annotations

from typing import Any, Final

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.judge.engine import Answer, Handle
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import SOCIAL, insert, node, person, update, where
from conformance.suites.refusals import refused
from fixtures.forge import Forge

NOTES: Final = "node Note {\n  name: String @key\n  x: I32?\n}\nnode Other {\n  name: String @key\n}"


def written_often(judged: Judged) -> JudgedGraph:
    """Lance does not join a fragment that an index covers with one that none covers: there are two of a kind here.

    An engine may index the first write and none after it, so that one is written over.
    """
    graph = judged(NOTES, [node("Note", name="a", x=1), node("Other", name="o")])
    graph.load([node("Note", name="b", x=1)])
    graph.load([node("Note", name="a", x=2)])
    return graph


def drift(found: Answer, table_key: str = "node:Note") -> tuple[int, int, str, str]:
    (table,) = (each for each in found["tables"] if each["table_key"] == table_key)
    return table["manifest_version"], table["lance_head_version"], table["classification"], table["action"]


def rows(handle: Handle) -> list[str]:
    return [row["id"] for row in handle.read("node:Note")]


@pytest.mark.requirement("RPR-01")
def test_without_drift_there_is_nothing_to_repair(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged)
    before = forge(graph.uri).listing()
    pin = graph.handle.table("node:Note")["table_version"]

    with proving("RPR-01"):
        for confirm, force in ((None, None), (True, None), (True, True)):
            assert drift(graph.handle.repair(confirm=confirm, force=force)) == (pin, pin, "no_drift", "no_op")
        assert forge(graph.uri).listing() == before


@pytest.mark.requirement("RPR-01")
def test_force_without_confirm_is_a_bad_request(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged)
    graph.audited = False
    disk = forge(graph.uri)
    disk.raw_append("node:Note", [{"id": "x", "name": "x", "x": 3}])
    before = disk.listing()
    handle = graph.engine.open(graph.uri)

    with proving("RPR-01"):
        refused("bad_request", lambda: handle.repair(force=True), "force without confirm")
        refused("bad_request", lambda: handle.repair(confirm=False, force=True), "force without confirm")
        assert disk.listing() == before


@pytest.mark.requirement("RPR-01")
def test_maintenance_is_shown_first_and_published_when_confirmed(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged)
    disk = forge(graph.uri)
    pin = disk.pin("node:Note")
    head = disk.raw_compact("node:Note")
    tables = disk.list("nodes")
    graph.reopen()
    before, commits = disk.listing(), len(graph.handle.commits())

    with proving("RPR-01"):
        assert drift(graph.handle.repair()) == (pin, head, "verified_maintenance", "preview")
        assert disk.listing() == before, "a preview writes nothing"
        assert drift(graph.handle.repair(confirm=True))[1:] == (head, "verified_maintenance", "healed")
        assert disk.pin("node:Note") == disk.head("node:Note") == head
        assert disk.list("nodes") == tables, "repair rewrites nothing"
        assert len(graph.handle.commits()) == commits + 1, "what it publishes is a commit"
        graph.follow()
        graph.compare("repair", "RPR-01")
        assert drift(graph.handle.repair())[2:] == ("no_drift", "no_op")
        graph.mutate(update("Note", where("name", "a"), x=9))


def appended(disk: Forge) -> None:
    disk.raw_append("node:Note", [{"id": "x", "name": "x", "x": 3}])


def removed(disk: Forge) -> None:
    disk.raw_delete("node:Note", "id = 'a'")


def removed_nothing(disk: Forge) -> None:
    disk.raw_delete("node:Note", "false")


def compacted_and_appended(disk: Forge) -> None:
    disk.raw_compact("node:Note")
    appended(disk)


def appended_and_compacted(disk: Forge) -> None:
    appended(disk)
    disk.raw_compact("node:Note")


SUSPICIOUS: Final = (appended, removed, removed_nothing, compacted_and_appended, appended_and_compacted)


@pytest.mark.requirement("RPR-01")
@pytest.mark.parametrize("change", SUSPICIOUS, ids=lambda change: change.__name__)
def test_other_drift_is_refused_unless_it_is_forced(judged: Judged, forge: ForgeOf, change: Any) -> None:
    graph = written_often(judged)
    disk = forge(graph.uri)
    pin = disk.pin("node:Note")
    change(disk)
    head, tables = disk.head("node:Note"), disk.list("nodes")
    there = sorted(row["id"] for row in disk.table("node:Note").to_table(columns=["id"]).to_pylist())
    graph.reopen()
    before = disk.listing()

    with proving("RPR-01"):
        for confirm, action in ((None, "preview"), (True, "refused")):
            found = drift(graph.handle.repair(confirm=confirm))
            assert (*found[:2], found[3]) == (pin, head, action)
            assert found[2] in ("suspicious", "unverifiable"), "this is more than maintenance"
            assert disk.listing() == before and rows(graph.handle) == ["a", "b"]

        assert drift(graph.handle.repair(confirm=True, force=True))[3] == "forced"
        assert disk.pin("node:Note") == disk.head("node:Note") == head and disk.list("nodes") == tables
        assert rows(graph.handle) == there, "what is there is published as it is"
        assert graph.handle.table("node:Note")["row_count"] == len(there)
        graph.handle.load('{"type":"Note","data":{"name":"late"}}')
        assert rows(graph.handle) == sorted([*there, "late"])


@pytest.mark.requirement("RPR-01", "REC-26")
def test_repair_waits_for_recovery(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged)
    graph.engine.require_live_handles()
    disk = forge(graph.uri)
    name = disk.write_sidecar(disk.sidecar(tables=[disk.pin_of("node:Note")]))
    before = disk.listing()

    with proving("RPR-01", "REC-26"):
        refused("conflict", lambda: graph.handle.repair(confirm=True), "repair while a sidecar is pending")
        assert disk.listing() == before
    disk.delete(name)


@pytest.mark.requirement("RPR-01")
def test_one_drifted_table_does_not_hide_another(judged: Judged, forge: ForgeOf) -> None:
    graph = written_often(judged)
    for name in ("p", "o"):
        graph.load([node("Other", name=name)])
    graph.audited = False
    disk = forge(graph.uri)
    appended(disk)
    disk.raw_compact("node:Other")
    graph.reopen()

    found = graph.handle.repair(confirm=True)

    with proving("RPR-01"):
        assert drift(found)[3] == "refused" and drift(found, "node:Other")[3] == "healed"
        assert disk.pin("node:Other") == disk.head("node:Other")
        assert disk.pin("node:Note") < disk.head("node:Note")


# -- tombstones --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("TMB-01")
def test_a_dropped_type_has_a_tombstone_one_above_its_version(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann"), node("Company", name="acme")])
    graph.mutate(insert("Company", name="beta"))
    disk = forge(graph.uri)
    versions = {key: disk.pin(key) for key in ("node:Company", "edge:WorksAt")}
    before = graph.handle.snapshot()["manifest_version"]
    smaller = SOCIAL.replace("node Company {\n  name: String @key\n}", "").partition("edge WorksAt")[0]

    graph.schema_apply(smaller)

    with proving("TMB-01"):
        for key, version in versions.items():
            row = disk.row(f"{key}$tombstone${version + 1:020}")
            assert (row["object_type"], row["table_key"], row["table_version"]) == ("table_tombstone", key, version + 1)
        shown = {each["table_key"] for each in graph.handle.snapshot()["tables"]}
        assert shown == {"node:Person", "edge:Knows"}, "the tables are hidden"
        assert [row["id"] for row in graph.handle.read("node:Company", version=before)] == ["acme", "beta"]
    graph.branch_create("b")
    with proving("TMB-01"):
        assert {each["table_key"] for each in graph.handle.snapshot("b")["tables"]} == shown, "on new branches too"


@pytest.mark.requirement("TMB-01")
@pytest.mark.parametrize(("distance", "hidden"), [(-1, False), (0, True), (1, True)])
def test_a_tombstone_hides_the_versions_up_to_it(judged: Judged, forge: ForgeOf, distance: int, hidden: bool) -> None:
    graph = judged(SOCIAL, [person("ann")])
    graph.audited = False
    disk = forge(graph.uri)
    version = disk.pin("node:Person") + distance
    disk.add_row(
        object_id=f"node:Person$tombstone${version:020}",
        object_type="table_tombstone",
        table_key="node:Person",
        table_version=version,
    )

    with proving("TMB-01"):
        tables = graph.engine.look(graph.uri).snapshot()["tables"]
        assert ("node:Person" not in {each["table_key"] for each in tables}) == hidden
