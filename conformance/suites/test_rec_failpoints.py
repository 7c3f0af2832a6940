"""REC: the gaps of the protocol that only the engine itself can stop in, and graphs that the public engine left.

An engine without failpoints is not asked the first part. The second is for everybody: the crashed golden graphs were
written by the public engine, and what they recover to is its own answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.adapters import EngineError
from conformance.audit.names import LOCK_BRANCH, STAGING_FILES
from conformance.judge import Engine, Handle, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.crashed import Crashed, check_recovered_golden, let_die, put_golden, rows_of
from conformance.suites.graphs import delete, insert, lines, node, update, where
from conformance.suites.refusals import ANY_KIND, refused
from fixtures.forge import Forge
from fixtures.stores.catalog import Store

ITEM, OTHER, SPARE = "node:Item", "node:Other", "node:Spare"
SCHEMA = """
node Item {
  name: String @key
  size: I32? @index
}
node Other {
  name: String @key
}
node Spare {
  name: String @key
}
"""
RECORDS = (node("Item", name="a", size=1), node("Item", name="b"), node("Other", name="o"), node("Spare", name="s"))
EVOLVED = SCHEMA.replace("size: I32? @index", "size: I32? @index\n  note: String?")


def plain(graph: JudgedGraph) -> None:
    """No preparation."""


def forked(graph: JudgedGraph) -> None:
    """A merge into main appends, replaces and removes rows of one table, and adds one to another."""
    graph.branch_create("side")
    graph.mutate(insert("Item", name="c"), update("Item", where("name", "a"), size=5), branch="side")
    graph.mutate(delete("Item", where("name", "b")), branch="side")
    graph.mutate(insert("Other", name="p"), branch="side")


def diverged(graph: JudgedGraph) -> None:
    """The same, and main has changed too, so that rows of both sides come together."""
    forked(graph)
    graph.mutate(insert("Item", name="m"), insert("Other", name="m"))


def fragmented(graph: JudgedGraph) -> None:
    """Two tables that have something to compact."""
    graph.ensure_indices()
    for name in ("d", "e"):
        graph.mutate(insert("Item", name=name), insert("Other", name=name))


@dataclass(frozen=True)
class Writer:
    """One of the six: how it is made to write, and the point between its table commits and its publish."""

    kind: str
    work: Callable[[Handle], object]
    point: str
    prepare: Callable[[JudgedGraph], None] = plain


WRITERS = {
    "mutation": Writer(
        "Mutation",
        lambda handle: handle.mutate(insert("Item", name="c"), insert("Other", name="p")),
        "mutation.post_finalize_pre_publisher",
    ),
    "load": Writer(
        "Load",
        lambda handle: handle.load(lines(node("Item", name="c"), node("Other", name="p"))),
        "mutation.post_finalize_pre_publisher",
    ),
    "merge": Writer(
        "BranchMerge", lambda handle: handle.merge("side"), "branch_merge.post_phase_b_pre_manifest_commit", diverged
    ),
    "schema-apply": Writer(
        "SchemaApply", lambda handle: handle.schema_apply(EVOLVED), "schema_apply.after_staging_write"
    ),
    "index-work": Writer(
        "EnsureIndices", lambda handle: handle.ensure_indices(), "ensure_indices.post_phase_b_pre_manifest_commit"
    ),
    "optimize": Writer(
        "Optimize", lambda handle: handle.optimize(), "optimize.post_phase_b_pre_manifest_commit", fragmented
    ),
}
every_writer = pytest.mark.parametrize("writer", list(WRITERS.values()), ids=list(WRITERS))


def drift(forge: Forge) -> dict[str, int]:
    """How far each HEAD of main is ahead of its pin, where it is."""
    ahead = {key: forge.head(key) - entry.version for key, entry in forge.entries().items() if entry.branch is None}
    return {key: versions for key, versions in ahead.items() if versions}


@pytest.mark.requirement("REC-01", "REC-02", "REC-22", "REC-05")
@every_writer
def test_every_writer_that_stops_before_its_publish_has_left_a_sidecar(
    judged: Judged, forge: ForgeOf, peers: Peers, writer: Writer
) -> None:
    graph = judged(SCHEMA, RECORDS)
    writer.prepare(graph)
    anvil = forge(graph.uri)
    before, commits = rows_of(graph.handle), len(graph.handle.commits())
    handle = peers(failpoints=f"{writer.point}=error*1").open(graph.uri)

    refused(ANY_KIND, lambda: writer.work(handle), "a writer that was stopped")

    ahead, sidecars = drift(anvil), anvil.sidecars()
    with proving("REC-01"):
        assert len(sidecars) == (1 if ahead else len(sidecars)), f"{ahead} moved, and the sidecars are {sidecars}"
        for name, content in sidecars.items():
            body = json.loads(content)
            assert (name, body["writer_kind"]) == (f"__recovery/{body['operation_id']}.json", writer.kind)
            assert (body["schema_version"], body["branch"], type(body["started_at"])) == (2, None, str)
            covered = {pin["table_key"]: pin["expected_version"] for pin in body["tables"]}
            assert {key: anvil.pin(key) for key in ahead}.items() <= covered.items()
    with proving("REC-02"):
        assert len(anvil.decoded().commits) == commits, "something was published before the point"
    with proving("REC-22"):
        assert writer.kind in ("SchemaApply", "EnsureIndices") or SPARE not in ahead
    let_die(anvil)
    recovered = graph.engine.open(graph.uri)
    with proving("REC-05"):
        strict = writer.kind in ("Mutation", "Load") and any(each > 1 for each in ahead.values())
        if ahead:
            kinds = [row["recovery_kind"] for row in recovered.recoveries()]
            assert kinds == ["RolledBack" if strict else "RolledForward"]
        assert drift(anvil) == {} and anvil.sidecars() == {} and LOCK_BRANCH not in anvil.branches()
        is_visible = rows_of(recovered) != before
        assert is_visible == (bool(ahead) and not strict and writer.kind not in ("EnsureIndices", "Optimize"))
        recovered.mutate(insert("Item", name="z"))


@pytest.mark.requirement("REC-03")
@every_writer
def test_a_writer_whose_sidecar_cannot_be_written_has_moved_nothing(
    judged: Judged, forge: ForgeOf, peers: Peers, writer: Writer
) -> None:
    graph = judged(SCHEMA, RECORDS)
    writer.prepare(graph)
    anvil = forge(graph.uri)
    before, entries = rows_of(graph.handle), anvil.entries()
    handle = peers(failpoints="recovery.sidecar_write=error*1").open(graph.uri)

    refused(ANY_KIND, lambda: writer.work(handle), "a writer without its sidecar")

    with proving("REC-03"):
        assert anvil.entries() == entries and drift(anvil) == {}
        assert anvil.sidecars() == {} and LOCK_BRANCH not in anvil.branches()
        assert all(anvil.read(name) is None for name in STAGING_FILES)
        assert rows_of(handle) == before
        writer.work(handle)
        assert drift(anvil) == {}


@pytest.mark.requirement("REC-03", "REC-12")
def test_a_write_that_cannot_get_at_the_sidecars_moves_nothing(judged: Judged, forge: ForgeOf, store: Store) -> None:
    """Where the directory of the sidecars should be is a file: they can be neither listed nor written."""
    if store.name != "local":
        pytest.skip("an object store has no directories that a file could stand in the way of")
    graph = judged(SCHEMA, RECORDS)
    anvil = forge(graph.uri)
    before, entries = rows_of(graph.handle), anvil.entries()
    anvil.write("__recovery/any.txt", b"")
    anvil.delete_below("__recovery")  # With the last thing in it, the directory goes.
    anvil.write("__recovery", b"")

    with proving("REC-03", "REC-12"):
        refused(ANY_KIND, lambda: WRITERS["mutation"].work(graph.handle), "a write that cannot see the sidecars")
        refused(ANY_KIND, lambda: WRITERS["load"].work(graph.handle), "a load that cannot see the sidecars")
        assert anvil.entries() == entries and drift(anvil) == {}
    anvil.delete("__recovery")
    assert rows_of(graph.handle) == before
    WRITERS["mutation"].work(graph.handle)


@pytest.mark.requirement("REC-12")
def test_an_open_that_cannot_list_the_sidecars_fails(judged: Judged, forge: ForgeOf, peers: Peers) -> None:
    graph = judged(SCHEMA, RECORDS)
    work = WRITERS["mutation"].work
    crash = Crashed.before_publish(graph, forge(graph.uri), lambda: work(graph.handle), writer_kind="Mutation")
    kind = crash.expected_kind()
    peer = peers(failpoints="recovery.sidecar_list=error*1")

    with proving("REC-12"):
        refused(ANY_KIND, lambda: peer.open(graph.uri), "a read-write open that cannot list the sidecars")
        assert crash.sidecar_name in crash.forge.sidecars()
        crash.check_settled(peer.open(graph.uri), kind)


# -- merges ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-08")
@pytest.mark.parametrize(
    ("point", "prepare"),
    [
        ("branch_merge.adopt_after_append_pre_upsert", forked),
        ("branch_merge.adopt_after_upsert_pre_delete", forked),
        ("branch_merge.rewrite_after_merge_pre_delete", diverged),
        ("branch_merge.rewrite_after_delete_pre_index", diverged),
        ("recovery.sidecar_confirm", diverged),
    ],
)
def test_a_merge_that_stops_before_it_is_confirmed_is_rolled_back(
    judged: Judged, forge: ForgeOf, peers: Peers, point: str, prepare: Callable[[JudgedGraph], None]
) -> None:
    graph = judged(SCHEMA, RECORDS)
    prepare(graph)
    anvil = forge(graph.uri)
    handle = peers(failpoints=f"{point}=error*1").open(graph.uri)

    refused(ANY_KIND, lambda: handle.merge("side"), "a merge that was stopped")

    let_die(anvil)
    had_sidecar = bool(anvil.sidecars())
    with proving("REC-08"):
        graph.reopen()
        kinds = [row["recovery_kind"] for row in graph.handle.recoveries()]
        assert kinds == (["RolledBack"] if had_sidecar else kinds)
        assert "RolledForward" not in kinds
        assert drift(anvil) == {} and anvil.sidecars() == {}
        graph.merge("side")


# -- heals, and recoveries that are cut --------------------------------------------------------------------------------


@pytest.mark.requirement("REC-06")
@pytest.mark.parametrize("writer", [WRITERS["mutation"], WRITERS["load"], WRITERS["merge"]], ids=lambda each: each.kind)
def test_the_handle_whose_write_was_cut_goes_on_without_a_reopen(
    judged: Judged, forge: ForgeOf, peers: Peers, writer: Writer
) -> None:
    graph = judged(SCHEMA, RECORDS)
    writer.prepare(graph)
    anvil = forge(graph.uri)
    handle = peers(failpoints=f"{writer.point}=error*1").open(graph.uri)
    refused(ANY_KIND, lambda: writer.work(handle), "a writer that was stopped")
    ahead = drift(anvil)
    if writer.kind != "BranchMerge" and any(each > 1 for each in ahead.values()):
        pytest.skip("the engine builds indexes before it publishes, and only an open can take that back")

    with proving("REC-06"):
        handle.mutate(update("Item", where("name", "a"), size=99))
        ids = {row["id"] for row in handle.read(ITEM)}
        assert ("c" in ids) == bool(ahead), "the cut write is neither forward nor back"
        assert anvil.sidecars() == {} and drift(anvil) == {}
        assert [row["recovery_kind"] for row in handle.recoveries()] == ["RolledForward"] * bool(ahead)


@pytest.mark.requirement("REC-13")
@pytest.mark.parametrize("through", ["open", "write"])
def test_a_write_whose_sidecar_cannot_be_removed_has_succeeded(
    judged: Judged, forge: ForgeOf, peers: Peers, through: str
) -> None:
    graph = judged(SCHEMA, RECORDS)
    anvil = forge(graph.uri)
    handle = peers(failpoints="recovery.sidecar_delete=error*1").open(graph.uri)

    with proving("REC-13"):
        answer = handle.load(lines(node("Item", name="c")), actor="mona")
        assert answer["nodes_loaded"] == 1 and answer["commit"] is not None
        assert "c" in {row["id"] for row in handle.read(ITEM)}
        (name,) = anvil.sidecars()
        let_die(anvil)
        if through == "open":
            handle = graph.engine.open(graph.uri)
        else:
            handle.mutate(insert("Other", name="p"))
        assert name not in anvil.sidecars()
        assert [(row["recovery_kind"], row["recovery_for_actor"]) for row in handle.recoveries()] == [
            ("RolledForward", "mona")
        ]
        assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "c"]


@pytest.mark.requirement("REC-14", "REC-18")
@pytest.mark.parametrize("point", ["recovery.record_audit", "recovery.before_roll_forward_publish"])
def test_a_recovery_that_is_cut_is_finished_by_the_next_one(
    judged: Judged, forge: ForgeOf, peers: Peers, engine: Engine, point: str
) -> None:
    graph = judged(SCHEMA, RECORDS)
    graph.ensure_indices()
    crash = Crashed.before_publish(
        graph, forge(graph.uri), lambda: graph.handle.mutate(insert("Item", name="c")), writer_kind="Mutation"
    )
    kind = crash.expected_kind()
    peer = peers(failpoints=f"{point}=error*1")

    with proving("REC-14" if point.endswith("audit") else "REC-18"):
        refused(ANY_KIND, lambda: peer.open(graph.uri), "a recovery that was cut")
        assert crash.sidecar_name in crash.forge.sidecars(), "the sidecar went before the recovery was done"
        assert rows_of(engine.look(graph.uri)) in (crash.before, crash.after)
        handle = peer.open(graph.uri)
        crash.check_audit(handle, kind)
        crash.check_sound(handle, crash.rows_after(kind))
        crash.check_second_open(handle)


@pytest.mark.requirement("REC-17")
@pytest.mark.parametrize("point", ["recovery.orphan_discard_audit_append", "recovery.sidecar_delete"])
def test_the_discard_of_a_deleted_branch_that_is_cut_is_finished_by_the_next_open(
    judged: Judged, forge: ForgeOf, peers: Peers, point: str
) -> None:
    graph = judged(SCHEMA, RECORDS)
    anvil = forge(graph.uri)
    before = rows_of(graph.handle)
    anvil.write_sidecar(anvil.sidecar(writer_kind="Load", branch="gone", tables=[anvil.pin_of(ITEM)]))
    peer = peers(failpoints=f"{point}=error*1")
    with suppress(EngineError):  # Whether a discard that is cut stops the open is left to the engine.
        peer.open(graph.uri)

    with proving("REC-17"):
        handle = peer.open(graph.uri)
        assert anvil.sidecars() == {} and rows_of(handle) == before
        kinds = [row["recovery_kind"] for row in handle.recoveries()]
        assert set(kinds) == {"OrphanedBranchDiscarded"}
        handle.mutate(insert("Item", name="c"))


@pytest.mark.requirement("REC-24")
def test_a_refresh_beside_a_live_writer_takes_nothing_from_it(judged: Judged, forge: ForgeOf, peers: Peers) -> None:
    """Whoever heals while another writes must not make an acknowledged write vanish, nor publish it a second time."""
    graph = judged(SCHEMA, RECORDS)
    graph.engine.require_live_handles()
    writer, healer = peers(), peers()
    writing, healing = writer.open(graph.uri), healer.open(graph.uri)
    start, acknowledged, failed = threading.Barrier(2), list[str](), list[EngineError]()

    def write() -> None:
        start.wait(timeout=60)
        for number in range(6):
            try:
                writing.mutate(insert("Item", name=f"w{number}"), insert("Other", name=f"w{number}"))
                acknowledged.append(f"w{number}")
            except EngineError as error:
                failed.append(error)

    def heal() -> None:
        start.wait(timeout=60)
        for _ in range(12):
            healing.refresh()

    threads = [threading.Thread(target=write), threading.Thread(target=heal)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    with proving("REC-24"):
        handle = graph.engine.open(graph.uri)
        for key in (ITEM, OTHER):
            assert set(acknowledged) <= {row["id"] for row in handle.read(key)}, "an acknowledged write is gone"
        if writer.adapter.command is None:  # Both are in one process, where a healer can see who is alive.
            assert failed == [] and handle.recoveries() == [], "the sidecar of a live writer was taken"
        assert forge(graph.uri).sidecars() == {}


# -- what the public engine left ---------------------------------------------------------------------------------------


@pytest.mark.requirement("REC-04", "REC-05", "REC-08", "REC-13")
@pytest.mark.parametrize(
    ("name", "requirement"),
    [
        ("crashed-load", "REC-05"),
        ("crashed-mutation-half", "REC-04"),
        ("crashed-merge-confirmed", "REC-08"),
        ("unacknowledged-publish", "REC-13"),
    ],
)
def test_a_graph_that_the_public_engine_left_is_recovered_as_it_does(
    engine: Engine, forge: ForgeOf, root: str, tmp_path: Path, name: str, requirement: str
) -> None:
    anvil = forge(root)
    put_golden(name, anvil, tmp_path)

    with proving(requirement):
        check_recovered_golden(name, engine.open(root), anvil)
        assert len(engine.open(root).recoveries()) == 1
