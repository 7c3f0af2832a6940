"""Which rows of two states of a table differ: by typed value, whatever rewrote them [MRG-13]."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.graph import Graph
from reference.operations.merge_rows import delta_between
from reference.operations.tests.people import add_person, new_graph

VALUES = """
node Thing {
    name: String @key
    text: String?  list: [String]?  vector: Vector(2)?  real: F64?  _rowdy: I64?  blob: Blob?
}
"""


def blob(content: bytes) -> str:
    return "base64:" + base64.b64encode(content).decode()


@pytest.mark.requirement("MRG-13", "CHG-02")
@pytest.mark.parametrize(
    ("column", "one", "other"),
    [
        ("text", None, ""),
        ("text", "a\x1fb", "a"),
        ("list", ["a", "b"], ["a, b"]),
        ("list", [], None),
        ("list", ["a", None], ["a"]),
        ("vector", [1.0, 2.0], [1.0, 3.0]),
        ("vector", None, [0.0, 0.0]),
        ("real", 0.0, -0.0),
        ("_rowdy", 1, 2),
        ("_rowdy", 2**53, 2**53 + 1),
        ("blob", blob(b"abc"), blob(b"abd")),
        ("blob", None, blob(b"")),
    ],
)
def test_values_that_differ_only_a_little_are_different(tmp_path: Path, column: str, one: Any, other: Any) -> None:
    graph = Graph.init(str(tmp_path / "graph"), VALUES)

    def put(branch: str, value: Any) -> None:
        record = {"type": "Thing", "data": {"name": "x", column: value}}
        graph.load(json.dumps(record), mode="merge", branch=branch)

    put("main", one)
    for branch in ("left", "right"):
        graph.branch_create(branch)
        put(branch, one)
    put("right", other)
    base, left, right = (graph.snapshot(name).entry("node:Thing") for name in ("main", "left", "right"))
    assert not delta_between(graph.store, base, left), "an equal row was taken for a changed one"
    assert delta_between(graph.store, left, right).updated == {"x"}, "siblings"
    assert delta_between(graph.store, base, right).updated == {"x"}, "one history"

    assert graph.merge("right", "main").outcome == "fast_forward"
    assert graph.merge("left", "main").outcome == "merged"
    (row,) = graph.read("node:Thing", graph.snapshot("main"))
    assert repr(row[column]) == repr(graph.read("node:Thing", graph.snapshot("right"))[0][column])
    assert row[column] is not None or other is None


@pytest.mark.requirement("MRG-13", "EXP-06")
def test_an_empty_blob_is_not_null_on_a_branch_that_inherited_it(tmp_path: Path) -> None:
    graph = Graph.init(str(tmp_path / "graph"), VALUES)
    graph.load(json.dumps({"type": "Thing", "data": {"name": "x", "blob": blob(b"")}}), mode="merge")
    graph.branch_create("feature")
    graph.load(json.dumps({"type": "Thing", "data": {"name": "y"}}), mode="merge", branch="feature")
    rows = {row["name"]: row["blob"] for row in graph.read("node:Thing", graph.snapshot("feature"))}
    assert rows == {"x": blob(b""), "y": None}


@pytest.mark.requirement("MRG-13")
def test_an_external_blob_stays_a_reference(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"content")
    graph = Graph.init(str(tmp_path / "graph"), VALUES)
    graph.branch_create("feature")
    record = {"type": "Thing", "data": {"name": "x", "blob": outside.as_uri()}}
    graph.load(json.dumps(record), mode="merge", branch="feature")
    graph.merge("feature", "main")
    assert graph.read("node:Thing", graph.snapshot("main"))[0]["blob"] == outside.as_uri()


@pytest.mark.requirement("MRG-13", "IDX-01")
def test_a_compaction_is_no_change_of_rows(tmp_path: Path) -> None:
    graph = new_graph(tmp_path)
    for name in ("Eve", "Finn"):
        add_person(graph, "main", name, 1)
    base = graph.snapshot("main").entry("node:Person")
    handle = graph.store.tables.open_latest(base.path, None)
    graph.store.tables.compact(handle)
    compacted = replace(base, version=handle.version)
    assert compacted.version > base.version
    assert not delta_between(graph.store, base, compacted)
