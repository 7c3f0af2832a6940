"""Defects that were found by trying to break the engine. Each test tells the story of one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from failpoints.registry import armed
from fixtures import golden
from fixtures.stores import EmptyRoot
from fixtures.stores.moto import MotoStore
from reference.errors import BadRequest, Conflict, NotFound, OmniError
from reference.format.records import read_records
from reference.graph import Graph
from reference.operations.branches import drop_fork
from reference.operations.open import _resolve_staging
from reference.protocol.recovery import recover
from reference.protocol.store import GraphStore, open_store
from reference.tests.graphs import names, new_graph, person, reopened, state_of

NOTES = "node Note { title: String @key\n body: Blob? }"


@pytest.mark.requirement("BRA-02", "BRA-16", "BRA-18")
def test_a_branch_below_main_cannot_be_made_and_deleting_one_does_not_delete_main(graph_root: EmptyRoot) -> None:
    """Lance takes the branch `main/x` for the dataset itself: deleting it deleted the whole graph."""
    graph = new_graph(graph_root)
    graph.mutate([person("ann")])
    with pytest.raises(BadRequest) as refused:
        graph.branch_create("main/x")
    assert refused.value.code == "invalid_branch_name"
    entry = graph.snapshot().entries["node:Person"]
    graph.store.tables.fork("__manifest", None, graph.snapshot().version, "main/x")
    graph.store.tables.fork(entry.path, None, entry.version, "main/x")
    assert graph.branch_list() == ["main", "main/x"]
    drop_fork(graph.store, entry.path, "main/x")
    reopened(graph).branch_delete("main/x")
    again = reopened(graph)
    assert (again.branch_list(), names(again)) == (["main"], ["ann"])


@pytest.mark.requirement("PUB-18", "SCH-10", "LOD-11")
@pytest.mark.parametrize("mode", ["overwrite", "merge", "append"])
def test_a_load_that_was_parsed_under_an_old_schema_is_not_written_under_the_new_one(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog was read, the records were parsed, and only then was the snapshot taken."""
    graph = new_graph(tmp_path / "graph", "node A { k: String @key\n a: I32? }")
    other = reopened(graph)
    parse = read_records

    def slow(*arguments: object) -> object:
        found = parse(*arguments)  # type: ignore[arg-type]
        other.schema_apply("node A { k: String @key\n a: I32?\n b: I32? }")
        return found

    monkeypatch.setattr("reference.operations.load.read_records", slow)
    with pytest.raises(Conflict) as refused:
        graph.load('{"type":"A","data":{"k":"x","a":1}}', mode=mode)  # type: ignore[arg-type]
    assert refused.value.code == "schema_changed"
    monkeypatch.undo()
    graph.load('{"type":"A","data":{"k":"x","a":1,"b":2}}', mode=mode)  # type: ignore[arg-type]
    assert graph.read("node:A") == [{"id": "x", "a": 1, "b": 2, "k": "x"}]


@pytest.mark.requirement("LAY-04", "BRA-17")
@pytest.mark.parametrize("original", ["gone", "kept"])
def test_a_branch_of_a_moved_graph_is_read_and_not_written(tmp_path: Path, original: str) -> None:
    """A write went through the addresses of the old place, and its sidecar could never be resolved at the new one."""
    graph = new_graph(tmp_path / "before")
    graph.mutate([person("ann")])
    graph.branch_create("feat")
    graph.branch_create("lazy")
    graph.mutate([person("bea")], branch="feat")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    if original == "gone":
        shutil.rmtree(tmp_path / "before")
    moved = Graph.open(str(tmp_path / "after"))
    for branch in ("feat", "lazy"):
        with pytest.raises(Conflict) as refused:
            moved.mutate([person("cyd")], branch=branch)
        assert refused.value.code == "graph_moved"
    assert moved.merge("feat", "main").outcome == "fast_forward"
    again = Graph.open(str(tmp_path / "after"))
    assert again.recovered == []
    assert names(again) == names(again, branch="feat") == ["ann", "bea"]
    again.mutate([person("dan")])


@pytest.mark.s3
@pytest.mark.requirement("CLN-07", "EXP-06")
def test_cleanup_does_not_turn_null_blobs_of_the_public_engine_into_empty_ones(moto_store: MotoStore) -> None:
    """Who wrote a row tells a null blob from an empty one, and cleanup removed the version that knew."""
    moto_store.create_bucket("golden")
    golden.upload("social", moto_store.objects("golden"))
    graph = Graph.open("s3://golden/social", env=moto_store.env)
    before = {branch: state_of(graph, branch) for branch in graph.branch_list()}
    assert not any(stats.error for stats in graph.cleanup(keep_versions=1, confirm=True))
    again = Graph.open("s3://golden/social", env=moto_store.env)
    assert {branch: state_of(again, branch) for branch in again.branch_list()} == before


@pytest.mark.requirement("SCH-06", "EXP-06", "EXP-03")
def test_an_empty_blob_stays_empty_through_rename_cleanup_branch_and_merge(tmp_path: Path) -> None:
    """The first version of a renamed table did not say who had written it."""
    graph = new_graph(tmp_path / "graph", NOTES)
    graph.load(
        '{"type":"Note","data":{"title":"e","body":"base64:"}}\n{"type":"Note","data":{"title":"n"}}', mode="append"
    )
    graph.schema_apply('node Page @rename_from("Note") { title: String @key\n body: Blob? }')
    graph.branch_create("feat")
    graph.load('{"type":"Page","data":{"title":"f","body":"base64:"}}', mode="merge", branch="feat")
    graph.merge("feat", "main")
    graph.branch_delete("feat")
    graph.cleanup(keep_versions=1, confirm=True)
    bodies = {row["id"]: row["body"] for row in reopened(graph).read("node:Page")}
    assert bodies == {"e": "base64:", "f": "base64:", "n": None}


@pytest.mark.requirement("BRA-02", "MUT-15")
def test_an_empty_branch_name_is_not_main(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "graph")
    for attempt in (
        lambda: graph.mutate([person("ann")], branch=""),
        lambda: graph.load('{"type":"Person","data":{"name":"ann"}}', mode="merge", branch=""),
    ):
        with pytest.raises(OmniError) as refused:
            attempt()
        assert refused.value.kind in ("bad_request", "not_found")
    assert names(graph) == []


@pytest.mark.requirement("SNP-03", "SNP-08")
def test_time_travel_on_a_branch_made_anew_does_not_answer_from_the_old_one(tmp_path: Path) -> None:
    graph = new_graph(tmp_path / "graph")
    reader = reopened(graph)
    for name in ("old", "new"):
        graph.branch_create("feat")
        graph.mutate([person(name)], branch="feat")
        version = graph.snapshot("feat").version
        graph.mutate([person("later")], branch="feat")
        seen = [row["id"] for row in reader.read("node:Person", reader.snapshot("feat", version=version))]
        assert seen == [name]
        graph.branch_delete("feat")


@pytest.mark.requirement("BRA-02")
@pytest.mark.parametrize("name", ["\u65e5" * 40, "a/" * 120 + "a", "x" * 300])
def test_a_name_too_long_for_its_ref_file_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    graph = new_graph(tmp_path / "graph")
    with pytest.raises(BadRequest) as refused:
        graph.branch_create(name)
    assert refused.value.code == "invalid_branch_name"


@pytest.mark.requirement("IDX-01", "SNP-02")
def test_reads_of_a_handle_go_on_while_it_builds_indexes(tmp_path: Path) -> None:
    """Lance borrows a handle for as long as it builds an index, and every read through it failed meanwhile."""
    graph = new_graph(tmp_path / "graph")
    graph.load("\n".join(f'{{"type":"Person","data":{{"name":"p{n}"}}}}' for n in range(5000)), mode="append")
    graph.read("node:Person")
    builder = threading.Thread(target=graph.ensure_indices)
    builder.start()
    reads = 0
    while builder.is_alive() or reads == 0:
        assert len(graph.table("node:Person")) == 5000
        reads += 1
    builder.join()


@pytest.mark.requirement("STO-01")
def test_a_directory_with_a_question_mark_is_refused(tmp_path: Path) -> None:
    """Lance takes what follows for a query, and wrote beside the graph."""
    with pytest.raises(BadRequest) as refused:
        new_graph(tmp_path / "x?y")
    assert refused.value.code == "invalid_uri"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("SCH-13", "SNP-10")
def test_a_damaged_graph_is_not_called_no_graph(tmp_path: Path) -> None:
    """Told that there is no graph, and then that one is there already, a person reaches for `--force`."""
    graph = new_graph(tmp_path / "graph")
    source = (tmp_path / "graph" / "_schema.pg").rename(tmp_path / "away")
    with pytest.raises(OmniError) as refused:
        reopened(graph, read_only=True)
    assert refused.value.kind == "internal"
    source = source.rename(tmp_path / "graph" / "_schema.pg")
    shutil.rmtree(tmp_path / "graph" / "__manifest" / "_versions")
    with pytest.raises(OmniError) as refused:
        reopened(graph, read_only=True)
    assert refused.value.kind == "internal"
    with pytest.raises(NotFound):
        Graph.open(str(tmp_path / "nowhere"))


@pytest.mark.requirement("REC-05", "REC-13", "OPT-01")
def test_an_optimize_that_died_before_it_removed_its_sidecar_does_not_block_the_graph(tmp_path: Path) -> None:
    """pylance cannot read back the transaction of a compaction that moved indexes, and recovery asked for it."""
    graph = new_graph(tmp_path / "graph")
    for number in range(4):
        graph.load(f'{{"type":"Person","data":{{"name":"p{number}"}}}}', mode="append")
        graph.ensure_indices()
    with armed("recovery.sidecar_delete", "error"):
        graph.optimize()
    again = reopened(graph)
    assert {row.recovery_kind for row in again.recoveries()} == {"RolledForward"}
    assert names(again) == [f"p{number}" for number in range(4)]
    again.mutate([person("after")])


@pytest.mark.requirement("SCH-17", "SCH-18", "PUB-23")
def test_a_schema_apply_that_was_rolled_back_while_it_stood_still_does_not_report_success(tmp_path: Path) -> None:
    """It found the rollback's commit, took it for its own, and put its schema on the old manifest."""
    graph = new_graph(tmp_path / "graph")
    before = graph.store.objects.read("_schema.pg")
    other = reopened(graph)

    def presumed_dead() -> None:
        for operation_id in other.store.sidecars.operation_ids():
            recover(other.store, operation_id, full=True)

    with armed("schema_apply.before_staging_write", presumed_dead, times=1), pytest.raises(OmniError):
        graph.schema_apply(before + "node Shop { name: String @key }\n")
    again = reopened(graph)
    assert again.store.objects.read("_schema.pg") == before
    assert "node:Shop" not in again.snapshot().entries
    assert again.store.sidecars.operation_ids() == []
    assert not again.store.manifests.schema_lock_is_held()
    again.schema_apply(before + "node Shop { name: String @key }\n")
    assert names(again, "node:Shop") == []


@pytest.mark.requirement("SCH-11", "SCH-17")
def test_an_open_leaves_the_staged_files_of_a_live_schema_apply_alone(tmp_path: Path) -> None:
    """It had listed the sidecars before the apply came, and discarded what it then found."""
    graph = new_graph(tmp_path / "graph")
    source = graph.store.objects.read("_schema.pg") + "node Shop { name: String @key }\n"
    with armed("schema_apply.after_staging_write", lambda: _resolve_staging(reopened_store(graph)), times=1):
        graph.schema_apply(source)
    again = reopened(graph)
    assert again.store.objects.read("_schema.pg") == source
    assert names(again, "node:Shop") == []


def reopened_store(graph: Graph) -> GraphStore:
    return open_store(graph.store.root.uri)


@pytest.mark.requirement("REC-14", "SCH-09")
@pytest.mark.parametrize("point", ["recovery.record_audit", "graph_publish.after_manifest_commit"])
def test_an_index_only_apply_is_audited_as_what_became_of_it(tmp_path: Path, point: str) -> None:
    graph = new_graph(tmp_path / "graph", "node A { k: String @key\n n: I32? }")
    source = "node A { k: String @key\n n: I32? @index }"
    with armed("schema_apply.after_staging_write", "error"), pytest.raises(OmniError):
        graph.schema_apply(source)
    with armed(point, "error"), pytest.raises(OmniError):
        reopened(graph)
    again = reopened(graph)
    assert [row.recovery_kind for row in again.recoveries()] == ["RolledForward"]
    assert again.store.objects.read("_schema.pg") == source
    assert not again.store.schema.staging_exists()
