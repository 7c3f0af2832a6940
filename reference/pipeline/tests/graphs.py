"""Graphs for the tests of jobs: one with every kind of value, and generated ones, loaded by the engine itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reference.format.export_lines import json_values
from reference.graph import Graph

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  seen: DateTime?
  born: Date?
  face: Vector(2)?
  words: [String]?
  times: [DateTime]?
  photo: Blob?
  size: F32?
  count: U64?
}
node Note {
  text: String
}
edge Knows: Person -> Person {
  weight: F64?
}
edge Wrote: Person -> Note
"""
PHOTOS = (None, "base64:", "base64:aGFsbG8=", "s3://bucket/photo.jpg")


def person(number: int, **changes: Any) -> dict[str, Any]:
    data = {
        "name": f"p{number * 7919 % 1_000:03}" if number % 2 else f"Ü{number}",
        "age": number if number % 3 else None,
        "seen": "2026-01-02T03:04:05.678",
        "born": "1999-12-31",
        "face": [number, 0.1] if number % 2 else None,
        "words": ["a", None, ""] if number % 5 else [],
        "times": ["2026-01-02T03:04:05.678", None],
        "photo": PHOTOS[number % 4],
        "size": 0.1 * number,
        "count": 2**64 - 1 - number,
    }
    return {"type": "Person", "data": {**data, **changes}}


def knows(number: int, source: int, target: int) -> dict[str, Any]:
    names = [person(each)["data"]["name"] for each in (source, target)]
    return {"edge": "Knows", "from": names[0], "to": names[1], "data": {"id": f"k{number}", "weight": number / 7}}


def text(records: Iterable[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, records))


def rich_graph(path: Path, people: int = 60) -> Graph:
    """A graph of several fragments, with every kind of value, and with rows that were deleted again."""
    graph = Graph.init(str(path), SCHEMA)
    for start in range(0, people, 20):
        graph.load(text(person(number) for number in range(start, min(start + 20, people))), mode="append")
    graph.load(text(knows(n, n % people, n * 7 % people) for n in range(3 * people)), mode="append")
    notes = [{"type": "Note", "data": {"id": f"n{number}", "text": f"note {number}\u2028"}} for number in range(5)]
    graph.load(text(notes), mode="append")
    graph.mutate([{"op": "delete", "type": "Note", "where": {"property": "id", "op": "eq", "value": "n3"}}])
    return graph


def load_generated(source: Path, path: Path) -> Graph:
    """A generated graph, loaded as JSON records."""
    graph = Graph.init(str(path), (source / "schema.pg").read_text())
    graph.load(text([*_records(source, "nodes"), *_records(source, "edges")]), mode="append")
    return graph


def _records(source: Path, kind: str) -> Iterator[dict[str, Any]]:
    for folder in sorted((source / kind).iterdir()):
        for file in sorted(folder.iterdir()):
            rows = pq.read_table(file).combine_chunks()
            names = rows.column_names
            columns = [json_values(_plain(rows[name].combine_chunks()), name) for name in names]
            for row in zip(*columns, strict=True):
                values = dict(zip(names, row, strict=True))
                if kind == "nodes":
                    yield {"type": folder.name, "data": values}
                else:
                    ends = {"from": values.pop("from"), "to": values.pop("to")}
                    yield {"edge": folder.name, **ends, "data": values}


def _plain(array: pa.Array) -> pa.Array:
    return array.view(pa.date64()) if pa.types.is_timestamp(array.type) else array
