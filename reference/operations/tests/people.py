"""A small graph of people for the tests of branches, merges and diffs: who is there, and what can happen to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reference.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Place { title: String }
edge Knows: Person -> Person
"""


def new_graph(tmp_path: Path) -> Graph:
    """Alice, Bob, Carol and Dan; Bob knows Carol."""
    graph = Graph.init(str(tmp_path / "graph"), SCHEMA)
    people = [person(name, age) for age, name in enumerate(["Alice", "Bob", "Carol", "Dan"], start=30)]
    graph.load("\n".join([*people, knows("Bob", "Carol")]), mode="merge")
    return graph


def person(name: str, age: int | None = None) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, "age": age}})


def knows(source: str, target: str, **data: Any) -> str:
    return json.dumps({"edge": "Knows", "from": source, "to": target, "data": data})


def named(name: str) -> dict[str, Any]:
    return {"property": "name", "op": "eq", "value": name}


def add_person(graph: Graph, branch: str, name: str, age: int | None = None) -> None:
    graph.mutate([{"op": "insert", "type": "Person", "data": {"name": name, "age": age}}], branch=branch)


def set_age(graph: Graph, branch: str, name: str, age: int | None) -> None:
    graph.mutate([{"op": "update", "type": "Person", "where": named(name), "set": {"age": age}}], branch=branch)


def remove_person(graph: Graph, branch: str, name: str) -> None:
    graph.mutate([{"op": "delete", "type": "Person", "where": named(name)}], branch=branch)


def add_edge(graph: Graph, branch: str, source: str, target: str) -> None:
    graph.mutate([{"op": "insert", "edge": "Knows", "from": source, "to": target, "data": {}}], branch=branch)


def remove_edges_of(graph: Graph, branch: str, source: str) -> None:
    where = {"property": "from", "op": "eq", "value": source}
    graph.mutate([{"op": "delete", "edge": "Knows", "where": where}], branch=branch)


def add_place(graph: Graph, branch: str, title: str, place_id: str) -> None:
    graph.load(json.dumps({"type": "Place", "data": {"id": place_id, "title": title}}), mode="merge", branch=branch)


def ages(graph: Graph, branch: str = "main") -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in graph.read("node:Person", graph.snapshot(branch))}


def friendships(graph: Graph, branch: str = "main") -> list[tuple[str, str]]:
    return sorted((row["src"], row["dst"]) for row in graph.read("edge:Knows", graph.snapshot(branch)))


def places(graph: Graph, branch: str = "main") -> set[str]:
    return {row["title"] for row in graph.read("node:Place", graph.snapshot(branch))}
