"""Benchmarks of the reference engine against bare pylance doing the part that cannot be saved.

    pytest cost_budgets/benchmarks --benchmark-only

Nothing here fails for being slow: ratios and budgets are printed, requests are counted in `cost_budgets/tests`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.lance import _Session as Session
from pytest_benchmark.fixture import BenchmarkFixture

from cost_budgets.benchmarks.bulk import SCHEMA
from cost_budgets.benchmarks.conftest import Ratios, alternating
from reference.graph import Graph


def insert(graph: Graph, name: str) -> None:
    graph.mutate([{"op": "insert", "type": "Person", "data": {"name": name, "age": 7}}])


def timed(benchmark: Any, action: Callable[[], object], *, rounds: int) -> None:
    """Let pytest-benchmark time an action, for its table and its history."""
    benchmark.pedantic(action, rounds=rounds)


def bare_table(path: Path, schema: pa.Schema) -> Any:
    return lance.write_dataset(schema.empty_table(), str(path), enable_stable_row_ids=True, session=Session())


def bare_insert(table: Any, name: str) -> None:
    row = {**dict.fromkeys(table.schema.names), "id": name, "name": name, "age": 7}
    rows = pa.Table.from_pylist([row], schema=table.schema)
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def test_a_warm_insert_against_one_bare_keyed_merge(
    tmp_path: Path, benchmark: BenchmarkFixture, ratios: Ratios
) -> None:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    table = bare_table(tmp_path / "bare", graph.catalog.arrow_schema("node:Person"))
    for number in range(5):
        insert(graph, f"warm{number}")
        bare_insert(table, f"warm{number}")
    ours, bare = alternating(30, lambda n: insert(graph, f"p{n}"), lambda n: bare_insert(table, f"p{n}"))
    ratios.add("warm one-row insert", ours / bare, budget=5, of="a bare keyed merge_insert")
    names = iter(range(10**9))
    timed(benchmark, lambda: insert(graph, f"q{next(names)}"), rounds=10)


def test_an_insert_at_a_thousand_commits_against_one_at_ten(
    tmp_path: Path, benchmark: BenchmarkFixture, ratios: Ratios
) -> None:
    graphs = []
    for depth in (10, 1000):
        graph = Graph.init(str(tmp_path / f"depth{depth}"), SCHEMA)
        for number in range(depth):
            insert(graph, f"p{number}")
        graph.optimize()
        graphs.append(graph)
    shallow, deep = graphs
    young, old = alternating(8, lambda n: insert(shallow, f"q{n}"), lambda n: insert(deep, f"q{n}"))
    ratios.add("insert at 1,000 commits, optimized", old / young, budget=1.3, of="an insert at 10 commits")
    names = iter(range(10**9))
    timed(benchmark, lambda: insert(deep, f"r{next(names)}"), rounds=5)


def test_a_warm_read_against_a_bare_scan(tmp_path: Path, benchmark: BenchmarkFixture, ratios: Ratios) -> None:
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    lines = (json.dumps({"type": "Person", "data": {"name": f"p{n:06}", "age": n % 90}}) for n in range(200_000))
    graph.load("\n".join(lines), mode="append")
    entry = graph.snapshot().entries["node:Person"]
    table = lance.dataset(str(tmp_path / "graph" / entry.path), session=Session())
    table.to_table()
    graph.table("node:Person")
    ours, bare = alternating(20, lambda _: graph.table("node:Person"), lambda _: table.to_table())
    ratios.add("warm read of a table of 200,000 rows", ours / bare, budget=1.3, of="a bare to_table")
    timed(benchmark, lambda: graph.table("node:Person"), rounds=10)


@pytest.fixture(scope="module")
def million_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600,000 people and 400,000 edges between them, one JSON record a line."""
    path = tmp_path_factory.mktemp("records") / "million.jsonl"
    with path.open("w") as file:
        for n in range(600_000):
            data = {"name": f"person-{n}", "age": n % 90, "score": n / 7, "joined": f"20{n % 25:02}-0{n % 9 + 1}-11"}
            file.write(json.dumps({"type": "Person", "data": {**data, "active": n % 3 == 0}}) + "\n")
        for n in range(400_000):
            ends = {"from": f"person-{n}", "to": f"person-{(n * 7919) % 600_000}"}
            file.write(json.dumps({"edge": "Knows", **ends, "data": {"since": "2020-02-02"}}) + "\n")
    return path


def test_a_load_of_a_million_records_against_reading_and_writing_them(
    tmp_path: Path, million_records: Path, benchmark: BenchmarkFixture, ratios: Ratios
) -> None:
    ours = _in_a_process("load", million_records, tmp_path / "graph")
    bare = _in_a_process("bare", million_records, tmp_path / "bare")
    ratios.add(
        "load of 1,000,000 records", ours["seconds"] / bare["seconds"], budget=6, of="read_json and a bare write"
    )
    ratios.add("peak memory of that load", ours["gibibytes"], budget=2, of="1 GiB")
    target = iter(range(10**9))
    timed(benchmark, lambda: _in_a_process("load", million_records, tmp_path / f"again{next(target)}"), rounds=1)


def _in_a_process(what: str, records: Path, target: Path) -> dict[str, float]:
    """Run one side in a process of its own, whose peak memory is then its own too."""
    command = [sys.executable, "-m", "cost_budgets.benchmarks.bulk", what, str(records), str(target)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found
