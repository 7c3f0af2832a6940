"""Trends of many runs: what flipped and when, what an operation cost when, and records that are none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cost_budgets.benching import BenchRun, Ratio, save
from reference.errors import BadRequest, NotFound
from reference.pipeline.history import history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def report(at: str, *, engine: str = "Granite", version: str = "1.0", **outcomes: str) -> dict[str, Any]:
    """A report, as far as trends look at it: the outcome of each requirement on one store."""
    return {
        "format": 1,
        "engine": {"spec": "cmd:./driver", "name": engine, "version": version},
        "run": {"started_at": at},
        "requirements": [
            {"id": name.replace("_", "-"), "stores": {"local": {"outcome": outcome, "tests": []}}}
            for name, outcome in outcomes.items()
        ],
    }


def cost(requests: int, history_length: int = 31) -> dict[str, Any]:
    points = [(6, 1), (history_length, requests)]
    measured = [
        {
            "operation": "insert-node",
            "ground": "grown",
            "variables": {"T": 1, "H": depth, "B": 0, "R": 1, "F": 5},
            "requests": count,
            "bytes_read": 10 * count,
            "bytes_written": 2 * count,
        }
        for depth, count in points
    ]
    return {"format": 1, "engine": "Granite", "store": "moto", "measurements": measured}


def put(path: Path, body: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


def test_runs_become_trends_whatever_else_lies_there(spark: SparkSession, tmp_path: Path) -> None:
    records = tmp_path / "records"
    nights = {
        "2026-01-01T00:00:00Z": {"PUB_01": "passed", "PUB_02": "failed", "PUB_03": "skipped"},
        "2026-01-02T00:00:00Z": {"PUB_01": "failed", "PUB_02": "known_failing", "PUB_03": "skipped"},
        "2026-01-03T00:00:00Z": {"PUB_01": "skipped", "PUB_02": "passed"},
        "2026-01-04T02:00:00Z": {"PUB_01": "passed", "PUB_02": "passed"},
    }
    for number, (at, outcomes) in enumerate(nights.items()):
        put(records / str(number) / "report.json", report(at, version=f"1.{number}", **outcomes))
    put(records / "other" / "report.json", report("2026-01-02T00:00:00Z", engine="Basalt", PUB_01="failed"))
    for day, requests in ((1, 20), (2, 30)):
        file = put(records / f"cost{day}" / "cost.json", cost(requests))
        os.utime(file, (day * 86_400, day * 86_400))
    for at, ratio in (("2026-01-01T00:00:00+00:00", 4.0), ("2026-01-02T00:00:00+00:00", 5.0)):
        bench = BenchRun("Granite 1.0", "local", 3, at, {}, (Ratio("insert one row", ratio, 0.1),))
        save(records / "benchmarks.jsonl", bench)
    put(records / "0" / "traces" / "trace.json", {"no": "record"})
    put(records / "cut" / "report.json", '{"format": 1, "requirements": [')
    put(records / "odd" / "report.json", {"format": 1, "requirements": [{"id": "PUB-01"}], "run": {}, "engine": {}})
    put(records / "new" / "cost.json", {**cost(1), "format": 2})
    put(records / "list" / "cost.json", [])
    (records / "bytes").mkdir()
    (records / "bytes" / "report.json").write_bytes(b"\xff\xfe")

    found = history(spark, [str(records)], str(tmp_path / "trends"))

    trends = {(row["engine"], row["requirement"]): row for row in found.requirements.to_pylist()}
    assert {key: row["flips"] for key, row in trends.items()} == {
        ("Granite", "PUB-01"): 2,
        ("Granite", "PUB-02"): 1,
        ("Granite", "PUB-03"): 0,
        ("Basalt", "PUB-01"): 0,
    }
    first = trends["Granite", "PUB-01"]
    assert [f"{first[name]:%m-%d %H}" for name in ("first_seen", "last_pass", "last_fail", "last_seen")] == [
        "01-01 00",
        "01-04 02",
        "01-02 00",
        "01-04 02",
    ]
    assert (first["latest"], first["latest_version"], first["runs"]) == ("passed", "1.3", 4)
    assert trends["Granite", "PUB-03"]["last_pass"] is None
    costs = [
        (row["operation"], row["measure"], row["value"], row["value_before"], row["is_latest"])
        for row in found.operations.to_pylist()
        if row["measure"] != "bytes_read" and row["measure"] != "bytes_written"
    ]
    assert costs == [
        ("insert one row", "times bare Lance", 4.0, None, False),
        ("insert one row", "times bare Lance", 5.0, 4.0, True),
        ("insert-node (grown)", "requests", 20.0, None, False),
        ("insert-node (grown)", "requests", 30.0, 20.0, True),
    ]
    assert found.records == 9
    assert sorted(Path(each.file).parent.name for each in found.malformed) == ["bytes", "cut", "list", "new", "odd"]
    assert all(each.reason for each in found.malformed)
    assert pq.read_table(tmp_path / "trends" / "requirements.parquet").equals(found.requirements)
    assert pq.read_table(tmp_path / "trends" / "operations.parquet").num_rows == found.operations.num_rows
    json.dumps(found.to_json())


def test_a_bad_line_of_benchmarks_is_named_by_its_number(spark: SparkSession, tmp_path: Path) -> None:
    good = {"format": 1, "engine": "Granite 1", "store": "local", "at": "2026-01-01T00:00:00Z", "ratios": []}
    file = put(tmp_path / "mine.jsonl", f"{json.dumps(good)}\nnonsense\n")
    found = history(spark, [str(tmp_path / "*.jsonl")])
    assert found.records == 1 and found.operations.num_rows == 0
    assert [each.file for each in found.malformed] == [f"{file}:2"]


def test_where_there_is_nothing_to_read_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        history(spark, [str(tmp_path)])
    with pytest.raises(BadRequest):
        history(spark, [])
