"""PUB: the one write that makes a graph commit visible.

Everything that a commit changes lands in one version of `__manifest`, its lineage included, or nothing does. What a
writer sees afterwards is what everybody sees, and a write that was refused has left nothing, not even in the writer's
own view. What several writers do to each other is in `test_pub_races`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import lance
import pyarrow as pa
import pytest

from conformance.adapters import EngineError
from conformance.judge import Handle, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    delete,
    edge,
    insert,
    insert_edge,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import ANY_KIND, refused
from fixtures.forge import Forge

PLACE = "node Place { name: String @key }\n"
Born = dict[str, tuple[dict[str, Any], int, int]]


def born(disk: Forge, branch: str | None = None) -> Born:
    """The rows of a manifest by id, each with the versions in which it was made and last changed."""
    columns = ["_row_created_at_version", "_row_last_updated_at_version"]
    manifest = disk.manifest(branch)
    rows = manifest.to_table(columns=[*manifest.schema.names, *columns]).to_pylist()
    return {row["object_id"]: (row, row[columns[0]], row[columns[1]]) for row in rows}


def seen(handle: Handle, branch: str | None = None) -> dict[str, Any]:
    """Everything that a handle can say about a branch."""
    shot = handle.snapshot(branch)
    return {
        "tables": shot["tables"],
        "manifest_version": shot["manifest_version"],
        "commits": handle.commits(branch),
        "rows": handle.export(branch),
    }


def assert_lands_at_once(disk: Forge, before: Born, branch: str | None = None) -> None:
    """One new commit, and every row that is new or changed was written in the version that the commit says."""
    after = born(disk, branch)
    changed = {name: each for name, each in after.items() if name not in before or before[name] != each}
    commits = [each for each in changed.values() if each[0]["object_type"] == "graph_commit"]
    assert len(commits) == 1, f"one publish records one commit, and there are {len(commits)}"
    version = commits[0][0]["table_version"]
    late = {name: changed_at for name, (_, _, changed_at) in changed.items() if changed_at != version}
    assert not late, f"all of a commit lands in version {version}, and these rows did not: {late}"
    assert set(before) <= set(after), "no row goes away"


# -- all or nothing ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-01", "PUB-17")
def test_everything_of_a_commit_lands_in_one_version_of_the_manifest(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    writes = (
        partial(graph.mutate, insert("Person", name="dan"), insert("Company", name="b"), actor="ann"),
        partial(graph.load, [person("eve"), edge("Knows", "eve", "ann"), edge("WorksAt", "eve", "b")], "append"),
        partial(graph.load, [node("Company", name="acme"), node("Company", name="b")], "overwrite"),
        partial(graph.mutate, delete("Person", where("name", "ann"))),
        partial(graph.mutate, update("Person", {"all": True}, age=1)),
        partial(graph.load, ""),
    )

    with proving("PUB-01"):
        for write in writes:
            before = born(disk)
            write()
            assert_lands_at_once(disk, before)
    with proving("PUB-17"):
        assert_commits_say_where_they_landed(disk)


def assert_commits_say_where_they_landed(disk: Forge, branch: str | None = None) -> None:
    for name, (row, made, _) in born(disk, branch).items():
        if row["object_type"] == "graph_commit":
            assert row["table_version"] == made, f"commit {name} landed in {made} and says {row['table_version']}"


@pytest.mark.requirement("PUB-01", "PUB-17", "BRA-01")
def test_first_commits_on_branches_and_merges_land_at_once_too(judged: Judged, forge: ForgeOf) -> None:
    """The first commit of a branch adds its head row; a manifest that was compacted meanwhile changes nothing."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    graph.mutate(insert("Person", name="dan"))
    graph.branch_create("feat")
    disk.manifest("feat").optimize.compact_files()  # Anyone may do that at any time.

    with proving("PUB-01", "BRA-01"):
        before = born(disk, "feat")
        graph.mutate(insert("Person", name="eve"), insert_edge("Knows", "eve", "dan"), branch="feat")
        assert_lands_at_once(disk, before, "feat")
    with proving("PUB-17"):
        assert_commits_say_where_they_landed(disk, "feat")
        commit = graph.handle.commits("feat")[-1]
        rows = graph.handle.read("node:Person", commit=commit["graph_commit_id"])
        assert {row["id"] for row in rows} == {"ann", "bob", "cat", "dan", "eve"}, "its commit holds its own rows"


@pytest.mark.requirement("PUB-12", "SCH-08")
def test_one_schema_change_registers_drops_and_rewrites_in_one_version(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    before = born(disk)
    kept = SOCIAL.replace("age: I32?", "age: I32?\n  city: String?").partition("edge WorksAt")[0]
    added = "node Animal { name: String @key }\nedge Abc: Animal -> Place\nedge Zed: Person -> Place\n"

    with proving("PUB-12", "SCH-08"):
        graph.schema_apply(kept + PLACE + added)
        assert_lands_at_once(disk, before)
        tables = {each["table_key"] for each in graph.handle.snapshot()["tables"]}
        assert tables >= {"node:Animal", "node:Place", "edge:Abc", "edge:Zed"} and "edge:WorksAt" not in tables
        graph.load([node("Animal", name="a"), node("Place", name="p"), edge("Abc", "a", "p"), edge("Zed", "ann", "p")])


@pytest.mark.requirement("PUB-13")
def test_a_publish_of_nothing_writes_nothing_and_one_of_lineage_its_two_rows(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)

    with proving("PUB-13"):
        listing = disk.listing()
        for statement in (
            update("Person", where("name", "nobody"), age=1),
            delete("Company", where("name", "x")),
        ):
            graph.mutate(statement)
        assert disk.listing() == listing, "what changes nothing is not published"
        before = born(disk)
        commit = graph.load("", "append")["commit"]
        after = born(disk)
        changed = {name for name in after if name not in before or before[name][0] != after[name][0]}
        assert changed == {commit["graph_commit_id"], "graph_head:main"}


@pytest.mark.requirement("PUB-14")
def test_after_each_write_the_writer_sees_what_a_fresh_open_sees(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    writes = (
        partial(graph.mutate, insert("Person", name="dan"), insert_edge("Knows", "dan", "ann")),
        partial(graph.load, [person("eve")], "append"),
        partial(graph.load, [node("Company", name="acme"), node("Company", name="c")], "overwrite"),
        partial(graph.mutate, delete("Person", where("name", "ann"))),
        partial(graph.load, ""),
        partial(graph.mutate, update("Person", where("name", "nobody"), age=1)),
    )

    with proving("PUB-14"):
        for write in writes:
            write()
            assert seen(graph.handle) == seen(graph.engine.open(graph.uri))


@pytest.mark.requirement("PUB-10", "PUB-14", "MRG-12")
def test_a_table_may_change_hands_between_branches_at_the_same_version(judged: Judged, forge: ForgeOf) -> None:
    """Branch and main have made the same version of a table, with the same rows; then the branch takes main's."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    graph.branch_create("feat")
    graph.mutate(insert("Person", name="dan"), branch="feat")
    graph.merge("feat", "main")

    with proving("PUB-10"):
        graph.merge("main", "feat")
        for branch in (None, "feat"):
            rows = [row["object_id"] for row in disk.rows(branch)]
            assert len(rows) == len(set(rows)), "a version of a table has one row in a manifest"
    with proving("PUB-14"):
        for branch in ("main", "feat"):
            assert seen(graph.handle, branch) == seen(graph.engine.open(graph.uri), branch)
    with proving("MRG-12"):
        graph.mutate(insert("Person", name="eve"), branch="feat")
        graph.mutate(insert("Person", name="fay"))
        graph.merge("feat", "main")
        graph.merge("main", "feat")
        assert graph.handle.export("feat") == graph.handle.export("main")


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-15", "PUB-23")
@pytest.mark.parametrize(
    "point",
    ["recovery.sidecar_write", "mutation.post_finalize_pre_publisher", "graph_publish.before_commit_append"],
)
def test_a_failed_publish_leaves_the_writers_view_as_it_was(
    judged: Judged, peers: Peers, forge: ForgeOf, point: str
) -> None:
    """And if the answer said that it did not happen, then it never does; otherwise the answer has a kind of its own."""
    graph = judged(SOCIAL, PEOPLE)
    failing = peers(failpoints=f"{point}=error*1")
    handle = failing.open(graph.uri)
    before = seen(handle)

    error = refused(ANY_KIND, partial(handle.mutate, insert("Person", name="dan"), insert("Company", name="b")))

    with proving("PUB-15"):
        assert seen(handle) == before
    failing.close()
    with proving("PUB-23"):
        again = graph.engine.open(graph.uri)
        found = [again.row("node:Person", "dan") is not None, again.row("node:Company", "b") is not None]
        assert found[0] == found[1], "recovery does all of it or nothing"
        assert not found[0] or error.kind == "outcome_pending", f"it happened after {error}"
        assert forge(graph.uri).sidecars() == {}
        again.mutate(insert("Person", name="after"))


@pytest.mark.requirement("PUB-15", "PUB-23")
def test_a_refused_write_is_in_nobodys_view_and_never_comes(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = seen(graph.handle)

    with proving("PUB-15"):
        bad = insert("Person", name="dan"), insert_edge("Knows", "dan", "nobody")
        refused("bad_request", partial(graph.mutate, *bad), "an edge to nobody")
        refused("not_found", partial(graph.mutate, bad[0], branch="nowhere"), "a branch that there is not")
        assert seen(graph.handle) == before
    with proving("PUB-23"):
        graph.reopen()
        assert seen(graph.handle) == before


@pytest.mark.requirement("PUB-06", "PUB-09")
def test_contention_is_retried_up_to_five_times_under_one_commit_id(judged: Judged, peers: Peers) -> None:
    """An engine that meets no such contention, because it loads nothing anew, has nothing to retry."""
    graph = judged(SOCIAL, PEOPLE)

    with proving("PUB-06"):
        contended = peers(failpoints="publish.load_state_retryable_contention=error*5")
        answer = graph.mutate(insert("Person", name="dan"), actor="ann", through=contended.open(graph.uri))
        contended.close()
    with proving("PUB-09"):
        assert graph.handle.commits()[-1] == answer["commit"], "the answer names the commit that was recorded"


@pytest.mark.requirement("PUB-06")
def test_contention_without_end_is_reported_as_a_conflict(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    contended = peers(failpoints="publish.load_state_retryable_contention=error")
    handle = contended.open(graph.uri)
    before = seen(graph.handle)

    with proving("PUB-06"):
        try:
            handle.mutate(insert("Person", name="dan"))
        except EngineError as error:
            contended.close()
            assert error.kind in ("conflict", "outcome_pending"), f"contention was reported as {error}"
            after = graph.engine.open(graph.uri).export()
            assert error.kind == "outcome_pending" or after == before["rows"], f"it happened after {error}"
        contended.close()
        graph.engine.open(graph.uri).mutate(insert("Person", name="eve"))


# -- what does not fit on disk -----------------------------------------------------------------------------------------


@pytest.mark.requirement("PUB-11")
def test_a_write_to_a_table_that_is_not_registered_publishes_nothing(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann"), node("Company", name="acme")])
    graph.audited = False
    disk = forge(graph.uri)
    for row in disk.rows():
        if row["table_key"] == "node:Company":
            disk.remove_row(row["object_id"])
    before = born(disk)

    def write() -> None:
        graph.engine.open(graph.uri).mutate(insert("Company", name="b"))

    with proving("PUB-11"):
        refused(ANY_KIND, write, "a write to a table that no row registers")
        assert born(disk) == before


@pytest.mark.requirement("PUB-11", "SCH-08")
def test_a_second_path_for_a_registered_table_publishes_nothing(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    disk = forge(graph.uri)
    disk.add_row(object_id="node:Place", object_type="table", location="nodes/elsewhere", table_key="node:Place")
    before = born(disk)

    with proving("PUB-11", "SCH-08"):
        apply = partial(graph.engine.open(graph.uri).schema_apply, SOCIAL + PLACE)
        refused(ANY_KIND, apply, "a schema whose new table is registered elsewhere")
        assert born(disk) == before, "nothing is published"
        assert disk.read("_schema.pg") == SOCIAL.encode(), "the schema is the old one"


@pytest.mark.requirement("PUB-16")
def test_lance_refuses_the_second_of_two_inserts_of_one_manifest_row(judged: Judged, forge: ForgeOf) -> None:
    """The mark on `object_id` is what every publish relies on; this asks Lance itself about the engine's dataset."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)

    def put(handle: lance.LanceDataset, row: dict[str, Any]) -> None:
        table = pa.Table.from_pylist([row], schema=handle.schema)
        merge = handle.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
        merge.conflict_retries(0).use_index(False).execute(table)

    with proving("PUB-16"):
        for row in ({"object_id": "probe", "object_type": "probe", "table_key": ""}, disk.row("graph_head:main")):
            first, second = disk.manifest(), disk.manifest()
            put(first, row)
            with pytest.raises(OSError):
                put(second, row)
        rows = [row["object_id"] for row in disk.rows()]
        assert len(rows) == len(set(rows))
    disk.remove_row("probe")


@pytest.mark.requirement("PUB-05")
def test_a_publish_never_runs_the_cleanup_of_lance(judged: Judged, forge: ForgeOf) -> None:
    """Not even where somebody has configured it: versions go by the cleanup of the graph, which knows the branches."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    version = graph.handle.snapshot()["manifest_version"]
    before = graph.handle.read("node:Person")
    disk.manifest().update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"})
    handle = graph.engine.open(graph.uri)
    graph.audited = False

    for number in range(3):
        handle.mutate(insert("Person", name=f"new {number}"))

    with proving("PUB-05"):
        assert handle.read("node:Person", version=version) == before
        assert version in {each["version"] for each in disk.manifest().versions()}


@pytest.mark.requirement("PUB-19")
@pytest.mark.parametrize("table_key", ["node:Person", "edge:Knows"])
def test_a_table_that_is_ahead_of_its_pin_is_not_written(judged: Judged, forge: ForgeOf, table_key: str) -> None:
    """Neither by what names it, nor by a delete that would only reach it."""
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False  # The drift stays: nobody may write over it.
    disk = forge(graph.uri)
    disk.raw_delete(table_key, "false")
    handle = graph.reopen()
    heads = {key: disk.head(key) for key in disk.entries()}
    before = born(disk)
    write = {
        "node:Person": partial(handle.load, lines(person("dan"), node("Company", name="b")), "append"),
        "edge:Knows": partial(handle.mutate, delete("Person", where("name", "ann"))),
    }[table_key]

    with proving("PUB-19"):
        error = refused("conflict", write, "a write over drift")
        assert len(f"{error.message} {error.hint or ''}".split()) > 3, f"it says what to do, and says {error}"
        assert {key: disk.head(key) for key in heads} == heads, "no table moves"
        assert (born(disk), disk.sidecars()) == (before, {})
        graph.compare("refused writes", "PUB-19")
        graph.mutate(insert("Company", name="c"))  # Other tables are as writable as ever.
