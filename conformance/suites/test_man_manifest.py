"""MAN: `__manifest`, the one table that says what a graph is.

Its rows are read by every engine, so their shape is fixed to the last column; rows that cannot be understood stop a
reader, rows of kinds that are not known yet do not. The rows of a graph are only ever added to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import lance
import pytest

from conformance.audit.manifest import CONFIG, MANIFEST_SCHEMA, PRIMARY_KEY, STAMP_KEY
from conformance.audit.names import version_object_id
from conformance.judge import Engine, Handle, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import EVOLVED, PEOPLE, SOCIAL, delete, insert, lines, person, update, where
from conformance.suites.refusals import ANY_KIND, refused
from fixtures.forge import Forge

Row = dict[str, Any]
PUBLISHED = ("table", "table_version", "table_tombstone", "graph_commit")
METADATA = {"manifest_path": "x.manifest", "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}


def versions_of(handle: lance.LanceDataset) -> list[int]:
    return sorted(int(each["version"]) for each in handle.versions())


def rows_at(handle: lance.LanceDataset, version: int) -> list[Row]:
    found: list[Row] = handle.checkout_version(version).to_table().to_pylist()
    return found


def keys_of(snapshot: dict[str, Any]) -> list[str]:
    return [entry["table_key"] for entry in snapshot["tables"]]


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MAN-01", "MAN-12")
def test_the_manifest_has_the_columns_and_the_key_of_the_format(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    if graph.engine.supports("branch_create"):
        graph.branch_create("draft")
        graph.mutate(insert("Person", name="dan"), branch="draft")
    there = forge(graph.uri)

    with proving("MAN-01"):
        for branch in graph.model.branch_list():
            handle = there.manifest(branch)
            assert handle.schema.remove_metadata().equals(MANIFEST_SCHEMA), "other columns than the format's"
            assert handle.config().get(CONFIG[0]) == CONFIG[1]
            assert all(row["base_objects"] is None for row in there.rows(branch)), "base_objects is reserved"
    with proving("MAN-12"):
        manifests = [there.manifest(branch) for branch in graph.model.branch_list()]
        for handle in (there.manifest().checkout_version(1), *manifests):
            marked = [field.name for field in handle.schema if (field.metadata or {}).get(PRIMARY_KEY) == b"true"]
            assert marked == ["object_id"]


@pytest.mark.requirement("MAN-02")
def test_ids_of_versions_sort_as_the_versions_do(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann")])
    for age in range(10):  # From one digit to two.
        graph.handle.mutate(update("Person", where("name", "ann"), age=age))
    rows = [row for row in forge(graph.uri).rows() if row["object_type"] == "table_version"]

    with proving("MAN-02"):
        for row in rows:
            assert row["object_id"] == f"{row['table_key']}${row['table_version']:020d}"
            assert set(json.loads(row["metadata"])) == set(METADATA)
            assert row["location"] is None
        people = sorted((row for row in rows if row["table_key"] == "node:Person"), key=lambda row: row["object_id"])
        versions = [row["table_version"] for row in people]
        assert versions == sorted(versions)
        assert versions[-1] >= 10
        assert graph.handle.table("node:Person")["table_version"] == versions[-1]
        assert [row["age"] for row in graph.handle.read("node:Person")] == [9]
    graph.audit()


@pytest.mark.requirement("MAN-07")
def test_init_writes_rows_then_config_then_stamp(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL)
    handle = forge(graph.uri).manifest()

    with proving("MAN-07"):
        assert versions_of(handle) == [1, 2, 3]
        kinds = Counter(row["object_type"] for row in rows_at(handle, 1))
        assert kinds == {"table": 4, "table_version": 4, "graph_commit": 1, "graph_head": 1}
        (genesis,) = (row for row in rows_at(handle, 1) if row["object_type"] == "graph_commit")
        assert (genesis["table_version"], genesis["table_branch"], genesis["table_key"]) == (1, None, "")
        assert rows_at(handle, 2) == rows_at(handle, 3) == rows_at(handle, 1)
        with_config = [v for v in (1, 2, 3) if handle.checkout_version(v).config().get(CONFIG[0]) == CONFIG[1]]
        with_stamp = [v for v in (1, 2, 3) if (handle.checkout_version(v).schema.metadata or {}).get(STAMP_KEY) == b"4"]
        assert (with_config, with_stamp) == ([2, 3], [3])

    made = graph.load(PEOPLE)["commit"]
    with proving("MAN-07"):
        assert made["manifest_version"] == 4, "the first publish is version 4"


# -- rows that cannot be understood, and rows of the future ------------------------------------------------------------


def orphan(forge: Forge) -> None:
    forge.add_row(
        object_id=version_object_id("node:Ghost", 1),
        object_type="table_version",
        table_key="node:Ghost",
        table_version=1,
        row_count=0,
        metadata=json.dumps(METADATA),
    )


PERSON_1, PERSON_NOW = version_object_id("node:Person", 1), "the pinned version of node:Person"
DAMAGE = {
    "a version without its number": (PERSON_NOW, {"table_version": None}),
    "a version without its row count": (PERSON_NOW, {"row_count": None}),
    "a version without metadata": (PERSON_NOW, {"metadata": None}),
    "an old version without its number": (PERSON_1, {"table_version": None}),
    "an old version without its row count": (PERSON_1, {"row_count": None}),
    "an old version without metadata": (PERSON_1, {"metadata": None}),
    "a table without location": ("node:Company", {"location": None}),
}


def refuses_to_read(engine: Engine, uri: str, what: str) -> None:
    """Whoever reads is told, when the graph is opened or when rows are asked for, also those of other tables."""
    for opened in (engine.look, engine.open):

        def read(op: str, *args: Any, opened: Callable[[str], Handle] = opened) -> Any:
            return getattr(opened(uri), op)(*args)

        refused("internal", partial(read, "snapshot"), f"a snapshot with {what}")
        refused("internal", partial(read, "read", "node:Person"), f"a read with {what}")
        refused("internal", partial(read, "read", "node:Company"), f"a read of another table with {what}")
        refused("internal", partial(read, "export"), f"an export with {what}")


@pytest.mark.requirement("MAN-03")
@pytest.mark.parametrize("what", DAMAGE)
def test_a_row_that_lacks_something_stops_readers(judged: Judged, forge: ForgeOf, what: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    object_id, columns = DAMAGE[what]
    if object_id == PERSON_NOW:
        object_id = version_object_id("node:Person", there.pin("node:Person"))
    there.set_row(object_id, **columns)

    with proving("MAN-03"):
        refuses_to_read(graph.engine, graph.uri, what)


@pytest.mark.requirement("MAN-03")
@pytest.mark.parametrize("what", ["a version of a table that was never registered", "a table row that is gone"])
def test_a_version_without_its_table_stops_readers(judged: Judged, forge: ForgeOf, what: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    if what.startswith("a version"):
        orphan(there)
    else:
        there.remove_row("edge:WorksAt")

    with proving("MAN-03"):
        refuses_to_read(graph.engine, graph.uri, what)


@pytest.mark.requirement("MAN-04")
def test_rows_of_unknown_types_are_ignored(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    future: tuple[Row, ...] = (
        {"object_id": "future", "object_type": "future"},
        {"object_id": "node:Person$99", "object_type": "table_index", "table_key": "node:Person", "table_version": 99},
        {"object_id": "tag:x", "object_type": "graph_tag", "metadata": "no JSON", "table_version": 1_000_000},
        {"object_id": "view:V", "object_type": "TABLE", "table_key": "view:V", "location": "views/v"},
        {"object_id": "", "object_type": "", "table_branch": "nowhere"},
    )
    for row in future:
        there.add_row(**row)
    names = {row["object_id"] for row in future}

    with proving("MAN-04"):
        graph.reopen()
        assert keys_of(graph.handle.snapshot()) == ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"]
        assert graph.engine.look(graph.uri).export() == graph.model.export()
        graph.mutate(insert("Person", name="dan"))
        assert len(graph.handle.commits()) == 3
        assert names <= {row["object_id"] for row in there.rows()}


@pytest.mark.requirement("MAN-04")
def test_rows_of_unknown_types_disturb_no_other_operation(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    can = graph.engine.supports
    forge(graph.uri).add_row(object_id="f", object_type="future", table_key="node:Person", table_version=99)
    graph.reopen()
    with proving("MAN-04"):
        if can("branch_create", "branch_delete", "merge"):
            graph.branch_create("draft")
            graph.mutate(insert("Person", name="dan"), branch="draft")
            graph.mutate(insert("Company", name="initech"))
            graph.merge("draft")
            graph.branch_delete("draft")
        if can("schema_apply"):
            graph.schema_apply(EVOLVED)
        if can("optimize"):
            graph.optimize()
        assert graph.handle.export() == graph.model.export()
        assert "f" in {row["object_id"] for row in forge(graph.uri).rows()}


@pytest.mark.requirement("MAN-05")
@pytest.mark.parametrize("kind", ["graph_commit", "graph_head"])
def test_lineage_that_cannot_be_understood_stops_its_readers(judged: Judged, forge: ForgeOf, kind: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    object_id = "graph_head:main" if kind == "graph_head" else graph.handle.commits()[0]["graph_commit_id"]
    for metadata in (None, "no JSON", "", '{"created_at":'):
        there.set_row(object_id, metadata=metadata)
        with proving("MAN-05"):
            for opened in (graph.engine.look, graph.engine.open):
                list_commits = partial(_commits, opened, graph.uri)
                refused("internal", list_commits, f"lineage with a {kind} row whose metadata is {metadata!r}")


def _commits(opened: Callable[[str], Handle], uri: str) -> list[Row]:
    return opened(uri).commits()


@pytest.mark.requirement("MAN-05")
def test_nothing_is_written_on_top_of_a_commit_that_cannot_be_understood(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    head = graph.handle.commits()[-1]["graph_commit_id"]
    whole = there.row(head)["metadata"]
    there.set_row(head, metadata="no JSON")

    with proving("MAN-05"):
        refused(ANY_KIND, lambda: graph.engine.open(graph.uri).load(lines(person("dan"))), "a write without a parent")
    there.set_row(head, metadata=whole)
    with proving("MAN-05"):
        commits = graph.engine.look(graph.uri).commits()
        assert head in {commit["graph_commit_id"] for commit in commits}
        assert not [each for each in commits if each["parent_commit_id"] is None][1:], "a commit lost its parent"


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MAN-08", "MAN-06")
def test_the_manifest_is_only_added_to(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    can = graph.engine.supports
    graph.mutate(delete("Person", where("name", "cat")))
    graph.load([person("ann"), person("bob"), person("eve")], mode="overwrite")
    if can("branch_create", "branch_delete", "merge"):
        graph.branch_create("draft")
        graph.mutate(insert("Person", name="dan"), branch="draft")
        graph.merge("draft")
        only_adds(forge(graph.uri).manifest("draft"))
        graph.branch_delete("draft")
    if can("schema_apply"):
        graph.schema_apply(EVOLVED)
        graph.schema_apply(SOCIAL)
    if can("optimize"):
        graph.optimize()
    graph.mutate(insert("Company", name="initech"))
    only_adds(forge(graph.uri).manifest())


def only_adds(handle: lance.LanceDataset) -> None:
    """Go through the versions of a manifest: nothing vanishes, and nothing changes that may not."""
    before: dict[str, Row] = {}
    for version in versions_of(handle):
        rows = rows_at(handle, version)
        after = {row["object_id"]: row for row in rows}
        with proving("MAN-06"):
            assert len(after) == len(rows), f"version {version} has an object id twice"
        with proving("MAN-08"):
            gone = [key for key, row in before.items() if row["object_type"] in PUBLISHED and key not in after]
            assert gone == [], f"version {version} deleted {gone}"
            changed = [key for key in before if key in after and _is_rewritten(before[key], after[key])]
            assert changed == [], f"version {version} changed {changed}"
        before = after


def _is_rewritten(before: Row, after: Row) -> bool:
    """Heads move, and a version may change its owner branch; nothing else is ever updated."""
    if before == after or before["object_type"] == "graph_head":
        return False
    free = {"table_branch", "metadata"} if before["table_branch"] != after["table_branch"] else set()
    is_version = before["object_type"] == "table_version"
    return not is_version or any(before[name] != after[name] for name in before.keys() - free)
