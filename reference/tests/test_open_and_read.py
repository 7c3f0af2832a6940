"""Init, open and read: what a fresh graph looks like on disk, what is refused, and which state a reader sees."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pytest

from failpoints.registry import armed, paused
from fixtures.old_graphs import write_old_graph
from fixtures.stores import EmptyRoot
from reference.errors import BadRequest, Conflict, NotFound, OmniError
from reference.format.manifest import MANIFEST_SCHEMA
from reference.graph import Graph
from reference.protocol import publish
from reference.tests.graphs import PEOPLE, city, knows, names, new_graph, person, reopened, state_of


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path / "graph")


def files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


# -- init ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LAY-01", "LAY-08", "LAY-10", "LAY-14", "MAN-07", "LIN-08", "MAN-01")
def test_a_fresh_graph_has_exactly_this_on_disk(graph: Graph) -> None:
    root = Path(graph.store.root.path)
    assert sorted(os.listdir(root)) == [
        "__manifest",
        "__schema_state.json",
        "_schema.ir.json",
        "_schema.pg",
        "edges",
        "nodes",
    ]
    assert (root / "_schema.pg").read_text() == PEOPLE
    manifest = lance.dataset(str(root / "__manifest"))
    assert manifest.version == 3
    assert lance.dataset(str(root / "__manifest"), version=1).count_rows() == 2 * 4 + 2
    assert lance.dataset(str(root / "__manifest"), version=2).config() == {"table_version_management": "true"}
    assert manifest.schema.metadata == {b"omnigraph:internal_schema_version": b"4"}
    assert manifest.schema.remove_metadata().equals(MANIFEST_SCHEMA, check_metadata=True)
    assert all((e.version, e.row_count, e.branch) == (1, 0, None) for e in graph.snapshot().entries.values())
    genesis = graph.commits()[0]
    assert (genesis.manifest_version, genesis.parent_commit_id, genesis.actor_id) == (1, None, None)
    assert graph.snapshot(version=1).entries == graph.snapshot().entries


@pytest.mark.requirement("LAY-06", "LAY-07", "CHG-05")
def test_every_dataset_has_stable_row_ids_and_file_version_2_2_and_no_auto_cleanup(graph: Graph) -> None:
    graph.load('{"type":"City","data":{"name":"Rome"}}', mode="overwrite")
    with armed("mutation.post_finalize_pre_publisher", "error"), pytest.raises(OmniError):
        graph.mutate([person("ann")])
    again = reopened(graph)
    paths = ["__manifest", "_graph_commit_recoveries.lance", *(e.path for e in again.snapshot().entries.values())]
    for path in paths:
        dataset = lance.dataset(again.store.root.join(path))
        assert dataset.has_stable_row_ids
        assert dataset.data_storage_version == "2.2"
        assert not [key for key in dataset.config() if key.startswith("lance.auto_cleanup")]
        dataset.to_table(columns=["_row_created_at_version", "_row_last_updated_at_version"])


@pytest.mark.requirement("SCH-16")
def test_a_root_that_holds_a_graph_is_not_initialized_again(graph: Graph) -> None:
    graph.mutate([person("ann")])
    root = Path(graph.store.root.path)
    before = files(root)
    with pytest.raises(Conflict) as refused:
        new_graph(root)
    assert refused.value.code == "already_initialized"
    assert files(root) == before
    forced = Graph.init(str(root), PEOPLE, force=True)
    assert (names(forced), len(forced.commits())) == ([], 1)


@pytest.mark.requirement("SCH-16")
@pytest.mark.parametrize(
    "point", ["init.after_schema_pg_written", "init.after_schema_contract_written", "init.after_coordinator_init"]
)
def test_an_init_that_fails_gives_the_root_back(tmp_path: Path, point: str) -> None:
    with armed(point, "error"), pytest.raises(OmniError):
        new_graph(tmp_path / "graph")
    assert names(new_graph(tmp_path / "graph")) == []


@pytest.mark.requirement("SCH-16", "VAL-15")
def test_a_broken_schema_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(BadRequest):
        new_graph(tmp_path / "graph", "node person {")
    assert not (tmp_path / "graph").exists()


@pytest.mark.requirement("SCH-16", "STO-03")
def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "mine.txt").write_text("precious")
    with pytest.raises(Conflict) as refused:
        new_graph(tmp_path)
    assert refused.value.code == "root_not_empty"
    assert os.listdir(tmp_path) == ["nodes"]
    with pytest.raises(NotFound) as absent:
        Graph.open(str(tmp_path))
    assert absent.value.code == "graph_not_found"
    assert files(tmp_path).keys() == {"nodes/mine.txt"}


# -- the stamp -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STM-01", "STM-02", "STM-03", "STM-04", "STM-05", "STM-09")
@pytest.mark.parametrize("stamp", ["1", "2", "3", "5", "abc", None])
@pytest.mark.parametrize("read_only", [False, True])
def test_another_generation_is_refused_and_nothing_of_it_is_touched(
    graph: Graph, stamp: str | None, read_only: bool
) -> None:
    graph.store.objects.write("__recovery/01M7GZSZTDJD97MA655G1X2CDR.json", "not even a sidecar")
    graph.store.objects.write("_schema.pg.staging", "left over")
    manifest = lance.dataset(graph.store.root.join("__manifest"))
    metadata: dict[str, str | None] = {} if stamp is None else {"omnigraph:internal_schema_version": stamp}
    manifest.update_schema_metadata(metadata, replace=True)
    before = files(Path(graph.store.root.path))
    with pytest.raises(BadRequest) as refused:
        reopened(graph, read_only=read_only)
    assert refused.value.code == ("stamp_newer" if stamp == "5" else "stamp_older")
    assert files(Path(graph.store.root.path)) == before


@pytest.mark.requirement("STM-04", "STM-08", "STM-09")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_old_graph_is_refused_and_rebuilt_from_its_export(tmp_path: Path, version: int) -> None:
    old = write_old_graph(tmp_path / "old", version)
    before = files(tmp_path / "old")
    for read_only in (False, True):
        with pytest.raises(BadRequest) as refused:
            Graph.open(str(tmp_path / "old"), read_only=read_only)
        assert refused.value.details["stamp"] == version
    assert files(tmp_path / "old") == before
    rebuilt = Graph.init(str(tmp_path / "new"), old.schema_source)
    rebuilt.load(old.records, mode="overwrite")
    assert sum(entry.row_count for entry in rebuilt.snapshot().entries.values()) == len(
        old.records.strip().splitlines()
    )
    assert len(rebuilt.commits()) == 2


# -- what a reader sees ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("SNP-01", "SNP-02", "SNP-07", "DEL-07")
def test_a_snapshot_never_changes_and_the_next_read_is_current(graph_root: EmptyRoot) -> None:
    graph = new_graph(graph_root)
    graph.mutate([person("ann"), person("bea"), knows("ann", "bea")])
    reader = reopened(graph, read_only=True)
    then = reader.snapshot()
    graph.mutate([{"op": "delete", "type": "Person", "where": {"property": "name", "op": "eq", "value": "ann"}}])
    graph.mutate([city("Rome")])
    assert [row["id"] for row in reader.read("node:Person", then)] == ["ann", "bea"]
    assert len(reader.read("edge:Knows", then)) == 1
    assert (names(reader), names(reader, "node:City"), names(reader, "edge:Knows")) == (["bea"], ["Rome"], [])


@pytest.mark.requirement("SNP-03", "SNP-04", "SNP-06", "LIN-10")
def test_time_travel_by_version_and_by_commit(graph: Graph) -> None:
    graph.mutate([person("ann", 1)])
    first = graph.commits()[-1]
    graph.mutate([person("ann", 2), person("it's")])
    assert graph.entity_at("node:Person", "ann", graph.snapshot(version=first.manifest_version)) == {
        "id": "ann",
        "age": 1,
        "name": "ann",
    }
    then = graph.snapshot(commit=first.graph_commit_id)
    assert graph.entity_at("node:Person", "it's", then) is None
    assert graph.entity_at("node:Person", "it's") is not None
    assert graph.entity_at("node:Nobody", "ann") is None
    for wrong in (999, 0):
        with pytest.raises(NotFound):
            graph.snapshot(version=wrong)
    with pytest.raises(NotFound) as unknown:
        graph.snapshot(commit="01M7GZSZTDJD97MA655G1X2CDR")
    assert unknown.value.code == "commit_not_found"


@pytest.mark.requirement("LIN-10", "SNP-04", "LIN-07")
def test_a_commit_of_any_branch_is_found_and_read_where_it_was_made(graph: Graph) -> None:
    graph.branch_create("feat")
    graph.mutate([person("ann")], branch="feat")
    made = graph.commits("feat")[-1]
    assert made.manifest_branch == "feat"
    assert made.parent_commit_id == graph.commits()[-1].graph_commit_id
    assert graph.commit(made.graph_commit_id) == made
    assert [row["id"] for row in graph.read("node:Person", graph.snapshot(commit=made.graph_commit_id))] == ["ann"]


@pytest.mark.requirement("SNP-05")
def test_a_live_snapshot_has_a_name(graph: Graph) -> None:
    graph.branch_create("feat")
    assert graph.snapshot_id(graph.snapshot()) == "manifest:main:v3"
    assert graph.snapshot_id(graph.snapshot("feat")) == "manifest:feat:v3"


@pytest.mark.requirement("SNP-11", "BRA-08")
def test_a_handle_can_be_bound_to_another_branch(graph: Graph) -> None:
    graph.branch_create("feat")
    graph.sync_branch("feat")
    graph.mutate([person("ann")])
    assert names(graph) == ["ann"]
    graph.sync_branch("main")
    assert names(graph) == []
    with pytest.raises(NotFound):
        graph.sync_branch("nowhere")


@pytest.mark.requirement("SNP-08")
def test_a_branch_made_anew_under_an_old_name_is_seen_as_new(graph_root: EmptyRoot) -> None:
    graph = new_graph(graph_root)
    graph.branch_create("feat")
    graph.mutate([person("old")], branch="feat")
    reader = reopened(graph, read_only=True)
    assert names(reader, branch="feat") == ["old"]
    graph.branch_delete("feat")
    graph.branch_create("feat")
    graph.mutate([person("new")], branch="feat")
    assert reader.snapshot("feat").version == graph.snapshot("feat").version
    assert names(reader, branch="feat") == ["new"]
    assert reader.commits("feat") == graph.commits("feat")


@pytest.mark.requirement("SNP-10")
def test_a_schema_edited_by_hand_stops_every_read_and_write(graph: Graph) -> None:
    graph.mutate([person("ann")])
    source = graph.store.objects.read("_schema.pg")
    graph.store.objects.write("_schema.pg", source + "node Extra { name: String @key }\n")
    for attempt in (lambda: names(graph), lambda: graph.mutate([person("bea")]), lambda: reopened(graph)):
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.code == "schema_source_drift"
    graph.store.objects.write("_schema.pg", source)
    assert names(graph) == ["ann"]


@pytest.mark.requirement("LAY-04")
def test_a_graph_that_was_moved_is_read_and_written_at_its_new_place(graph: Graph, tmp_path: Path) -> None:
    graph.mutate([person("ann")])
    graph.branch_create("feat")
    graph.mutate([person("cyd"), person("dan")], branch="feat")
    graph.mutate(
        [{"op": "delete", "type": "Person", "where": {"property": "name", "op": "eq", "value": "cyd"}}], branch="feat"
    )
    moved = Path(graph.store.root.path).rename(tmp_path / "moved")
    again = Graph.open(str(moved))
    assert (names(again), names(again, branch="feat")) == (["ann"], ["ann", "dan"])
    again.mutate([person("bea")])
    assert names(again) == ["ann", "bea"]


@pytest.mark.requirement("SNP-12", "EXP-02")
def test_rows_come_in_the_order_of_their_ids(graph: Graph) -> None:
    graph.mutate([person(name) for name in ("b", "Z", "a", "é", "10", "9")])
    assert names(graph) == ["10", "9", "Z", "a", "b", "é"]


@pytest.mark.requirement("EXP-04", "EXP-05")
def test_an_export_takes_types_and_tables_and_refuses_unknown_ones(graph: Graph) -> None:
    graph.mutate([person("ann"), city("Rome"), knows("ann", "ann")])
    assert b"".join(graph.export(types=["City"])) == b'{"type":"City","data":{"id":"Rome","name":"Rome"}}\n'
    assert b"".join(graph.export(tables=["node:City"])) == b"".join(graph.export(types=["City"]))
    assert len(list(graph.export(types=["Knows"], tables=["node:City"]))) == 2
    with pytest.raises(BadRequest) as refused:
        graph.export(types=["Nobody"])
    assert refused.value.code == "unknown_export_type"
    with pytest.raises(BadRequest) as refused:
        graph.export(tables=["City"])
    assert refused.value.code == "unknown_export_table"


# -- writers ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-06", "REC-22")
@pytest.mark.parametrize("point", ["recovery.sidecar_write", "recovery.sidecar_list"])
def test_a_cancelled_write_leaves_nothing(graph: Graph, point: str) -> None:
    graph.mutate([person("ann")])
    before = state_of(graph)

    def cancel() -> None:
        raise KeyboardInterrupt

    with armed(point, cancel), pytest.raises(KeyboardInterrupt):
        graph.mutate([person("bea")])
    assert (state_of(graph), graph.store.sidecars.operation_ids()) == (before, [])
    graph.mutate([person("bea")])
    assert reopened(graph).recovered == []


@pytest.mark.requirement("REC-28", "IDX-08", "MUT-01")
def test_a_write_moves_each_table_by_one_version_and_builds_no_index(graph: Graph) -> None:
    for number in range(3):
        before = graph.snapshot().entries["node:Person"].version
        graph.mutate([person(f"p{number}")])
        entry = graph.snapshot().entries["node:Person"]
        assert entry.version == before + 1
        assert lance.dataset(graph.store.root.join(entry.path)).list_indices() == []


@pytest.mark.requirement("REC-24")
def test_a_heal_waits_for_a_live_writer_of_the_same_process(graph: Graph) -> None:
    import threading

    graph.mutate([person("ann")])
    writer = threading.Thread(target=lambda: graph.mutate([person("bea")]))
    other = reopened(graph)
    with paused("mutation.post_finalize_pre_publisher") as point:
        writer.start()
        point.wait_arrived()
        healer = threading.Thread(target=other.refresh)
        healer.start()
        point.release()
        healer.join()
        writer.join()
    assert names(graph) == ["ann", "bea"]
    assert graph.recoveries() == []


@pytest.mark.requirement("PUB-05")
def test_a_publish_is_one_keyed_merge_without_retries_of_lances_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, object]] = []
    merge_insert = lance.LanceDataset.merge_insert

    class Spy:
        def __init__(self, builder: object) -> None:
            self._builder = builder

        def __getattr__(self, name: str) -> object:
            def call(*arguments: object) -> object:
                calls.append((name, arguments[0] if name in ("conflict_retries", "use_index") else None))
                answer = getattr(self._builder, name)(*arguments)
                return self if answer is self._builder else answer

            return call

    monkeypatch.setattr(lance.LanceDataset, "merge_insert", lambda self, key: Spy(merge_insert(self, key)))
    graph.store.publisher.publish(None, publish.Changes(), {}, publish.Lineage())
    assert ("conflict_retries", 0) in calls
    assert ("use_index", False) in calls
    assert [name for name, _ in calls].count("execute") == 1


@pytest.mark.requirement("LIN-15")
def test_a_clock_before_1970_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: -1_000_000)
    with pytest.raises(BadRequest) as refused:
        publish.now_micros()
    assert refused.value.code == "system_clock"


@pytest.mark.requirement("LOD-15")
def test_an_embedding_is_never_computed_by_a_load(tmp_path: Path) -> None:
    schema = 'node Doc { name: String @key\n text: String?\n vector: Vector(2)? @embed("text") }'
    graph = new_graph(tmp_path / "graph", schema)
    graph.load('{"type":"Doc","data":{"name":"d","text":"words"}}', mode="merge")
    assert graph.read("node:Doc")[0]["vector"] is None
