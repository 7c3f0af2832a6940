"""A schema apply that is cut anywhere leaves the old schema or the new one, whole, and a graph that can be written.

A cut is made in two ways: a failpoint armed with `error`, which stops the writer where it is, and a copy of the whole
graph, taken just before one of the writer's requests, which is exactly what a kill at that moment would leave.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failpoints import registry
from reference.errors import Conflict, Internal, OmniError, OutcomePending
from reference.format.names import SCHEMA_FILES, SCHEMA_IR_FILE, SCHEMA_SOURCE_FILE, SCHEMA_STATE_FILE
from reference.format.schema_files import schema_file_texts
from reference.graph import Graph
from reference.operations.tests.test_schema_apply import BEFORE, graph_with_rows, line
from reference.protocol import recovery
from reference.protocol.recovery import recover
from reference.protocol.schema_files import SchemaFiles
from reference.protocol.schema_lock import take_schema_lock
from reference.schema.compiler import compile_schema
from reference.schema.types import Catalog
from reference.storage.objects import TextObjects
from reference.storage.tables import Tables

CHANGES = {
    "a rewrite and a new type": BEFORE.replace("age: I32?", "age: I32? city: String?") + "node Place { name: String }",
    "a new type": BEFORE + "node Place { name: String }",
    "a renamed type": BEFORE.replace("node Note {", 'node Memo @rename_from("Note") {'),
    "a dropped type": BEFORE.partition("node Note")[0],
    "an index": BEFORE.replace("age: I32?", "age: I32? @index"),
}
RICH = CHANGES["a rewrite and a new type"].replace("node Note {", 'node Memo @rename_from("Note") {')


def check_whole(root: Path, schemas: list[str]) -> str:
    """Open a graph that was cut, hold it to everything that a recovery promises, and say which schema it has."""
    graph = Graph.open(str(root))
    [schema] = [each for each in schemas if compile_schema(each) == graph.catalog]
    assert_agrees(graph, graph.catalog)
    assert graph.store.manifests.branch_names() == [], "the lock is still held"
    assert not list(root.glob("*.staging")), "staging files are left"
    assert graph.store.sidecars.operation_ids() == [], "a sidecar is left"
    assert len({row.operation_id for row in graph.recoveries()}) == len(graph.recoveries())
    before = graph.snapshot()
    assert Graph.open(str(root)).snapshot() == before, "a second open changed something"
    graph.load(line("Person", handle="eve", age=1), mode="append")
    assert graph.schema_apply(schema + "node Another { x: I32? }\n").applied
    assert [row["age"] for row in graph.read("node:Person")] == [36, None, 1]
    return schema


def assert_agrees(graph: Graph, catalog: Catalog) -> None:
    """The manifest's tables are the catalog's, column by column, and each HEAD is where its pin is."""
    snapshot = graph.snapshot()
    assert sorted(snapshot.entries) == catalog.table_keys()
    for key, entry in snapshot.entries.items():
        handle = graph.store.tables.open_latest(entry.path, entry.branch)
        assert handle.version == entry.version
        assert handle.schema.names == catalog.arrow_schema(key).names
        assert handle.count_rows() == entry.row_count


@pytest.mark.requirement("SCH-12", "SCH-17", "SCH-18", "REC-01", "REC-23")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("failpoint", "becomes_new"),
    [
        ("recovery.sidecar_write", False),
        ("schema_apply.before_staging_write", False),
        ("schema_apply.after_staging_write", True),
        ("graph_publish.after_manifest_commit", True),
        ("schema_apply.after_manifest_commit", True),
    ],
)
def test_an_apply_that_is_cut_ends_in_one_schema(
    tmp_path: Path, change: str, failpoint: str, becomes_new: bool
) -> None:
    graph = graph_with_rows(tmp_path)

    with registry.armed(failpoint, "error"), pytest.raises(OmniError) as failure:
        graph.schema_apply(CHANGES[change])

    assert isinstance(failure.value, OutcomePending) == (failpoint != "recovery.sidecar_write")
    schema = check_whole(tmp_path / "graph", [BEFORE, CHANGES[change]])
    assert schema == (CHANGES[change] if becomes_new else BEFORE)


@pytest.mark.requirement("SCH-12", "SCH-15")
@pytest.mark.parametrize("failpoint", ["schema_apply.before_staging_write", "schema_apply.after_staging_write"])
def test_adding_a_dropped_name_again_can_be_cut_too(tmp_path: Path, failpoint: str) -> None:
    graph = graph_with_rows(tmp_path)
    without, again = CHANGES["a dropped type"], CHANGES["a dropped type"] + "node Note { other: I32? }\n"
    graph.schema_apply(without)

    with registry.armed(failpoint, "error"), pytest.raises(OutcomePending):
        graph.schema_apply(again)

    check_whole(tmp_path / "graph", [without, again])
    recovered = Graph.open(str(tmp_path / "graph"))
    if "Note" not in recovered.catalog.nodes:
        recovered.schema_apply(again + "node Another { x: I32? }\n")
    assert recovered.read("node:Note") == []


@pytest.mark.requirement("REC-13")
def test_a_sidecar_that_cannot_be_deleted_does_not_fail_the_apply(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)

    with registry.armed("recovery.sidecar_delete", "error"):
        assert graph.schema_apply(RICH).applied

    assert check_whole(tmp_path / "graph", [BEFORE, RICH]) == RICH


@pytest.mark.requirement("REC-18", "REC-14", "SCH-18")
@pytest.mark.parametrize("cut_at", ["schema_apply.before_staging_write", "schema_apply.after_staging_write"])
@pytest.mark.parametrize(
    "failpoint",
    [
        "recovery.before_roll_forward_publish",
        "graph_publish.before_commit_append",
        "graph_publish.after_manifest_commit",
        "recovery.record_audit",
        "recovery.sidecar_delete",
    ],
)
def test_a_recovery_that_is_cut_converges_at_the_next_open(tmp_path: Path, cut_at: str, failpoint: str) -> None:
    graph = graph_with_rows(tmp_path)
    with registry.armed(cut_at, "error"), pytest.raises(OutcomePending):
        graph.schema_apply(RICH)

    with registry.armed(failpoint, "error"):
        try:
            Graph.open(str(tmp_path / "graph"))
        except OmniError as error:
            assert error.details == {"failpoint": failpoint}

    schema = check_whole(tmp_path / "graph", [BEFORE, RICH])
    assert schema == (RICH if cut_at == "schema_apply.after_staging_write" else BEFORE)


# -- kills -------------------------------------------------------------------------------------------------------------

# Everything by which an apply changes the store; a kill is possible before each, and after the last.
REQUESTS: list[tuple[type, str]] = [
    (TextObjects, "write"),
    (TextObjects, "delete"),
    (Tables, "fork"),
    (Tables, "drop_branch"),
    (Tables, "commit"),
    (Tables, "commit_new"),
    (Tables, "publish_rows"),
]
REQUESTS_OF_AN_APPLY = 18


def before_each_request(patch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    def watch(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            step()
            return original(*args, **kwargs)

        patch.setattr(owner, name, watched)

    for owner, name in REQUESTS:
        watch(owner, name)


def copy_graph(root: Path, target: Path) -> None:
    """The graph as it is now, in another place, with sidecars that know where that is and whose lease is over."""
    shutil.copytree(root, target)
    for sidecar in (target / "__recovery").glob("*.json"):
        body = json.loads(sidecar.read_text().replace(str(root), str(target)))
        sidecar.write_text(json.dumps(body | {"started_at": "1"}))


@pytest.mark.requirement("SCH-17", "SCH-18", "REC-01")
@pytest.mark.parametrize("request_number", range(REQUESTS_OF_AN_APPLY + 1))
def test_a_kill_between_any_two_requests_leaves_one_schema(tmp_path: Path, request_number: int) -> None:
    graph = graph_with_rows(tmp_path)
    root, copy, numbers = tmp_path / "graph", tmp_path / "copy", itertools.count()

    def step() -> None:
        if next(numbers) == request_number:
            copy_graph(root, copy)

    with pytest.MonkeyPatch.context() as patch:
        before_each_request(patch, step)
        graph.schema_apply(RICH)

    made = next(numbers)  # One more where the machine was so slow that the apply renewed its lease.
    assert made - REQUESTS_OF_AN_APPLY in (0, 1), "an apply makes another number of requests than this test cuts"
    if not copy.exists():
        copy_graph(root, copy)
    check_whole(copy, [BEFORE, RICH])


# -- reading beside a cut ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("SNP-09", "REC-21", "SCH-18")
@pytest.mark.parametrize("change", ["a rewrite and a new type", "a new type", "a dropped type", "an index"])
@pytest.mark.parametrize("promoted", range(3))
def test_a_reader_never_pairs_the_new_tables_with_the_old_schema(tmp_path: Path, change: str, promoted: int) -> None:
    graph, root = graph_with_rows(tmp_path), tmp_path / "graph"
    live = Graph.open(str(root), read_only=True)
    with registry.armed("schema_apply.after_manifest_commit", "error"), pytest.raises(OutcomePending):
        graph.schema_apply(CHANGES[change])
    for name in SCHEMA_FILES[:promoted]:
        shutil.copy(root / f"{name}.staging", root / name)
        assert live.catalog == compile_schema(CHANGES[change])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    reader = Graph.open(str(root), read_only=True)

    assert reader.catalog == compile_schema(CHANGES[change])
    assert_agrees(reader, reader.catalog)
    reader.refresh()
    assert reader.catalog == compile_schema(CHANGES[change])
    assert list(reader.export())
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.requirement("SNP-09", "REC-10")
def test_a_reader_keeps_the_old_schema_until_the_publish(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    with registry.armed("schema_apply.after_staging_write", "error"), pytest.raises(OutcomePending):
        graph.schema_apply(RICH)
    (tmp_path / "graph/__recovery/0.json").write_text("not a sidecar")

    reader = Graph.open(str(tmp_path / "graph"), read_only=True)

    assert reader.catalog == compile_schema(BEFORE)
    assert_agreement_of_keys(reader)


def assert_agreement_of_keys(reader: Graph) -> None:
    assert sorted(reader.snapshot().entries) == reader.catalog.table_keys()


@pytest.mark.requirement("SCH-10", "SNP-02")
def test_a_live_reader_exports_while_the_files_are_being_put_in_place(tmp_path: Path) -> None:
    graph, reader = graph_with_rows(tmp_path), Graph.open(str(tmp_path / "graph"))
    seen: list[bytes] = []

    def read() -> None:
        seen.append(b"".join(reader.export()))

    with registry.armed("schema_apply.after_manifest_commit", read, times=1):
        graph.schema_apply(CHANGES["a renamed type"])

    assert b'"Memo"' in seen[0] and b'"Note"' not in seen[0]


# -- staging that no sidecar explains ----------------------------------------------------------------------------------


def stage(graph: Graph, schema: str, names: tuple[str, ...] = SCHEMA_FILES) -> None:
    graph.store.schema.write_staging(schema, compile_schema(schema))
    for name in set(SCHEMA_FILES) - set(names):
        graph.store.objects.delete(f"{name}.staging")


@pytest.mark.requirement("SCH-11", "SCH-18")
@pytest.mark.parametrize(
    ("staged", "names"),
    [
        (BEFORE, SCHEMA_FILES),
        (RICH, SCHEMA_FILES),
        (RICH, (SCHEMA_SOURCE_FILE,)),
        (RICH, (SCHEMA_SOURCE_FILE, SCHEMA_IR_FILE)),
        (BEFORE, (SCHEMA_STATE_FILE,)),
    ],
    ids=["the same schema", "tables that are not there", "one file", "no state file", "only the state file"],
)
def test_staging_that_was_never_published_is_removed(tmp_path: Path, staged: str, names: tuple[str, ...]) -> None:
    stage(graph_with_rows(tmp_path), staged, names)

    assert check_whole(tmp_path / "graph", [BEFORE, RICH]) == BEFORE


@pytest.mark.requirement("SCH-11")
@pytest.mark.parametrize("renamed", range(3))
def test_staging_whose_tables_are_published_is_put_in_place(tmp_path: Path, renamed: int) -> None:
    graph = graph_with_rows(tmp_path)
    old = {name: (tmp_path / "graph" / name).read_text() for name in SCHEMA_FILES}
    graph.schema_apply(RICH)
    stage(graph, RICH, SCHEMA_FILES[renamed:])
    for name in SCHEMA_FILES[renamed:]:
        (tmp_path / "graph" / name).write_text(old[name])

    assert check_whole(tmp_path / "graph", [BEFORE, RICH]) == RICH


@pytest.mark.requirement("SCH-11")
@pytest.mark.parametrize(
    ("staged", "names", "code"),
    [
        (CHANGES["an index"], SCHEMA_FILES, "schema_staging_ambiguous"),
        (RICH, (SCHEMA_STATE_FILE,), "schema_staging_broken"),
    ],
)
def test_staging_that_could_mean_either_schema_is_left_for_a_person(
    tmp_path: Path, staged: str, names: tuple[str, ...], code: str
) -> None:
    stage(graph_with_rows(tmp_path), staged, names)

    with pytest.raises((Conflict, Internal)) as refusal:
        Graph.open(str(tmp_path / "graph"))

    assert refusal.value.code == code
    assert len(list((tmp_path / "graph").glob("*.staging"))) == len(names)
    assert Graph.open(str(tmp_path / "graph"), read_only=True).catalog == compile_schema(BEFORE)


# -- the contract at open, and a lock that nobody holds ----------------------------------------------------------------


@pytest.mark.requirement("SCH-13")
def test_compiled_schema_files_are_written_again_if_only_main_exists(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    compiled = {name: (tmp_path / "graph" / name).read_text() for name in SCHEMA_FILES[1:]}
    for name in compiled:
        graph.store.objects.delete(name)

    reopened = Graph.open(str(tmp_path / "graph"))

    assert {name: (tmp_path / "graph" / name).read_text() for name in compiled} == compiled
    reopened.branch_create("feature")
    for name in compiled:
        graph.store.objects.delete(name)
    with pytest.raises(Conflict) as refusal:
        Graph.open(str(tmp_path / "graph"))
    assert refusal.value.code == "schema_contract_missing"


@pytest.mark.requirement("SCH-13")
@pytest.mark.parametrize("name", SCHEMA_FILES[1:])
def test_half_a_contract_is_refused(tmp_path: Path, name: str) -> None:
    graph_with_rows(tmp_path).store.objects.delete(name)

    with pytest.raises(Conflict) as refusal:
        Graph.open(str(tmp_path / "graph"))

    assert refusal.value.code == "schema_contract_incomplete"


@pytest.mark.requirement("SCH-17")
def test_a_schema_apply_that_died_while_arming_does_not_rob_the_one_that_holds_the_lock(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    with registry.armed("schema_apply.before_staging_write", "error"), pytest.raises(OutcomePending):
        graph.schema_apply(RICH)
    [pending] = graph.store.sidecars.pending()
    dead = json.loads(pending.encode()) | {"operation_id": "0DEAD", "tables": [], "additional_registrations": []}
    (tmp_path / "graph/__recovery/0DEAD.json").write_text(json.dumps(dead))
    graph.store.schema.write_staging(RICH, compile_schema(RICH))

    [row] = recover(graph.store, "0DEAD", full=True)

    assert row.recovery_kind == "RolledBack"
    assert graph.store.manifests.schema_lock_is_held() and graph.store.schema.staging_is_whole()
    with pytest.raises(Conflict):
        take_schema_lock(graph.store.tables, graph.store.manifests)
    assert check_whole(tmp_path / "graph", [BEFORE, RICH]) == RICH


@pytest.mark.requirement("SCH-18", "STO-05")
def test_a_suspended_promotion_does_not_put_its_schema_over_a_later_one(tmp_path: Path) -> None:
    graph = graph_with_rows(tmp_path)
    source = graph.store.objects.read("_schema.pg")
    later = source + "\nnode Later { name: String @key }\n"
    files = graph.store.schema
    sooner = source + "\nnode Sooner { name: String @key }\n"
    files.write_staging(sooner, compile_schema(sooner))
    suspended = SchemaFiles(graph.store.objects)
    read_staged = suspended._staged_texts

    def overtaken() -> dict[str, str] | None:
        texts = read_staged()
        files.discard_staging()
        for name, text in schema_file_texts(later, compile_schema(later)).items():
            graph.store.objects.write(name, text)
        return texts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspended, "_staged_texts", overtaken)
        suspended.promote_staging()
    assert graph.store.schema.reload().source == later


@pytest.mark.requirement("SCH-17", "PUB-22")
def test_who_is_rolled_forward_releases_the_lock_that_the_recovery_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery of another engine may publish the new schema and leave the lock. Its holder lives."""
    graph = graph_with_rows(tmp_path)
    source = graph.store.objects.read("_schema.pg") + "\nnode Later { name: String @key }\n"

    def overtake() -> None:
        other = Graph.open(str(tmp_path / "graph"), read_only=True)
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "release_schema_lock", lambda *_: None)
            for operation_id in other.store.sidecars.operation_ids():
                recovery.recover(other.store, operation_id, full=True)

    with registry.armed("schema_apply.after_staging_write", overtake, times=1):
        assert graph.schema_apply(source).applied
    assert not graph.store.manifests.schema_lock_is_held()
    assert graph.store.sidecars.operation_ids() == []
    assert check_whole(tmp_path / "graph", [source]) == source
