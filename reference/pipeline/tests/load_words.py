"""What the tests of a load have in common: a schema, records, and how to look at what came of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.audit import audit
from reference.graph import Graph
from reference.pipeline.load import LoadReport, pipeline_load

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  email: String? @unique  @range(age, 0..150) }
node Place { title: String  spot: Vector(2)?  tags: [String]? }
edge Knows: Person -> Person { weight: F64? }
edge Visits: Person -> Place @card(0..2)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(str(tmp_path / "graph"), SCHEMA)


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def written(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    return str(path)


def rows(graph: Graph, table_key: str = "node:Person", branch: str | None = None) -> list[str]:
    return [row["id"] for row in graph.read(table_key, graph.snapshot(branch))]


def data_files(graph: Graph) -> set[str]:
    """The data files of all tables on disk."""
    root = Path(graph.store.root.path)
    found = {str(path.relative_to(root)) for path in root.rglob("*.lance") if path.parent.name == "data"}
    return {name for name in found if not name.startswith("__manifest/")}


def referenced_files(graph: Graph) -> set[str]:
    """The data files that any version of a table of main refers to."""
    found = set()
    for entry in graph.snapshot().entries.values():
        for version in range(1, entry.version + 1):
            for fragment in graph.store.tables.open(entry.path, None, version).get_fragments():
                found |= {f"{entry.path}/data/{file.path}" for file in fragment.metadata.files}
    return found


def assert_sound(graph: Graph) -> None:
    report = audit(graph.store.root.uri)
    assert report.findings == (), report.findings


def quarantined(tmp_path: Path) -> list[dict[str, Any]]:
    files = list((tmp_path / "kept").iterdir())
    assert len(files) == 1, files
    return [json.loads(line) for line in files[0].read_text().splitlines()]


def loaded(graph: Graph, source: str, session: Any, tmp_path: Path, **options: Any) -> LoadReport:
    kept = str(tmp_path / "kept")
    return pipeline_load(graph, source, mode="append", spark=session, quarantine=kept, **options)
