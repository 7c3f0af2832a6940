"""The export on Spark is the engine's export, byte for byte, however it is cut; and its Parquet holds the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from fixtures.stores.moto import MotoStore
from reference.errors import BadRequest
from reference.format.values import blob_column
from reference.graph import Graph
from reference.pipeline.audit import audit
from reference.pipeline.diff import diff
from reference.pipeline.export import export
from reference.pipeline.outputs import Output
from reference.pipeline.pinned import pin
from reference.pipeline.tests.graphs import person, rich_graph, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return rich_graph(tmp_path_factory.mktemp("export") / "graph")


def concatenated(out: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(out.glob("part-*.jsonl")))


@pytest.mark.requirement("EXP-01", "EXP-02", "EXP-03")
@pytest.mark.parametrize("part_rows", [7, 1_000])
def test_the_parts_in_the_order_of_their_names_are_the_export(
    spark: SparkSession, graph: Graph, tmp_path: Path, part_rows: int
) -> None:
    done = export(spark, graph, pin(graph), str(tmp_path / "out"), part_rows=part_rows)
    lines = list(graph.export())
    assert concatenated(tmp_path / "out") == b"".join(lines)
    assert done.to_json()["records"] == len(lines)
    assert done.to_json()["bytes"] == sum(map(len, lines))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(done.files)
    assert len(done.files) > 20 if part_rows == 7 else len(done.files) == 3, "tables are cut, but not one without rows"


def test_a_version_and_a_branch_are_exported_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    graph = rich_graph(tmp_path / "graph", people=6)
    version, before = graph.snapshot().version, b"".join(graph.export())
    graph.branch_create("work")
    graph.mutate([{"op": "insert", **person(7)}], branch="work")
    graph.mutate([{"op": "insert", **person(9)}])

    export(spark, graph, pin(graph, version=version), str(tmp_path / "then"))
    export(spark, graph, pin(graph, "work"), str(tmp_path / "work"))

    assert concatenated(tmp_path / "then") == before
    assert concatenated(tmp_path / "work") == b"".join(graph.export("work"))


def test_parquet_holds_the_same_values(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    export(spark, graph, pin(graph), str(tmp_path / "out"), format="parquet", part_rows=25)
    out = tmp_path / "out"
    assert (out / "schema.pg").read_text() == graph.store.schema.current().source
    people = pq.read_table(out / "nodes" / "Person")
    assert len(list((out / "nodes" / "Person").iterdir())) > 1
    rows = graph.read("node:Person")
    assert people["name"].to_pylist() == [row["id"] for row in rows], "in the order of their ids"
    assert "id" not in people.column_names, "the key says it"
    assert people["count"].to_pylist() == [row["count"] for row in rows]
    assert people["face"].to_pylist() == [row["face"] for row in rows]
    assert [f"{each:%Y-%m-%dT%H:%M:%S}.{each.microsecond // 1000:03}" for each in people["seen"].to_pylist()] == [
        row["seen"] for row in rows
    ]
    contents = {
        None: None,
        "base64:": b"",
        "base64:aGFsbG8=": b"hallo",
        "s3://bucket/photo.jpg": "s3://bucket/photo.jpg",
    }
    assert people["photo"].to_pylist() == blob_column([contents[row["photo"]] for row in rows]).to_pylist()
    edges = pq.read_table(out / "edges" / "Knows")
    assert edges.column_names == ["from", "to", "id", "weight"]
    assert edges["id"].to_pylist() == [row["id"] for row in graph.read("edge:Knows")]
    assert pq.read_table(out / "nodes" / "Note")["id"].to_pylist() == ["n0", "n1", "n2", "n4"]


@pytest.mark.s3
def test_the_jobs_work_on_a_store_and_tell_nobody_its_keys(spark: SparkSession, moto_store: MotoStore) -> None:
    env = {**moto_store.env}
    graph = Graph.init(moto_store.fresh_root(), "node Person {\n  name: String @key\n  photo: Blob?\n}\n", env=env)
    people = [{"type": "Person", "data": {"name": f"p{n}", "photo": "base64:aGFsbG8="}} for n in range(9)]
    graph.load(text(people), mode="append")
    older, target = graph.snapshot(), moto_store.fresh_root()
    graph.load(text(people[:1] + [{"type": "Person", "data": {"name": "new"}}]), mode="merge")
    pinned, output = pin(graph), Output.at(target, env)
    assert env["AWS_SECRET_ACCESS_KEY"] not in repr((pinned, output))

    done = export(spark, graph, pinned, target, part_rows=4, env=env)

    system = output.place.system()
    parts = [system.open_input_stream(f"{output.place.path}/{name}").read() for name in done.files]
    assert len(parts) > 1 and b"".join(parts) == b"".join(graph.export())
    with pytest.raises(BadRequest) as refused:
        export(spark, graph, pinned, target, env=env)
    assert refused.value.code == "output_not_empty"
    stats = diff(spark, graph, older, graph.snapshot()).to_json()["stats"]
    assert stats == {"inserts": 1, "updates": 0, "deletes": 0, "types_affected": ["Person"]}
    report = audit(spark, graph.store.root.uri, env=env)
    assert report.ok and report.checked["rows"] == 10


def test_a_snapshot_of_another_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node Person {\n  name: String @key\n}\n")
    graph.load(text([{"type": "Person", "data": {"name": "ann"}}]), mode="append")
    version = graph.snapshot().version
    graph.schema_apply("node Person {\n  name: String @key\n  age: I32?\n}\n")
    with pytest.raises(BadRequest) as refused:
        export(spark, graph, pin(graph, version=version), str(tmp_path / "out"))
    assert refused.value.code == "snapshot_of_another_schema"
