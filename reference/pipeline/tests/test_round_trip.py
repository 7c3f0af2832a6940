"""What an export to Parquet writes, a load takes: into another graph, which then has the same export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reference.graph import Graph
from reference.pipeline import generate
from reference.pipeline.export import export
from reference.pipeline.load import pipeline_load
from reference.pipeline.pinned import pin
from reference.pipeline.tests.in_process import in_process
from reference.pipeline.tests.no_spark import run_tasks

__all__ = ["in_process"]


def loaded_again(graph: Graph, session: Any, nobody: Any, place: Path) -> Graph:
    export(nobody, graph, pin(graph), str(place / "parquet"), format="parquet", part_rows=25)
    again = Graph.init(str(place / "again"), (place / "parquet" / "schema.pg").read_text())
    pipeline_load(again, str(place / "parquet"), mode="append", spark=session)
    return again


def test_a_generated_graph_comes_back(
    in_process: Any, nobody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "run_tasks", run_tasks)
    generate.generate(nobody, str(tmp_path / "made"), nodes=100, edges=200, seed=7)
    graph = Graph.init(str(tmp_path / "graph"), (tmp_path / "made" / "schema.pg").read_text())
    pipeline_load(graph, str(tmp_path / "made"), mode="append", spark=in_process)
    again = loaded_again(graph, in_process, nobody, tmp_path)
    assert list(again.export()) == list(graph.export())


def test_a_graph_without_rows_comes_back(in_process: Any, nobody: Any, tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), "node Thing {\n  name: String @key\n}\n")
    assert list(loaded_again(graph, in_process, nobody, tmp_path).export()) == []
