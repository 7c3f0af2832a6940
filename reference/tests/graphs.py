"""Small graphs for the tests of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures.stores import EmptyRoot
from reference.graph import Graph

PEOPLE = """
node Person {
  name: String @key
  age: I32?
}
node City {
  name: String @key
}
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""


def new_graph(root: EmptyRoot | Path, schema: str = PEOPLE) -> Graph:
    """An empty graph on a store or in a directory."""
    if isinstance(root, Path):
        return Graph.init(str(root), schema)
    return Graph.init(root.uri, schema, env=root.env)


def reopened(graph: Graph, *, read_only: bool = False) -> Graph:
    """A second handle on the same graph, opened as a new process would."""
    return Graph.open(graph.store.root.uri, read_only=read_only, env=graph.store.env)


def person(name: str, age: int | None = None) -> dict[str, Any]:
    return {"op": "insert", "type": "Person", "data": {"name": name, "age": age}}


def city(name: str) -> dict[str, Any]:
    return {"op": "insert", "type": "City", "data": {"name": name}}


def knows(source: str, target: str) -> dict[str, Any]:
    return {"op": "insert", "edge": "Knows", "from": source, "to": target}


def names(graph: Graph, table_key: str = "node:Person", branch: str | None = None) -> list[str]:
    """The ids of a table, in order."""
    return [row["id"] for row in graph.read(table_key, graph.snapshot(branch))]


def state_of(graph: Graph, branch: str | None = None) -> bytes:
    """All rows of a branch, as its export: two graphs with the same rows have the same one."""
    return b"".join(graph.export(branch))
