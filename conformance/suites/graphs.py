"""Schemas and records that the suites share: a small society, and one property of every type."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import lance

from conformance.judge import JudgedGraph
from fixtures import golden
from fixtures.forge import Forge

SOCIAL: Final = """
node Person {
  name: String @key
  age: I32?
  email: String? @unique
}
node Company {
  name: String @key
}
edge Knows: Person -> Person {
  since: I32?
}
edge WorksAt: Person -> Company @card(0..2)
"""

# One property and one type more.
EVOLVED: Final = f"""{SOCIAL.replace("age: I32?", "age: I32?" + chr(10) + "  city: String?")}node Place {{
  code: String @key
}}
"""

EVERYTHING: Final = """
node Thing {
  name: String @key
  text: String?
  flag: Bool?
  small: I32?
  large: I64?
  natural: U32?
  huge: U64?
  single: F32?
  double: F64?
  day: Date?
  moment: DateTime?
  mood: enum(calm, busy)?
  tags: [String]?
  numbers: [I32]?
  face: Vector(3)?
  photo: Blob?
}
edge Linked: Thing -> Thing
"""


def node(type_name: str, /, **data: Any) -> dict[str, Any]:
    """A record of a node."""
    return {"type": type_name, "data": data}


def edge(type_name: str, source: str, target: str, /, **data: Any) -> dict[str, Any]:
    """A record of an edge."""
    return {"edge": type_name, "from": source, "to": target, "data": data}


def person(name: str, /, **data: Any) -> dict[str, Any]:
    return node("Person", name=name, **data)


def lines(*records: Mapping[str, Any]) -> str:
    """Records as JSON lines."""
    return "".join(f"{json.dumps(record)}\n" for record in records)


NOTES: Final = """
node Note {
  name: String @key
  x: I32?
}
"""


def note(name: str, x: int) -> dict[str, Any]:
    return node("Note", name=name, x=x)


PEOPLE: Final = (
    person("ann", age=30, email="ann@x"),
    person("bob", age=31),
    person("cat"),
    node("Company", name="acme"),
    edge("Knows", "ann", "bob", id="k1", since=2020),
    edge("Knows", "bob", "cat", id="k2"),
    edge("WorksAt", "ann", "acme", id="w1"),
)


def data_commits(forge: Forge, table_key: str, since: int, branch: str | None = None) -> int:
    """How many commits have changed the rows of a table since a version. Building an index is none [IDX-08]."""
    table = forge.table(table_key, branch)
    found = [table.read_transaction(version) for version in range(since + 1, int(table.version) + 1)]
    kinds = [None if each is None else each.operation for each in found]
    return sum(not isinstance(kind, lance.LanceOperation.CreateIndex) for kind in kinds)


# -- statements of mutations -------------------------------------------------------------------------------------------


def insert(type_name: str, /, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "type": type_name, "data": data}


def insert_edge(type_name: str, source: str, target: str, /, **data: Any) -> dict[str, Any]:
    return {"op": "insert", "edge": type_name, "from": source, "to": target, "data": data}


def as_statement(record: Mapping[str, Any]) -> dict[str, Any]:
    """The insert that means the same as a record of a load."""
    return {"op": "insert", **record}


def where(name: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return {"property": name, "op": op, "value": value}


def update(type_name: str, predicate: Mapping[str, Any], /, **values: Any) -> dict[str, Any]:
    return {"op": "update", "type": type_name, "where": dict(predicate), "set": values}


def delete(type_name: str, predicate: Mapping[str, Any], /) -> dict[str, Any]:
    return {"op": "delete", "type": type_name, "where": dict(predicate)}


def delete_edge(type_name: str, predicate: Mapping[str, Any], /) -> dict[str, Any]:
    return {"op": "delete", "edge": type_name, "where": dict(predicate)}


# -- graphs of the public engine ---------------------------------------------------------------------------------------


def place_golden(name: str, forge: Forge) -> None:
    """Put a golden graph where nothing is yet, as one that was moved there; its sidecars name the new place."""
    with tempfile.TemporaryDirectory() as scratch:
        graph = golden.unpack(name, Path(scratch))
        for path in (path for path in sorted(graph.rglob("*")) if path.is_file()):
            forge.write(path.relative_to(graph).as_posix(), path.read_bytes())
    for sidecar in forge.sidecars():
        forge.edit_json(sidecar, lambda body: _moved(body, f"s3://{golden.BUCKET}/{name}", forge.uri))


def _moved(body: dict[str, Any], old: str, new: str) -> None:
    for table in body["tables"]:
        table["table_path"] = table["table_path"].replace(old, new)


def set_note(name: str, x: int) -> dict[str, Any]:
    return update("Note", where("name", name), x=x)


# -- commits -----------------------------------------------------------------------------------------------------------


def id_of(commit: Mapping[str, Any]) -> str:
    return str(commit["graph_commit_id"])


def head_of(graph: JudgedGraph, branch: str = "main") -> dict[str, Any]:
    """The last commit of a branch, as the engine tells it."""
    return graph.handle.commits(branch)[-1]
