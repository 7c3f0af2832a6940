"""Repair publishes drift that is only maintenance, and leaves the rest to a person; it rewrites nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from reference.errors import BadRequest, Conflict
from reference.graph import Graph
from reference.operations.repair import TableRepair
from reference.operations.tests.people import add_person, new_graph
from reference.protocol.schema_lock import take_schema_lock
from reference.storage.tables import manifest_file


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = new_graph(tmp_path)
    add_person(graph, "main", "Eve", 1)
    graph.ensure_indices()
    add_person(graph, "main", "Fay", 2)
    return graph


def people(graph: Graph) -> lance.LanceDataset:
    return lance.dataset(graph.store.root.join(graph.snapshot().entry("node:Person").path))


def found(graph: Graph, *, confirm: bool = False, force: bool = False) -> TableRepair:
    tables = graph.repair(confirm=confirm, force=force).tables
    return next(table for table in tables if table.table_key == "node:Person")


def compact(graph: Graph) -> None:
    people(graph).optimize.compact_files()


def compact_without_indexes(graph: Graph) -> None:
    for index in people(graph).describe_indices():
        people(graph).drop_index(index.name)
    graph.repair(confirm=True, force=True)
    compact(graph)


@pytest.mark.requirement("RPR-01")
def test_a_graph_without_drift_needs_nothing(graph: Graph) -> None:
    before = (graph.snapshot(), graph.commits())

    result = graph.repair(confirm=True)

    assert {(table.classification, table.action) for table in result.tables} == {("no_drift", "no_op")}
    assert (graph.snapshot(), graph.commits(), result.schema_lock) == (*before, None)


@pytest.mark.requirement("RPR-01", "PUB-19")
@pytest.mark.parametrize("maintain", [compact, compact_without_indexes])
def test_a_compaction_is_published_as_it_is(graph: Graph, maintain: Callable[[Graph], None]) -> None:
    maintain(graph)
    rows, head, pinned = list(graph.export()), people(graph).version, graph.snapshot().entry("node:Person").version
    assert head > pinned
    with pytest.raises(Conflict):
        add_person(graph, "main", "Gus")

    preview = found(graph)
    healed = found(graph, confirm=True)

    assert (preview.classification, preview.action) == ("verified_maintenance", "preview")
    assert (preview.manifest_version, preview.lance_head_version) == (pinned, head)
    assert healed.action == "healed"
    assert graph.snapshot().entry("node:Person").version == head == people(graph).version
    assert list(graph.export()) == rows
    assert graph.commits()[-1].actor_id is None
    add_person(graph, "main", "Gus")


def delete_a_row(graph: Graph) -> None:
    people(graph).delete("name = 'Eve'")


def change_the_settings(graph: Graph) -> None:
    people(graph).update_config({"some.setting": "1"})


def restore(graph: Graph) -> None:
    graph.store.tables.restore(graph.snapshot().entry("node:Person").path, None, people(graph).version, "elsewhere")


@pytest.mark.requirement("RPR-01")
@pytest.mark.parametrize("meddle", [delete_a_row, change_the_settings, restore])
def test_anything_else_is_suspicious_and_only_force_publishes_it(graph: Graph, meddle: Callable[[Graph], None]) -> None:
    compact(graph)
    meddle(graph)
    before, head = graph.snapshot(), people(graph).version

    assert (found(graph).classification, found(graph).action) == ("suspicious", "preview")
    assert found(graph, confirm=True).action == "refused"
    assert graph.snapshot() == before
    assert found(graph, confirm=True, force=True).action == "forced"
    entry = graph.snapshot().entry("node:Person")
    assert (entry.version, entry.row_count) == (head, people(graph).count_rows())
    add_person(graph, "main", "Gus")


@pytest.mark.requirement("RPR-01")
def test_drift_whose_steps_are_gone_is_unverifiable(graph: Graph, tmp_path: Path) -> None:
    compact(graph)
    entry, head = graph.snapshot().entry("node:Person"), people(graph).version
    (tmp_path / "graph" / manifest_file(entry.path, None, head - 1)).unlink()
    fresh = Graph.open(str(tmp_path / "graph"))

    assert found(fresh).classification == "unverifiable"
    assert found(fresh, confirm=True).action == "refused"
    assert found(fresh, confirm=True, force=True).action == "forced"


@pytest.mark.requirement("RPR-01")
def test_force_needs_confirm(graph: Graph) -> None:
    with pytest.raises(BadRequest) as refusal:
        graph.repair(force=True)

    assert refusal.value.code == "confirm_required"


@pytest.mark.requirement("RPR-01", "PUB-19")
def test_drift_of_a_branch_is_repaired_on_that_branch(graph: Graph) -> None:
    graph.branch_create("feature")
    add_person(graph, "feature", "Gus")
    entry = graph.snapshot("feature").entry("node:Person")
    lance.dataset(graph.store.root.join(f"{entry.path}/tree/feature")).delete("name = 'Eve'")
    main = graph.snapshot()

    result = graph.repair("feature", confirm=True, force=True)

    assert [(table.table_key, table.action) for table in result.tables] == [("node:Person", "forced")]
    assert graph.snapshot() == main
    add_person(graph, "feature", "Hal")


@pytest.mark.requirement("SCH-17")
def test_a_schema_lock_that_no_sidecar_explains_is_named_and_released(graph: Graph) -> None:
    take_schema_lock(graph.store.tables, graph.store.manifests)

    assert graph.repair().schema_lock == "held"
    assert graph.store.manifests.schema_lock_is_held()
    assert graph.repair(confirm=True).schema_lock == "released"
    assert graph.repair().schema_lock is None
    add_person(graph, "main", "Gus")
