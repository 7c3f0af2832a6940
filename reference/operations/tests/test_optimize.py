"""Optimize changes files, never rows; it says what it did, skips what it must not touch, and is done after one run."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest

from failpoints import registry
from reference.errors import Conflict, OutcomePending
from reference.graph import Graph
from reference.operations.optimize import OptimizeStats

SCHEMA = """
node Person { handle: String @key age: I32? face: Vector(2)? @index }
node Note { text: String body: Blob? }
edge Knows: Person -> Person
"""


def person(handle: str, age: int = 1) -> str:
    return json.dumps({"type": "Person", "data": {"handle": handle, "age": age}})


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Three fragments of people, with an index that covers the first, an update and a delete."""
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    knows = json.dumps({"edge": "Knows", "from": "a", "to": "b"})
    graph.load("\n".join([person("a"), person("b"), person("c"), knows]), mode="append")
    graph.load(json.dumps({"type": "Note", "data": {"text": "x", "body": "base64:AA=="}}), mode="append")
    graph.ensure_indices()
    graph.load(person("d"), mode="append")
    graph.load(person("a", 9), mode="merge")
    where = {"property": "handle", "op": "eq", "value": "c"}
    graph.mutate([{"op": "delete", "type": "Person", "where": where}])
    return graph


def dataset(graph: Graph, table_key: str) -> lance.LanceDataset:
    return lance.dataset(graph.store.root.join(graph.snapshot().entry(table_key).path))


def by_table(stats: list[OptimizeStats]) -> dict[str, OptimizeStats]:
    return {each.table_key: each for each in stats}


@pytest.mark.requirement("OPT-01", "OPT-02", "OPT-07", "IDX-01", "LIN-14", "SNP-07")
def test_one_run_does_all_the_work_and_the_next_does_nothing(graph: Graph) -> None:
    rows, commits, old = list(graph.export()), graph.commits(), graph.snapshot()

    stats = graph.optimize()

    assert [each.table_key for each in stats] == ["edge:Knows", "node:Note", "node:Person", "__manifest"]
    person_stats = by_table(stats)["node:Person"]
    assert person_stats.committed and person_stats.fragments_removed == 3 and person_stats.fragments_added == 1
    assert [each.column for each in person_stats.pending_indexes] == ["face"]
    assert [each.committed for each in stats] == [False, False, True, True]
    assert list(graph.export()) == rows
    assert len(dataset(graph, "node:Person").get_fragments()) == 1
    assert [commit.actor_id for commit in graph.commits()[len(commits) :]] == [None]
    assert graph.read("node:Person", old) == graph.read("node:Person")
    before = (graph.snapshot(), graph.commits())
    with registry.recorded() as reached:
        again = graph.optimize()
    assert not any(each.committed for each in again)
    assert (graph.snapshot(), graph.commits()) == before
    assert "recovery.sidecar_write" not in reached


@pytest.mark.requirement("OPT-03")
def test_no_version_is_lost_even_if_the_table_is_set_to_lose_some(graph: Graph) -> None:
    table = dataset(graph, "node:Person")
    versions = [each["version"] for each in table.versions()]
    table.update_config({"lance.auto_cleanup.interval": "100", "lance.auto_cleanup.older_than": "0s"})
    graph.repair(confirm=True, force=True)

    graph.optimize()

    assert not any(name.startswith("lance.auto_cleanup") for name in dataset(graph, "node:Person").config())
    assert set(versions) <= {each["version"] for each in dataset(graph, "node:Person").versions()}


@pytest.mark.requirement("OPT-04")
def test_blobs_and_unexplained_drift_are_skipped_and_named(graph: Graph) -> None:
    pinned = graph.snapshot().entry("node:Person").version
    dataset(graph, "node:Person").delete("handle = 'a'")

    stats = by_table(graph.optimize())

    assert stats["node:Note"].skipped == "blob_columns_unsupported_by_lance"
    drifted = stats["node:Person"]
    assert (drifted.skipped, drifted.manifest_version, drifted.lance_head_version) == (
        "drift_needs_repair",
        pinned,
        pinned + 1,
    )
    assert graph.snapshot().entry("node:Person").version == pinned


@pytest.mark.requirement("OPT-05", "REC-26")
@pytest.mark.parametrize("operation", ["optimize", "repair"])
def test_a_pending_write_is_dealt_with_first(graph: Graph, operation: str, tmp_path: Path) -> None:
    graph.branch_create("feature")
    with (
        registry.armed("mutation.post_finalize_pre_publisher", "error"),
        pytest.raises(OutcomePending),
    ):
        graph.load(person("e"), mode="append", branch="feature")

    with pytest.raises(Conflict) as refusal:
        getattr(graph, operation)()

    assert refusal.value.code == "recovery_pending"
    getattr(Graph.open(str(tmp_path / "graph")), operation)()


@pytest.mark.requirement("OPT-06")
def test_a_conflict_after_the_compaction_is_retried_and_nothing_is_stranded(graph: Graph) -> None:
    rows = list(graph.export())

    with registry.armed("optimize.inject_reindex_conflict", "error", times=1):
        stats = by_table(graph.optimize())
        assert registry.hits("optimize.inject_reindex_conflict") == 2

    assert stats["node:Person"].committed
    assert graph.store.sidecars.operation_ids() == []
    assert dataset(graph, "node:Person").version == graph.snapshot().entry("node:Person").version
    assert list(graph.export()) == rows


@pytest.mark.requirement("OPT-06", "PUB-21")
def test_an_optimize_that_gives_up_takes_its_compaction_back(graph: Graph) -> None:
    rows = list(graph.export())

    with registry.armed("optimize.inject_reindex_conflict", "error"), pytest.raises(Conflict):
        graph.optimize()

    assert graph.store.sidecars.operation_ids() == []
    assert dataset(graph, "node:Person").version == graph.snapshot().entry("node:Person").version
    assert list(graph.export()) == rows
    graph.load(person("e"), mode="append")


@pytest.mark.requirement("OPT-06", "PUB-20")
def test_a_commit_that_slips_under_the_compaction_is_not_published_with_it(graph: Graph, tmp_path: Path) -> None:
    """A writer of another kind commits to the table under our feet: what it wrote is not published by us."""
    pinned = graph.snapshot().entry("node:Person").version

    def intrude() -> None:
        dataset(graph, "node:Person").delete("handle = 'b'")

    with registry.armed("optimize.before_compact", intrude, times=1):
        graph.optimize()

    handles = [row["handle"] for row in graph.read("node:Person")]
    assert handles == ["a", "b", "d"]
    assert dataset(graph, "node:Person").version == graph.snapshot().entry("node:Person").version > pinned
    assert graph.store.sidecars.operation_ids() == []


@pytest.mark.requirement("REC-05", "REC-01")
@pytest.mark.parametrize("failpoint", ["optimize.before_compact", "optimize.post_phase_b_pre_manifest_commit"])
def test_an_optimize_that_is_cut_is_rolled_forward(graph: Graph, tmp_path: Path, failpoint: str) -> None:
    rows = list(graph.export())
    with registry.armed(failpoint, "error"), pytest.raises(OutcomePending):
        graph.optimize()
    assert len(graph.store.sidecars.operation_ids()) == 1

    recovered = Graph.open(str(tmp_path / "graph"))

    assert [row.recovery_kind for row in recovered.recovered] == ["RolledForward"]
    assert dataset(recovered, "node:Person").version == recovered.snapshot().entry("node:Person").version
    assert list(recovered.export()) == rows
    recovered.optimize()
    assert not any(each.committed for each in recovered.optimize())
