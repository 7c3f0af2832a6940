"""The jobs on Spark that read, against one process that scans the same tables.

    pytest cost_budgets/benchmarks/test_spark_jobs.py --benchmark-only
    TOUCHSTONE_SPARK_SCALE=0.02 pytest cost_budgets/benchmarks/test_spark_jobs.py --benchmark-only

The graph has a million nodes and five million edges, times the scale; a small one measures how long Spark takes to
start a stage, and nothing else. The session is started before anything is timed. Seconds are reported, and nothing
fails for them. What a busy machine does not change is asserted: processor time, exchanged bytes and memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lance
import numpy as np
import pyarrow.parquet as pq
import pytest

from cost_budgets.benchmarks.conftest import ASSERTED_FROM, Ratios, alternating
from cost_budgets.benchmarks.memory import PEAK_BYTES_MAX, peak_memory
from cost_budgets.benchmarks.serial import serially
from reference.format.export_lines import export_lines, row_json
from reference.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE: Final = float(os.environ.get("TOUCHSTONE_SPARK_SCALE", "1"))
NODES, EDGES = int(1_000_000 * SCALE), int(5_000_000 * SCALE)
ROUNDS: Final = 3
CHANGED_TABLES: Final = ("node:Person", "edge:Knows")
# What tasks may exchange, in bytes: of an audit and an export for each row of the graph, of a diff for a changed one.
# An export of this graph has to exchange nothing: few fragments have ids in between each other's.
EXCHANGED_MAX: Final = {"audit": 32, "diff of 1%": 200, "export to jsonl": 1, "export to parquet": 1}


@dataclass(frozen=True)
class Big:
    """A generated graph, loaded, and the version that has every row as it was generated."""

    graph: Graph
    version: int

    def tables(self) -> dict[str, Any]:
        """Bare handles on all tables of that version."""
        root = self.graph.store.root.uri
        entries = self.graph.snapshot(version=self.version).entries
        return {key: lance.dataset(f"{root}/{each.path}", version=each.version) for key, each in entries.items()}


@pytest.fixture(scope="module")
def big(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Big:
    from reference.pipeline.generate import generate
    from reference.pipeline.load import pipeline_load

    source = tmp_path_factory.mktemp("spark") / "generated"
    generate(spark, str(source), nodes=NODES, edges=EDGES, seed=7)
    graph = Graph.init(str(source.parent / "graph"), (source / "schema.pg").read_text())
    pipeline_load(graph, str(source), mode="append", spark=spark)
    return Big(graph, graph.snapshot().version)


def scan(big: Big, *keys: str) -> int:
    tables = big.tables()
    return sum(tables[key].to_table().num_rows for key in keys or tables)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_export_against_a_bare_scan_to_the_same_format(
    spark: SparkSession, big: Big, tmp_path: Path, format: Any, benchmark: Any, ratios: Ratios
) -> None:
    from reference.pipeline.export import export
    from reference.pipeline.pinned import pin

    def ours(_: int) -> None:
        shutil.rmtree(tmp_path / "ours", ignore_errors=True)
        export(spark, big.graph, pin(big.graph, version=big.version), str(tmp_path / "ours"), format=format)

    with peak_memory() as peak:
        ours(0)
    assert 0 < peak[0] < PEAK_BYTES_MAX
    benchmark.extra_info["peak_bytes"] = peak[0]
    mine, theirs = alternating(ROUNDS, ours, lambda _: bare_export(big, tmp_path / "bare", format))
    told(benchmark, ratios, f"export to {format}", mine, theirs, budget=5, of=f"a bare scan to {format}")
    benchmark.pedantic(lambda: ours(0), rounds=1)


def bare_export(big: Big, target: Path, format: str) -> None:
    """One process, table after table, in the order in which the rows lie."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for key, handle in big.tables().items():
        write = write_lines if format == "jsonl" else write_parquet
        write(big, key, handle, target / key.replace(":", "-"))


def write_lines(big: Big, key: str, handle: Any, target: Path) -> None:
    owner = big.graph.catalog.type_of(key)
    with target.open("wb") as file:
        for batch in handle.scanner().to_batches():
            file.write(b"".join(export_lines(batch, owner)))


def write_parquet(_: Big, __: str, handle: Any, target: Path) -> None:
    with pq.ParquetWriter(target, handle.schema) as writer:
        for batch in handle.scanner().to_batches():
            writer.write_batch(batch)


def test_audit_against_a_full_scan(spark: SparkSession, big: Big, benchmark: Any, ratios: Ratios) -> None:
    from reference.pipeline.audit import audit

    report = audit(spark, big.graph.store.root.uri)
    assert report.ok and report.checked["rows"] == scan(big) == NODES + EDGES
    mine, theirs = alternating(ROUNDS, lambda _: audit(spark, big.graph.store.root.uri), lambda _: scan(big))
    told(benchmark, ratios, "audit", mine, theirs, budget=10, of="a full scan")
    benchmark.pedantic(lambda: audit(spark, big.graph.store.root.uri), rounds=1)


def test_diff_of_one_percent_against_a_scan_of_the_changed_tables(
    spark: SparkSession, big: Big, benchmark: Any, ratios: Ratios
) -> None:
    from reference.pipeline.diff import diff

    older = big.graph.snapshot(version=big.version)
    expected = change_one_percent(big)
    newer = big.graph.snapshot()

    def ours(_: int) -> Any:
        return diff(spark, big.graph, older, newer)

    assert ours(0).to_json()["stats"] == {**expected, "types_affected": ["Knows", "Person"]}
    mine, theirs = alternating(ROUNDS, ours, lambda _: scan(big, *CHANGED_TABLES))
    told(benchmark, ratios, "diff of 1%", mine, theirs, budget=3, of="a scan of the changed tables")
    benchmark.pedantic(lambda: ours(0), rounds=1)


def change_one_percent(big: Big) -> dict[str, int]:
    """Upsert every hundredth row of two tables with another value: the changes lie all over their fragments."""
    records = []
    for key, name in zip(CHANGED_TABLES, ("score", "weight"), strict=True):
        rows = big.tables()[key].to_table()
        for row in row_json(rows.take(np.arange(0, rows.num_rows, 100))):
            row[name] = 2_000.0
            ends = {"from": row.pop("src"), "to": row.pop("dst")} if key.startswith("edge:") else {}
            records.append({key.partition(":")[0].replace("node", "type"): key.partition(":")[2], **ends, "data": row})
    big.graph.load("\n".join(map(json.dumps, records)), mode="merge")
    return {"inserts": 0, "updates": len(records), "deletes": 0}


def test_what_the_tasks_of_each_job_take(big: Big, tmp_path: Path, benchmark: Any, ratios: Ratios) -> None:
    """Processor time against that of the bare scan, which no busy machine disturbs, and what is exchanged and read."""
    from reference.pipeline import audit, diff, export
    from reference.pipeline.pinned import pin

    nobody: Any = None
    graph, then = big.graph, big.graph.snapshot(version=big.version)
    now = graph.snapshot()
    if now.version == then.version:
        change_one_percent(big)
        now = graph.snapshot()
    pinned = pin(graph, version=big.version)
    jobs: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {
        "audit": (lambda: audit.audit(nobody, graph.store.root.uri), lambda: scan(big), 10),
        "diff of 1%": (lambda: diff.diff(nobody, graph, then, now), lambda: scan(big, *CHANGED_TABLES), 3),
    }
    for format in export.FORMATS:
        jobs[f"export to {format}"] = (
            partial(export.export, nobody, graph, pinned, str(tmp_path / format), format=format),
            partial(bare_export, big, tmp_path / f"bare-{format}", format),
            5,
        )
    for name, (ours, bare, budget) in jobs.items():
        with serially() as least:
            bare()
        with serially(audit, diff, export) as spent:
            ours()
        ratio = spent.processor_seconds / least.processor_seconds
        ratios.add(f"processor time of {name}", ratio, budget=budget, of="that of the bare scan")
        benchmark.extra_info[name] = {**vars(spent), "bare": vars(least), "ratio": round(ratio, 2)}
    print(json.dumps(benchmark.extra_info, indent=1))
    benchmark.pedantic(lambda: scan(big), rounds=1)
    for name, (_, _, budget) in jobs.items():
        found = benchmark.extra_info[name]
        rows = (NODES + EDGES) // (100 if name.startswith("diff") else 1)
        assert found["exchanged_bytes"] <= EXCHANGED_MAX[name] * rows, name
        assert SCALE < ASSERTED_FROM or found["ratio"] <= budget, name


def told(benchmark: Any, ratios: Ratios, name: str, mine: float, theirs: float, *, budget: float, of: str) -> None:
    """Report a ratio, and the seconds it is made of."""
    ratios.add(f"{name} of {NODES} nodes and {EDGES} edges", mine / theirs, budget=budget, of=of)
    benchmark.extra_info |= {
        "ratio": round(mine / theirs, 2),
        "seconds": round(mine, 2),
        "of_seconds": round(theirs, 2),
    }
