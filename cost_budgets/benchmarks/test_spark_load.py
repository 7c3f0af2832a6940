"""The load on Spark against one process that writes the same Parquet files to Lance and checks nothing.

    pytest cost_budgets/benchmarks/test_spark_load.py --benchmark-only
    TOUCHSTONE_SPARK_SCALE=0.02 pytest cost_budgets/benchmarks/test_spark_load.py --benchmark-only

A million nodes and five million edges, times the scale. A small scale measures how long Spark takes to start a stage,
and nothing else. The session is started, and its workers have done their imports, before anything is timed. What is
loaded is audited and compared with what was generated. Seconds are reported, and nothing fails for them. What a busy
machine does not change is asserted: memory, processor time, and what an append reads of the rows that are there.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cost_budgets.benchmarks.conftest import ASSERTED_FROM, Ratios, alternating
from cost_budgets.benchmarks.memory import PEAK_BYTES_MAX, peak_memory
from cost_budgets.benchmarks.serial import loaded_serially
from reference.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE: Final = float(os.environ.get("TOUCHSTONE_SPARK_SCALE", "1"))
NODES, EDGES, APPENDED = int(1_000_000 * SCALE), int(5_000_000 * SCALE), int(100_000 * SCALE)
ROUNDS: Final = 3
GROWTH_MAX: Final = 1.5
SIMPLE: Final = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person { weight: F64? }
"""


@pytest.fixture(scope="module")
def generated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from reference.pipeline.generate import generate

    source = tmp_path_factory.mktemp("generated") / "graph"
    generate(spark, str(source), nodes=NODES, edges=EDGES, seed=7)
    return source


def loaded(spark: SparkSession, place: Path, schema: str, source: Path) -> Graph:
    """A new graph with everything that a source holds."""
    from reference.pipeline.load import pipeline_load

    shutil.rmtree(place, ignore_errors=True)
    graph = Graph.init(str(place), schema)
    pipeline_load(graph, str(source), mode="append", spark=spark)
    return graph


def bare(place: Path, source: Path) -> None:
    """The same files, type by type, into one dataset each, by one process that looks at nothing."""
    shutil.rmtree(place, ignore_errors=True)
    for folder in sorted(path for kind in ("nodes", "edges") for path in (source / kind).iterdir()):
        files = sorted(folder.glob("*.parquet"))
        batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches())
        rows = pa.RecordBatchReader.from_batches(pq.read_schema(files[0]), batches)
        lance.write_dataset(rows, str(place / folder.name), enable_stable_row_ids=True, data_storage_version="2.2")


def test_a_load_with_full_validation_against_a_bare_write(
    spark: SparkSession, generated: Path, tmp_path: Path, benchmark: Any, ratios: Ratios
) -> None:
    schema = (generated / "schema.pg").read_text()
    loaded(spark, tmp_path / "graph", schema, generated)
    with peak_memory() as peak:
        loaded(spark, tmp_path / "graph", schema, generated)
    ours, theirs = alternating(
        ROUNDS,
        lambda _: loaded(spark, tmp_path / "graph", schema, generated),
        lambda _: bare(tmp_path / "bare", generated),
    )
    name = f"load of {NODES:,} nodes and {EDGES:,} edges from Parquet, checked"
    ratios.add(name, ours / theirs, budget=5, of="a bare write of the same files")
    ratios.add("peak memory of that load, all processes", peak[0] / 2**30, budget=6, of="1 GiB")
    benchmark.extra_info.update(ratio=ours / theirs, seconds=ours, bare_seconds=theirs, peak_bytes=peak[0])
    judge(spark, Graph.open(str(tmp_path / "graph")), generated)
    assert 0 < peak[0] < PEAK_BYTES_MAX
    benchmark.pedantic(lambda: loaded(spark, tmp_path / "graph", schema, generated), rounds=1)


def judge(spark: SparkSession, graph: Graph, generated: Path) -> None:
    """The graph is sound, and every table holds exactly the rows that were generated."""
    from reference.pipeline.audit import audit
    from reference.pipeline.generate import table_checksum
    from reference.pipeline.hashing import Checksum

    found = audit(spark, graph.store.root.uri)
    assert found.findings == (), found.findings
    truth = json.loads((generated / "truth.json").read_text())["tables"]
    for key, expected in truth.items():
        entry = graph.snapshot().entry(key)
        handle = graph.store.tables.open(entry.path, entry.branch, entry.version)
        total = Checksum()
        for batch in handle.to_batches(columns=expected["columns"]):
            total += table_checksum(batch, expected["columns"])
        assert (total.rows, str(total)) == (expected["rows"], expected["checksum"]), key


def test_an_append_does_not_grow_with_what_is_there(
    spark: SparkSession, tmp_path: Path, benchmark: Any, ratios: Ratios
) -> None:
    """The same rows appended to a large graph and to a tenth of it: beyond the look at the keys, the same work."""
    from reference.pipeline.load import pipeline_load

    half = APPENDED // 2
    graphs = []
    for name, share in (("small", 10), ("large", 1)):
        made = write_people(tmp_path / name, first=0, nodes=NODES // share, edges=EDGES // share)
        graphs.append(loaded(spark, tmp_path / f"{name}-graph", SIMPLE, made))
    inputs = [
        write_people(tmp_path / f"more{number}", first=NODES + number * half, nodes=half, edges=APPENDED - half)
        for number in range(ROUNDS + 3)
    ]

    def append(graph: Graph, number: int) -> None:
        pipeline_load(graph, str(inputs[number]), mode="append", spark=spark)

    for graph in graphs:
        append(graph, ROUNDS)
    little, much = alternating(ROUNDS, lambda n: append(graphs[0], n), lambda n: append(graphs[1], n))
    name = f"append of {half:,} nodes and {APPENDED - half:,} edges to {NODES:,} nodes and {EDGES:,} edges"
    ratios.add(name, much / little, budget=2, of="an append of them to a tenth of that")
    benchmark.extra_info.update(ratio=much / little, seconds=much, seconds_to_a_tenth=little)
    benchmark.pedantic(lambda: append(graphs[1], ROUNDS + 1), rounds=1)
    to_little, to_much = (loaded_serially(graph, inputs[ROUNDS + 2]) for graph in graphs)
    benchmark.extra_info.update(to_a_tenth=str(to_little), to_all=str(to_much))
    assert to_much.key_columns == to_little.key_columns == {"id"}, "of the rows that are there, ids are read"
    assert to_much.reads <= 1.1 * to_little.reads, "beyond the keys, nothing more is read"
    growth = to_much.processor_seconds / to_little.processor_seconds
    ratios.add("processor time of that append beyond its keys", growth, budget=GROWTH_MAX, of="that to a tenth")
    assert SCALE < ASSERTED_FROM or growth <= GROWTH_MAX


def test_doubling_the_input_about_doubles_the_time(
    spark: SparkSession, tmp_path: Path, benchmark: Any, ratios: Ratios
) -> None:
    sizes = [EDGES // 5, EDGES * 2 // 5, EDGES * 4 // 5]
    inputs = [write_people(tmp_path / f"in{size}", first=0, nodes=size // 5, edges=size) for size in sizes]
    loads = [lambda _, source=source: loaded(spark, tmp_path / "graph", SIMPLE, source) for source in inputs]
    loads[0](0)
    seconds = alternating(ROUNDS, *loads)
    for (small, large), (less, more) in zip(
        zip(seconds, seconds[1:], strict=False), zip(sizes, sizes[1:], strict=False), strict=True
    ):
        ratios.add(f"load of {more:,} edges", large / small, budget=2.3, of=f"a load of {less:,}")
    benchmark.extra_info.update(dict(zip(map(str, sizes), seconds, strict=True)))
    benchmark.pedantic(lambda: loads[0](0), rounds=1)


def write_people(folder: Path, *, first: int, nodes: int, edges: int) -> Path:
    """Numbered people, and edges between them with the skew of real ones, as Parquet files."""
    import numpy as np

    dice = np.random.default_rng(first)
    (folder / "nodes" / "Person").mkdir(parents=True)
    names = pa.array([f"person-{number}" for number in range(first, first + nodes)])
    people = pa.table({"name": names, "age": pa.array(dice.integers(0, 90, nodes), pa.int32())})
    pq.write_table(people, folder / "nodes" / "Person" / "part-00000.parquet", row_group_size=250_000)
    if edges:
        (folder / "edges" / "Knows").mkdir(parents=True)
        sources = names.take(pa.array((nodes * dice.random(edges) ** 3).astype(np.int64)))
        targets = names.take(pa.array(dice.integers(0, nodes, edges)))
        knows = pa.table({"from": sources, "to": targets, "weight": dice.random(edges)})
        pq.write_table(knows, folder / "edges" / "Knows" / "part-00000.parquet", row_group_size=250_000)
    return folder
