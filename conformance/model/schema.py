"""What a schema means to the rows: types, properties and rules, read from the IR that `schema_text` or an engine made.

The IR has everything spelled out and sorted [SCH-14], so this is a plain reading of it, and it is not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from conformance.model.patterns import compile_pattern


@dataclass(frozen=True)
class Property:
    """A declared column. An enum is a String with a closed set of values; only a Vector has dimensions."""

    name: str
    scalar: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimensions: int | None = None


@dataclass(frozen=True)
class Range:
    """Both bounds belong to it, and None is open."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True)
class Check:
    """Some part of the value must match."""

    property: str
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Type:
    """A node or edge type: one table. Only edges have ends and a cardinality, only nodes a key, ranges and checks."""

    kind: Literal["node", "edge"]
    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    # For an edge: the node types at "src" and "dst", and how many edges a source may have.
    ends: Mapping[str, str] = field(default_factory=dict)
    edges_min: int = 0
    edges_max: int | None = None

    @property
    def table_key(self) -> str:
        return f"{self.kind}:{self.name}"

    def property(self, name: object) -> Property | None:
        """The declared property of that name; `id`, `src` and `dst` are not ones."""
        return next((each for each in self.properties if each.name == name), None)


@dataclass(frozen=True)
class Schema:
    """Every type by its table key, in the order of the keys: edges first, as in an export [EXP-02]."""

    types: Mapping[str, Type]
    ir: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def node(self, name: str) -> Type | None:
        return self.types.get(f"node:{name}")

    def edge(self, name: str) -> Type | None:
        """An edge type by its name in any case [LOD-04]."""
        edges = (each for each in self.types.values() if each.kind == "edge")
        return next((each for each in edges if each.name.lower() == name.lower()), None)

    def edges_at(self, node: Type) -> list[tuple[Type, str]]:
        """Every end at which a node type can stand: the edge type, and "src" or "dst"."""
        return [(each, side) for each in self.types.values() for side, end in each.ends.items() if end == node.name]


def schema_from_ir(ir: Mapping[str, Any]) -> Schema:
    """The schema that an IR document describes."""
    types = [*(_type("node", each) for each in ir["nodes"]), *(_type("edge", each) for each in ir["edges"])]
    by_key = {each.table_key: each for each in sorted(types, key=lambda each: each.table_key)}
    return Schema(MappingProxyType(by_key), ir)


def _type(kind: Literal["node", "edge"], ir: Mapping[str, Any]) -> Type:
    rules: dict[str, list[Any]] = {"Check": [], "Index": [], "Key": [], "Range": [], "Unique": []}
    for constraint in ir["constraints"]:
        [(name, body)] = constraint.items()
        rules[name].append(body)
    is_edge = kind == "edge"
    return Type(
        kind,
        ir["name"],
        tuple(sorted((_property(each) for each in ir["properties"]), key=lambda each: each.name)),
        key=tuple(sorted(rules["Key"][0])) if rules["Key"] else (),
        unique=tuple(tuple(group) for group in rules["Unique"]),
        ranges=tuple(Range(body["property"], _bound(body["min"]), _bound(body["max"])) for body in rules["Range"]),
        checks=tuple(Check(body["property"], compile_pattern(body["pattern"])) for body in rules["Check"]),
        ends={"src": ir["from_type"], "dst": ir["to_type"]} if is_edge else {},
        edges_min=ir["cardinality"]["min"] if is_edge else 0,
        edges_max=ir["cardinality"]["max"] if is_edge else None,
    )


def _property(ir: Mapping[str, Any]) -> Property:
    body = ir["prop_type"]
    is_vector = isinstance(body["scalar"], dict)
    return Property(
        ir["name"],
        "Vector" if is_vector else body["scalar"],
        body["nullable"],
        body["list"],
        None if body["enum_values"] is None else tuple(body["enum_values"]),
        body["scalar"]["Vector"] if is_vector else None,
    )


def _bound(ir: Mapping[str, int | float] | None) -> int | float | None:
    return None if ir is None else next(iter(ir.values()))
