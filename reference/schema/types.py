"""The catalog: the node and edge types of a graph, as every other room of the engine sees them.

A `Catalog` is what a schema means. It is checked when it is built, never changes, and forgets how the schema was
written: names are sorted, columns of constraints are sorted, and annotations such as `@key` have become constraints
[LAY-13, SCH-14]. Annotations that mean nothing to the engine are kept, because the IR keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from lance.blob import BlobType

from reference.errors import BadRequest
from reference.schema.patterns import compile_pattern

ARROW_SCALARS: Mapping[str, pa.DataType] = {
    "String": pa.utf8(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.date64(),
    # Blob v2 in its minimal form, as the release writes it: `lance.blob_field` of newer Lance versions adds two fields
    # for ranges of external blobs, and a table would no longer have the schema that the release expects.
    "Blob": BlobType.__arrow_ext_deserialize__(
        pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.utf8())]), b""
    ),
}
SCALARS = frozenset(ARROW_SCALARS)
NUMERIC_SCALARS = frozenset({"I32", "I64", "U32", "U64", "F32", "F64"})
VECTOR_DIMENSIONS_MAX = 2**31 - 1


@dataclass(frozen=True)
class Annotation:
    """`@name` or `@name(value)`; a value is text, however it was spelled."""

    name: str
    value: str | None = None


@dataclass(frozen=True)
class PropertyType:
    """The type of a property; an enum is a String with a closed set of values."""

    scalar: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimensions: int | None = None

    def arrow_type(self) -> pa.DataType:
        """The column's type on disk."""
        if self.dimensions is not None:
            return pa.list_(pa.field("item", pa.float32(), nullable=True), self.dimensions)
        item = ARROW_SCALARS[self.scalar]
        return pa.list_(pa.field("item", item, nullable=True)) if self.is_list else item

    def __str__(self) -> str:
        name = self.scalar if self.enum_values is None else f"enum({', '.join(self.enum_values)})"
        if self.dimensions is not None:
            name = f"Vector({self.dimensions})"
        return (f"[{name}]" if self.is_list else name) + ("?" if self.nullable else "")


@dataclass(frozen=True)
class Property:
    """A declared column."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Range:
    """`@range(property, minimum..maximum)`: both bounds belong to the range, and None is open."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True)
class Check:
    """`@check(property, "pattern")`: some part of the value must match."""

    property: str
    pattern: str

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern as Python evaluates it; use `.search(value)`."""
        return compile_pattern(self.pattern)


@dataclass(frozen=True)
class InterfaceType:
    """Properties that several node types promise to have; it owns no table."""

    name: str
    properties: tuple[Property, ...]


@dataclass(frozen=True)
class NodeType:
    """A type of node, one table."""

    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def table_key(self) -> str:
        """`node:Name`."""
        return f"node:{self.name}"

    def property(self, name: str) -> Property | None:
        """The declared property of that name; `id` is not one."""
        return next((each for each in self.properties if each.name == name), None)


@dataclass(frozen=True)
class EdgeType:
    """A type of edge, one table. `key`, `ranges` and `checks` are always empty: the language has none for edges."""

    name: str
    from_type: str
    to_type: str
    properties: tuple[Property, ...]
    cardinality_min: int = 0
    cardinality_max: int | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def table_key(self) -> str:
        """`edge:Name`."""
        return f"edge:{self.name}"

    def property(self, name: str) -> Property | None:
        """The declared property of that name; `id`, `src` and `dst` are not ones."""
        return next((each for each in self.properties if each.name == name), None)


@dataclass(frozen=True)
class Catalog:
    """Every type of a graph, by name, in the order of the names."""

    interfaces: Mapping[str, InterfaceType]
    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]

    def table_keys(self) -> list[str]:
        """The keys of all tables, sorted."""
        return sorted([f"node:{name}" for name in self.nodes] + [f"edge:{name}" for name in self.edges])

    def type_of(self, table_key: str) -> NodeType | EdgeType:
        """The type whose table that is."""
        kind, _, name = table_key.partition(":")
        found: NodeType | EdgeType | None = None
        if kind == "node":
            found = self.nodes.get(name)
        elif kind == "edge":
            found = self.edges.get(name)
        if found is None:
            raise BadRequest(
                f"the schema has no '{table_key}'",
                code="unknown_type",
                details={"table_key": table_key},
                hint="name a type of the schema as node:<TypeName> or edge:<EdgeName>",
            )
        return found

    def edge_by_name(self, name: str) -> EdgeType | None:
        """An edge type by its name in any case: two edge names never differ in case only."""
        return next((each for each in self.edges.values() if each.name.lower() == name.lower()), None)

    def arrow_schema(self, table_key: str) -> pa.Schema:
        """The columns of a table: the system's first, then the properties by name [LAY-13]."""
        owner = self.type_of(table_key)
        system = ("id", "src", "dst") if isinstance(owner, EdgeType) else ("id",)
        fields = [pa.field(name, pa.utf8(), nullable=False) for name in system]
        for each in owner.properties:
            fields.append(pa.field(each.name, each.type.arrow_type(), nullable=each.type.nullable))
        return pa.schema(fields)
