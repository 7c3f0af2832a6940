"""Blobs that an export to Parquet writes, as structs of `data` and `uri`, are loaded again as what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference.pipeline.tests.graphs import rich_graph
from reference.pipeline.tests.in_process import in_process
from reference.pipeline.tests.test_round_trip import loaded_again

__all__ = ["in_process"]


def test_blobs_come_back(in_process: Any, nobody: Any, tmp_path: Path) -> None:
    """Contents, empty ones, references and nulls."""
    graph = rich_graph(tmp_path / "graph", people=40)
    again = loaded_again(graph, in_process, nobody, tmp_path)
    assert list(again.export()) == list(graph.export())
