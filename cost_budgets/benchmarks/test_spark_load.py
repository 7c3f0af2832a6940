"""The load on Spark against one process that writes the same Parquet files to Lance and checks nothing.

    pytest cost_budgets/benchmarks/test_spark_load.py --benchmark-only
    TOUCHSTONE_SPARK_SCALE=0.02 pytest cost_budgets/benchmarks/test_spark_load.py --benchmark-only

A million nodes and five million edges, times the scale. A small scale measures how long Spark takes to start a stage,
and nothing else. The session is started, and its workers have done their imports, before anything is timed. What is
loaded is audited and compared with what was generated. Nothing here fails for being slow.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cost_budgets.benchmarks.conftest import Ratios, alternating
from reference.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE: Final = float(os.environ.get("TOUCHSTONE_SPARK_SCALE", "1"))
NODES, EDGES, APPENDED = int(1_000_000 * SCALE), int(5_000_000 * SCALE), int(100_000 * SCALE)
ROUNDS: Final = 3
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

    graphs = []
    for name, share in (("small", 10), ("large", 1)):
        made = write_people(tmp_path / name, first=0, nodes=NODES // share, edges=EDGES // share)
        graphs.append(loaded(spark, tmp_path / f"{name}-graph", SIMPLE, made))
    inputs = [
        write_people(tmp_path / f"more{number}", first=NODES + number * APPENDED, nodes=APPENDED, edges=0)
        for number in range(ROUNDS + 1)
    ]

    def append(graph: Graph, number: int) -> None:
        pipeline_load(graph, str(inputs[number]), mode="append", spark=spark)

    for graph in graphs:
        append(graph, ROUNDS)
    little, much = alternating(ROUNDS, lambda n: append(graphs[0], n), lambda n: append(graphs[1], n))
    name = f"append of {APPENDED:,} nodes to {NODES:,} nodes and {EDGES:,} edges"
    ratios.add(name, much / little, budget=2, of="an append of them to a tenth of that")
    benchmark.extra_info.update(ratio=much / little, seconds=much, seconds_to_a_tenth=little)
    more = write_people(tmp_path / "last", first=NODES + (ROUNDS + 1) * APPENDED, nodes=APPENDED, edges=0)
    benchmark.pedantic(lambda: pipeline_load(graphs[1], str(more), mode="append", spark=spark), rounds=1)


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


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most memory that this process and all below it have had at once, in bytes: shared pages count once each."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peak[0] = max(peak[0], sum(map(_resident, _family(os.getpid()))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended meanwhile.
            parents.setdefault(int(fields[1]), []).append(int(each.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def _resident(pid: int) -> int:
    """The proportional set size where the kernel tells it, so that what forked workers share is not counted twice."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
