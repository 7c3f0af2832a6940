"""Generated graphs: the same rows from the same seed however they are cut, and sound by every rule of their schema."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.audit import audit
from reference.errors import BadRequest
from reference.format.values import column
from reference.graph import Graph
from reference.operations.export import export_snapshot
from reference.pipeline.generate import generate, generated_catalog, table_checksum
from reference.pipeline.generated_types import sizes
from reference.pipeline.hashing import Checksum
from reference.pipeline.tests.graphs import load_generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, EDGES = 600, 3_000


@pytest.fixture(scope="module")
def generated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "out"
    generate(spark, str(out), nodes=NODES, edges=EDGES, seed=7)
    return out


def tables_of(out: Path) -> dict[str, pa.Table]:
    """The files of each table, put together in the order of their names."""
    return {
        f"{kind.name.removesuffix('s')}:{folder.name}": pa.concat_tables(map(pq.read_table, sorted(folder.iterdir())))
        for kind in (out / "nodes", out / "edges")
        for folder in sorted(kind.iterdir())
    }


def test_the_rows_do_not_depend_on_how_they_are_cut(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    again = generate(spark, str(tmp_path / "again"), nodes=NODES, edges=EDGES, seed=7, part_rows=250)
    assert again.to_json() == json.loads((generated / "truth.json").read_text())
    whole, cut = tables_of(generated), tables_of(tmp_path / "again")
    assert whole.keys() == cut.keys()
    assert all(whole[key].equals(cut[key]) for key in whole)
    assert len(list((tmp_path / "again" / "edges" / "Knows").iterdir())) > 1


def test_another_seed_gives_other_rows_of_the_same_number(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    other = generate(spark, str(tmp_path / "other"), nodes=NODES, edges=EDGES, seed=8).to_json()["tables"]
    truth = json.loads((generated / "truth.json").read_text())["tables"]
    assert {key: each["rows"] for key, each in other.items()} == {key: each["rows"] for key, each in truth.items()}
    assert all(other[key]["checksum"] != truth[key]["checksum"] for key in truth if key != "node:City")
    assert sum(each["rows"] for key, each in truth.items() if key.startswith("node:")) == NODES
    assert sum(each["rows"] for key, each in truth.items() if key.startswith("edge:")) == EDGES


def test_a_loaded_graph_is_sound_and_has_the_checksums_of_the_truth(generated: Path, tmp_path: Path) -> None:
    graph = load_generated(generated, tmp_path / "graph")
    assert audit(graph.store.root.uri).findings == ()
    truth = json.loads((generated / "truth.json").read_text())["tables"]
    lines = [json.loads(line) for line in export_snapshot(graph.store, graph.snapshot(), graph.catalog)]
    for key, told in truth.items():
        by_scan = table_checksum(graph.table(key), told["columns"])
        assert (by_scan.rows, str(by_scan)) == (told["rows"], told["checksum"]), key
        by_export = exported_checksum(graph, key, lines, told["columns"])
        assert str(by_export) == told["checksum"], f"{key}, from an export"


def exported_checksum(graph: Graph, key: str, lines: list[dict[str, Any]], columns: list[str]) -> Checksum:
    kind, _, name = key.partition(":")
    mine = [line for line in lines if line.get("type" if kind == "node" else "edge") == name]
    arrays = {"id": pa.array([line["data"]["id"] for line in mine], pa.string())}
    if kind == "edge":
        arrays |= {"src": pa.array([line["from"] for line in mine]), "dst": pa.array([line["to"] for line in mine])}
    for prop in graph.catalog.type_of(key).properties:
        arrays[prop.name] = column(prop, [line["data"][prop.name] for line in mine])
    return table_checksum(pa.table(arrays), columns)


def test_degrees_have_a_long_tail_and_columns_have_nulls(generated: Path) -> None:
    found = tables_of(generated)
    degrees = sorted(Counter(found["edge:Knows"]["to"].to_pylist()).values(), reverse=True)
    assert degrees[0] > 20 * (sum(degrees) / len(degrees)), "one person is known by very many"
    people = found["node:Person"]
    assert all(0 < people[name].null_count < len(people) for name in ("age", "bio", "born", "face", "score"))
    longest = max(len(bio) for bio in people["bio"].to_pylist() if bio)
    assert longest > 10 * min(len(bio) for bio in people["bio"].to_pylist() if bio)


def test_columns_have_the_types_of_the_tables(generated: Path) -> None:
    catalog = generated_catalog()
    for key, rows in tables_of(generated).items():
        stored = catalog.arrow_schema(key)
        for each in rows.schema:
            name = {"from": "src", "to": "dst"}.get(each.name, each.name)
            expected = stored.field(name).type
            assert each.type == (pa.timestamp("ms") if pa.types.is_date64(expected) else expected), (key, each.name)


def test_a_directory_with_something_in_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(BadRequest) as refused:
        generate(spark, str(tmp_path), nodes=1, edges=0, seed=1)
    assert refused.value.code == "output_not_empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(BadRequest):
        generate(spark, str(tmp_path / "mine"), nodes=1, edges=0, seed=1)


@pytest.mark.parametrize(("nodes", "edges"), [(0, 0), (1, 0), (1, 10), (2, 3), (17, 1_000), (1_000, 5)])
def test_any_size_is_shared_out_exactly(nodes: int, edges: int) -> None:
    found = sizes(nodes, edges, 1)
    assert sum(found.nodes.values()) == nodes and sum(found.edges.values()) == edges
    assert min([*found.nodes.values(), *found.edges.values()]) >= 0


def test_sizes_that_cannot_be_are_refused() -> None:
    for nodes, edges in ((-1, 0), (0, -1), (0, 1)):
        with pytest.raises(BadRequest):
            sizes(nodes, edges, 1)
