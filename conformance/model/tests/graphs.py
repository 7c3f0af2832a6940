"""Small graphs in the model, for its own tests. The schema is written as its IR, as an engine stores it."""

from __future__ import annotations

import json
from typing import Any

from conformance.model import Model


def prop(name: str, scalar: Any = "String", *, nullable: bool = True, **more: Any) -> dict[str, Any]:
    kind = {"scalar": scalar, "nullable": nullable, "list": False, "enum_values": None, **more}
    return {"name": name, "prop_type": kind, "annotations": []}


def node(name: str, *properties: dict[str, Any], constraints: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"name": name, "properties": list(properties), "constraints": list(constraints)}


def edge(
    name: str,
    source: str,
    target: str,
    *properties: dict[str, Any],
    low: int = 0,
    high: int | None = None,
    constraints: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    ends = {"from_type": source, "to_type": target, "cardinality": {"min": low, "max": high}}
    return {**node(name, *properties, constraints=constraints), **ends}


def ir(*types: dict[str, Any]) -> dict[str, Any]:
    nodes = [each for each in types if "from_type" not in each]
    return {"ir_version": 1, "interfaces": [], "nodes": nodes, "edges": [each for each in types if each not in nodes]}


PERSON = node("Person", prop("name", nullable=False), prop("age", "I32"), constraints=({"Key": ["name"]},))
PEOPLE = ir(PERSON, node("Place", prop("title", nullable=False)), edge("Knows", "Person", "Person"))


def people() -> Model:
    """Alice, Bob, Carol and Dan, of 30 to 33 years; Bob knows Carol."""
    model = Model(PEOPLE)
    persons = [person(name, age) for age, name in enumerate(["Alice", "Bob", "Carol", "Dan"], start=30)]
    load(model, *persons, knows("Bob", "Carol", id="bc"))
    return model


def person(name: str, age: int | None = None) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def load(model: Model, *records: dict[str, Any], mode: Any = "merge", branch: str = "main") -> None:
    model.load("\n".join(json.dumps(record) for record in records), mode=mode, branch=branch)


def insert(record: dict[str, Any]) -> dict[str, Any]:
    return {"op": "insert", **record}


def is_(name: str, value: Any, op: str = "eq") -> dict[str, Any]:
    return {"property": name, "op": op, "value": value}


def ids(model: Model, table_key: str, branch: str = "main") -> list[str]:
    return sorted(model.state(branch)[table_key])
