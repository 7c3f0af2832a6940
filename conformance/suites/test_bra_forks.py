"""BRA: the storage of branches: forks that nobody owns, names beside each other, and files that others still read."""

from __future__ import annotations

import threading
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

from conformance.adapters import EngineError
from conformance.judge import Engine, Handle, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.crashed import rows_of
from conformance.suites.graphs import PEOPLE, SOCIAL, delete, insert, insert_edge, node, person, update, where
from conformance.suites.refusals import DEFINITE, refused
from fixtures.forge import Forge, NothingThere

ITEM, OTHER = "node:Item", "node:Other"
TWO = "node Item {\n  name: String @key\n  size: I32?\n}\nnode Other {\n  name: String @key\n}\n"
ROWS = (node("Item", name="a", size=1), node("Item", name="b"), node("Other", name="o"))
PERSON = "node:Person"
# Everything that a cleanup can keep: it is called for what belongs to nobody.
KEEP = 1000


def has_fork(forge: Forge, table_key: str, name: str) -> bool:
    try:
        forge.storage(table_key, name)
    except NothingThere:
        return False
    return True


def orphan(forge: Forge, table_key: str, name: str, *, row: str | None = "ghost", source: str | None = None) -> None:
    """A fork that no manifest places, and on it a row that nobody must ever see."""
    forge.create_table_branch(table_key, name, source)
    if row is not None:
        fork = forge.storage(table_key, name)
        lance.write_dataset(pa.Table.from_pylist([{"id": row, "name": row}], schema=fork.schema), fork, mode="append")


# -- orphans -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-10")
@pytest.mark.parametrize("row", [None, "ghost"], ids=["bare", "with-a-row"])
@pytest.mark.parametrize("is_later", [False, True], ids=["same-version", "older-version"])
def test_a_first_write_replaces_a_fork_that_nobody_placed(
    judged: Judged, forge: ForgeOf, row: str | None, is_later: bool
) -> None:
    graph = judged(TWO, ROWS)
    anvil = forge(graph.uri)
    if is_later:
        orphan(anvil, ITEM, "feat/one", row=row)
        graph.mutate(insert("Item", name="c"))
        graph.branch_create("feat/one")
    else:
        graph.branch_create("feat/one")
        orphan(anvil, ITEM, "feat/one", row=row)
    graph.reopen()

    with proving("BRA-10"):
        graph.mutate(insert("Item", name="d"), branch="feat/one")
        graph.mutate(update("Item", where("name", "a"), size=9), branch="feat/one")
        assert "ghost" not in graph.handle.export("feat/one")
        assert anvil.entries("feat/one")[ITEM].branch == "feat/one"
        graph.reopen()


@pytest.mark.requirement("BRA-10")
@pytest.mark.parametrize("op", ["load", "merge"])
def test_every_kind_of_first_write_replaces_an_orphan(judged: Judged, forge: ForgeOf, op: str) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("feat/one")
    graph.mutate(insert("Item", name="c"))
    orphan(forge(graph.uri), ITEM, "feat/one")
    graph.reopen()

    with proving("BRA-10"):
        if op == "load":
            graph.load([node("Item", name="d")], "append", branch="feat/one")
        else:
            graph.mutate(insert("Item", name="d"))
            graph.merge("main", "feat/one")
        assert "ghost" not in graph.handle.export("feat/one")


@pytest.mark.requirement("BRA-14")
def test_a_branch_is_made_again_over_the_forks_of_its_predecessor(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("side")
    graph.mutate(insert("Item", name="old"), insert("Other", name="old"), branch="side")
    anvil = forge(graph.uri)
    left = anvil.photograph("nodes")
    graph.branch_delete("side")
    anvil.restore(left)  # The deletion died before it came to the tables.
    graph.mutate(insert("Item", name="c"))
    graph.reopen()

    with proving("BRA-14"):
        graph.branch_create("side")
        graph.mutate(insert("Item", name="new"), branch="side")
        graph.load([node("Other", name="new")], branch="side")
        graph.reopen()
        graph.merge("side")
        assert "old" not in graph.handle.export() and "old" not in graph.handle.export("side")


@pytest.mark.requirement("BRA-11")
def test_a_fork_whose_owner_cannot_be_read_stays(judged: Judged, forge: ForgeOf, peers: Peers) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("side")
    anvil = forge(graph.uri)
    orphan(anvil, ITEM, "side")
    handle = peers(failpoints="classify.fresh_read=error*1").open(graph.uri)
    forked = {name: stat for name, stat in anvil.listing().items() if "/tree/side/" in name}

    with proving("BRA-11"):
        refused("conflict", lambda: handle.mutate(insert("Item", name="c"), branch="side"), "a write of unknown owner")
        assert {name: stat for name, stat in anvil.listing().items() if "/tree/side/" in name} == forked
        handle.mutate(insert("Item", name="c"), branch="side")
        assert [row["id"] for row in handle.read(ITEM, "side")] == ["a", "b", "c"]


@pytest.mark.requirement("BRA-13", "BRA-15")
def test_a_deletion_whose_clearing_up_fails_has_succeeded(judged: Judged, forge: ForgeOf, peers: Peers) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("side")
    graph.mutate(insert("Item", name="c"), insert("Other", name="p"), branch="side")
    anvil = forge(graph.uri)
    handle = peers(failpoints="branch_delete.before_table_cleanup=error*2").open(graph.uri)

    with proving("BRA-13"):
        handle.branch_delete("side")
        assert handle.branch_list() == ["main"] and anvil.branches() == []
        assert has_fork(anvil, ITEM, "side") or has_fork(anvil, OTHER, "side"), "nothing was left to clean up"
    with proving("BRA-15"):
        graph.model.branch_delete("side")
        graph.cleanup(keep_versions=KEEP)
        assert not has_fork(anvil, ITEM, "side") and not has_fork(anvil, OTHER, "side")


@pytest.mark.requirement("BRA-15", "BRA-18")
def test_cleanup_removes_the_forks_that_nobody_places_and_no_other(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("live")
    graph.mutate(insert("Item", name="l"), branch="live")
    graph.branch_create("child", "live")
    graph.mutate(insert("Item", name="c"), branch="child")
    graph.branch_create("idle")
    anvil = forge(graph.uri)
    orphan(anvil, ITEM, "gone")
    orphan(anvil, ITEM, "gone/child", source="gone")
    orphan(anvil, OTHER, "gone")
    orphan(anvil, OTHER, "live")  # The branch is there, and does not place this table on itself.
    orphan(anvil, ITEM, "idle", row=None)
    graph.reopen()

    with proving("BRA-15"):
        answer = graph.cleanup(keep_versions=KEEP)
        assert [each["error"] for each in answer if each["error"]] == []
        for key, name in ((ITEM, "gone"), (ITEM, "gone/child"), (OTHER, "gone"), (OTHER, "live"), (ITEM, "idle")):
            assert not has_fork(anvil, key, name), f"the fork '{name}' of {key} belongs to nobody, and is still there"
        graph.cleanup(keep_versions=KEEP)
    with proving("BRA-18"):
        assert has_fork(anvil, ITEM, "live") and has_fork(anvil, ITEM, "child")
        graph.reopen()
        for name in ("live", "child", "idle", "main"):
            graph.mutate(insert("Item", name="z"), insert("Other", name="z"), branch=name)


@pytest.mark.requirement("BRA-15")
@pytest.mark.parametrize("point", ["cleanup.reconcile_fork", "classify.fresh_read"])
def test_a_fork_that_cannot_be_removed_does_not_stop_cleanup(
    judged: Judged, forge: ForgeOf, peers: Peers, point: str
) -> None:
    graph = judged(TWO, ROWS)
    anvil = forge(graph.uri)
    orphan(anvil, ITEM, "gone")
    orphan(anvil, OTHER, "gone")
    handle = peers(failpoints=f"{point}=error*1").open(graph.uri)

    with proving("BRA-15"):
        handle.cleanup(keep_versions=KEEP)
        left = [key for key in (ITEM, OTHER) if has_fork(anvil, key, "gone")]
        assert len(left) <= 1, "a failure on one table has stopped the other"
        handle.cleanup(keep_versions=KEEP)
        assert not has_fork(anvil, ITEM, "gone") and not has_fork(anvil, OTHER, "gone")


# -- two first writes --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-09")
def test_two_first_writes_to_one_table_both_happen_or_one_is_told(judged: Judged, peers: Peers) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("side")
    handles = [peers().open(graph.uri), peers().open(graph.uri)]
    start, done, failed = threading.Barrier(2), list[str](), list[EngineError]()

    def write(handle: Handle, name: str) -> None:
        start.wait(timeout=60)
        try:
            handle.mutate(update("Item", where("name", "a"), size=len(name)), insert("Item", name=name), branch="side")
            done.append(name)
        except EngineError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=each) for each in zip(handles, ("x", "yy"), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    with proving("BRA-09"):
        assert [error.kind for error in failed] == ["conflict"] * len(failed), f"{[str(each) for each in failed]}"
        handle = graph.engine.open(graph.uri)
        rows = {row["id"]: row["size"] for row in handle.read(ITEM, "side")}
        assert set(rows) == {"a", "b", *done} and done, "a write that was refused has happened, or one is lost"
        assert rows["a"] in {len(name) for name in done}
        handle.mutate(insert("Item", name="z"), branch="side")


@pytest.mark.requirement("BRA-09")
def test_a_stale_first_write_builds_on_the_fork_of_another_or_is_told(judged: Judged, peers: Peers) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("side")
    stale = peers().open(graph.uri, branch="side")
    stale.read(ITEM)
    graph.handle.mutate(update("Item", where("name", "a"), size=5), insert("Item", name="c"), branch="side")

    with proving("BRA-09"):
        try:
            stale.mutate(insert("Item", name="d"))
            written = ["d"]
        except EngineError as error:
            assert error.kind == "conflict", f"a stale first write must end in a conflict, and ended in {error}"
            written = []
        handle = graph.engine.open(graph.uri)
        assert [row["id"] for row in handle.read(ITEM, "side")] == ["a", "b", "c", *written]
        assert handle.read(ITEM, "side")[0]["size"] == 5


# -- names beside each other -------------------------------------------------------------------------------------------


@pytest.mark.requirement("BRA-16")
@pytest.mark.parametrize("part", ["data", "_versions", "_transactions", "_indices", "_deletions", "_refs", "tree", "y"])
@pytest.mark.parametrize("inner_first", [False, True], ids=["outer-first", "inner-first"])
def test_a_name_inside_another_one_is_refused_or_does_no_harm(
    judged: Judged, forge: ForgeOf, part: str, inner_first: bool
) -> None:
    graph = judged(TWO, ROWS)
    graph.branch_create("z")
    handle, anvil = graph.handle, forge(graph.uri)
    names = [f"x/{part}", "x"] if inner_first else ["x", f"x/{part}"]
    made: list[str] = []

    with proving("BRA-16"):
        for name in names:
            listing = anvil.listing()
            try:
                handle.branch_create(name)
            except EngineError as error:
                assert error.kind in DEFINITE, f"{name} must be refused or created, and gave {error}"
                assert anvil.listing() == listing, f"the refused {name} has left files"
                continue
            handle.mutate(insert("Item", name=name), branch=name)
            handle.mutate(delete("Item", where("name", "b")), branch=name)
            made.append(name)
        assert made, "one of the two names must be possible"
        for name in made:
            assert [row["id"] for row in graph.engine.open(graph.uri).read(ITEM, name)] == ["a", name]
        for name in reversed(made):
            others = {branch: rows for branch, rows in rows_of(handle).items() if branch != name}
            handle.branch_delete(name)
            assert rows_of(graph.engine.open(graph.uri)) == others
        handle.mutate(insert("Item", name="z"), branch="z")


@pytest.mark.requirement("BRA-16")
def test_a_name_below_main_is_refused_or_does_no_harm(judged: Judged, forge: ForgeOf) -> None:
    """The files of main lie at the root of a table: who removes what is below `main` may remove the table."""
    graph = judged(TWO, ROWS)
    handle, listing = graph.handle, forge(graph.uri).listing()

    with proving("BRA-16"):
        try:
            handle.branch_create("main/x")
        except EngineError as error:
            assert error.kind in DEFINITE, f"main/x must be refused or created, and gave {error}"
            assert forge(graph.uri).listing() == listing, "the refused name has left files"
            return
        handle.mutate(insert("Item", name="x"), branch="main/x")
        graph.audited = False  # A graph that is gone breaks this requirement and no other.
        handle.branch_delete("main/x")
        assert rows_of(graph.engine.open(graph.uri)) == rows_of(handle)
        handle.mutate(insert("Item", name="z"))
        graph.audited = True


@pytest.mark.requirement("BRA-12", "BRA-18")
def test_a_branch_whose_tables_another_one_reads_cannot_be_deleted(judged: Judged, forge: ForgeOf) -> None:
    """Another engine may leave a branch that reads a sibling's storage: here the forge does."""
    graph = judged(TWO, ROWS)
    for name in ("lender", "reader"):
        graph.branch_create(name)
        graph.mutate(insert("Item", name="c"), branch=name)
    anvil = forge(graph.uri)
    (lent,) = (row for row in anvil.rows("lender") if (row["table_key"], row["table_branch"]) == (ITEM, "lender"))
    (own,) = (row for row in anvil.rows("reader") if (row["table_key"], row["table_branch"]) == (ITEM, "reader"))
    assert lent["object_id"] == own["object_id"], "both have written one version"
    anvil.set_row(own["object_id"], branch="reader", table_branch="lender", metadata=lent["metadata"])
    handle = graph.engine.open(graph.uri)
    before = rows_of(handle)

    with proving("BRA-12", "BRA-18"):
        refused("conflict", lambda: handle.branch_delete("lender"), "the deletion of a branch that another one reads")
        assert rows_of(graph.engine.open(graph.uri)) == before


# -- branches of branches ----------------------------------------------------------------------------------------------


def indexed(graph: JudgedGraph, branch: str) -> None:
    graph.ensure_indices(branch)


def optimized(graph: JudgedGraph, branch: str) -> None:
    graph.mutate(insert("Person", name=f"p-{branch}"), branch=branch)
    graph.optimize()


def written(graph: JudgedGraph, branch: str) -> None:
    graph.mutate(insert("Person", name=f"p-{branch}"), branch=branch)


def untouched(graph: JudgedGraph, branch: str) -> None:
    """Nothing has happened to it."""


@pytest.mark.requirement("BRA-17", "BRA-18")
@pytest.mark.parametrize("before", [untouched, written, indexed, optimized])
def test_a_grandchild_can_be_written_whatever_happened_to_its_parent(
    judged: Judged, before: Callable[[JudgedGraph, str], None]
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before(graph, "main")
    graph.branch_create("child")
    before(graph, "child")
    graph.branch_create("grandchild", "child")

    with proving("BRA-17"):
        graph.mutate(update("Person", where("name", "bob"), age=7), insert("Person", name="dan"), branch="grandchild")
        graph.mutate(delete("Person", where("name", "ann")), branch="grandchild")
        graph.load([person("eve", email="e@x")], "append", branch="grandchild")
        graph.mutate(insert_edge("Knows", "eve", "bob"), branch="grandchild")
        graph.ensure_indices("grandchild")
        graph.load([person("ann"), person("bob", age=8), person("cat")], "overwrite", branch="child")
        graph.mutate(insert("Person", name="fay"), branch="grandchild")
    with proving("BRA-18"):
        graph.optimize()
        graph.cleanup(keep_versions=1)
        graph.reopen()
        graph.mutate(insert("Person", name="gus"), branch="grandchild")


@pytest.mark.requirement("BRA-17")
def test_a_branch_that_has_taken_over_a_table_of_another_one_can_be_written(judged: Judged) -> None:
    """Its table lies in the other branch then, as that of a branch of a branch does."""
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("source")
    graph.mutate(update("Person", where("name", "bob"), age=7), branch="source")
    graph.branch_create("target")
    graph.load([node("Company", name="new")], branch="target")

    with proving("BRA-17"):
        graph.merge("source", "target")
        graph.mutate(insert_edge("Knows", "ann", "bob"), branch="target")
        graph.mutate(update("Person", where("name", "bob"), age=8), branch="target")
        graph.mutate(update("Person", where("name", "bob"), age=9), branch="source")


@pytest.mark.requirement("BRA-18", "BRA-17")
def test_merges_deletions_and_cleanups_leave_every_other_branch_whole(judged: Judged, engine: Engine) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("one")
    graph.mutate(insert("Person", name="dan"), branch="one")
    graph.branch_create("two", "one")
    graph.branch_create("three", "one")
    graph.mutate(update("Person", where("name", "dan"), age=2), branch="two")

    with proving("BRA-18"):  # Every step is compared with the model on all branches.
        graph.merge("two", "one")
        graph.branch_delete("two")
        graph.cleanup(keep_versions=1)
        graph.mutate(delete("Person", where("name", "bob")), branch="one")
        graph.merge("one")
        graph.optimize()
        graph.cleanup(keep_versions=1)
        graph.reopen()
        assert len(graph.handle.read(PERSON, "three")) == 4
    with proving("BRA-17"):
        graph.merge("three", "one")
        graph.mutate(insert("Person", name="eve"), branch="three")
        graph.branch_delete("three")
        graph.branch_create("three")
        graph.mutate(insert("Person", name="new"), branch="three")
        graph.audit()
