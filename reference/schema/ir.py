"""The IR: a schema as canonical JSON, the form in which a graph has accepted it [SCH-14, LAY-11].

Two sources that mean the same have the same IR and so the same hash, whatever their order and comments. `@rename_from`
stays in the IR, since the hash covers it; whether it still asks for anything is for `plan` to say. Ids are hashes of
names, so they change with a rename.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from reference.errors import Internal
from reference.format.names import fnv1a_32
from reference.schema.compiler import build_catalog
from reference.schema.declarations import (
    ConstraintDeclaration,
    Declaration,
    PropertyDeclaration,
    Reference,
    TypeKind,
)
from reference.schema.errors import SchemaError
from reference.schema.jsontext import compact_json
from reference.schema.types import (
    SCALARS,
    VECTOR_DIMENSIONS_MAX,
    Annotation,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
)

IR_VERSION = 1


def schema_ir(catalog: Catalog) -> dict[str, Any]:
    """The catalog as the IR that a graph stores."""
    return {
        "ir_version": IR_VERSION,
        "interfaces": [interface_ir(each) for each in catalog.interfaces.values()],
        "nodes": [node_ir(each) for each in catalog.nodes.values()],
        "edges": [edge_ir(each) for each in catalog.edges.values()],
    }


def ir_hash(ir: Mapping[str, Any]) -> str:
    """The hash by which a graph knows its schema."""
    return "sha256:" + hashlib.sha256(compact_json(dict(ir)).encode()).hexdigest()


def parse_ir(text: str) -> dict[str, Any]:
    """Decode the text of an IR; of its content only the version is looked at."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    try:
        ir = json.loads(text, parse_constant=refuse)
        # JSON can escape half a surrogate pair, which is no text and has no hash.
        compact_json(ir).encode()
    except (ValueError, RecursionError) as error:
        raise _malformed(f"it is not JSON: {error}") from None
    if not isinstance(ir, dict):
        raise _malformed("it is not an object")
    _require_version(ir)
    return ir


def catalog_from_ir(ir: Mapping[str, Any]) -> Catalog:
    """Rebuild the catalog, with the same checks that a source must pass."""
    _require_version(ir)
    try:
        declarations = [
            *(_declaration("interface", each) for each in ir["interfaces"]),
            *(_declaration("node", each) for each in ir["nodes"]),
            *(_declaration("edge", each) for each in ir["edges"]),
        ]
        return build_catalog(declarations)
    except SchemaError as error:
        raise _malformed(error.message) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _malformed(f"{type(error).__name__}: {error}") from error


def _require_version(ir: Mapping[str, Any]) -> None:
    found = ir.get("ir_version")
    if found != IR_VERSION or isinstance(found, bool):
        raise Internal(
            f"the schema IR has version {found!r}; this engine reads version {IR_VERSION}",
            code="unsupported_schema_format",
            hint="use the engine that wrote this graph",
        )


def _malformed(why: str) -> Internal:
    return Internal(
        f"the accepted schema of this graph cannot be read: {why}",
        code="schema_ir_invalid",
        hint="restore _schema.ir.json from a copy of the graph",
    )


def interface_ir(interface: InterfaceType) -> dict[str, Any]:
    """An interface, in the key order of the format."""
    owner = f"interface:{interface.name}"
    return {
        "name": interface.name,
        "type_id": fnv1a_32(owner),
        "properties": [_property_ir(owner, each) for each in interface.properties],
    }


def node_ir(node: NodeType) -> dict[str, Any]:
    """A node type, in the key order of the format."""
    return {
        "name": node.name,
        "type_id": fnv1a_32(node.table_key),
        "annotations": annotations_ir(node.annotations),
        "implements": list(node.implements),
        "properties": [_property_ir(node.table_key, each) for each in node.properties],
        "constraints": constraints_ir(node),
    }


def edge_ir(edge: EdgeType) -> dict[str, Any]:
    """An edge type, in the key order of the format."""
    return {
        "name": edge.name,
        "type_id": fnv1a_32(edge.table_key),
        "from_type": edge.from_type,
        "to_type": edge.to_type,
        "cardinality": {"min": edge.cardinality_min, "max": edge.cardinality_max},
        "annotations": annotations_ir(edge.annotations),
        "properties": [_property_ir(edge.table_key, each) for each in edge.properties],
        "constraints": constraints_ir(edge),
    }


def _property_ir(owner: str, column: Property) -> dict[str, Any]:
    return {
        "name": column.name,
        "prop_id": fnv1a_32(f"{owner}:{column.name}"),
        "prop_type": type_ir(column.type),
        "annotations": annotations_ir(column.annotations),
    }


def type_ir(type_: PropertyType) -> dict[str, Any]:
    """The type of a property."""
    return {
        "scalar": type_.scalar if type_.dimensions is None else {"Vector": type_.dimensions},
        "nullable": type_.nullable,
        "list": type_.is_list,
        "enum_values": None if type_.enum_values is None else list(type_.enum_values),
    }


def annotations_ir(annotations: tuple[Annotation, ...]) -> list[dict[str, Any]]:
    """Annotations, sorted by name and then value."""
    return [{"name": each.name, "value": each.value} for each in annotations]


def constraints_ir(owner: NodeType | EdgeType) -> list[dict[str, Any]]:
    """Constraints by the name of their kind; the catalog has each kind in order already."""
    return [
        *({"Check": {"property": each.property, "pattern": each.pattern}} for each in owner.checks),
        *({"Index": list(columns)} for columns in owner.indexes),
        *([{"Key": list(owner.key)}] if owner.key else []),
        *(
            {"Range": {"property": each.property, "min": _bound_ir(each.minimum), "max": _bound_ir(each.maximum)}}
            for each in owner.ranges
        ),
        *({"Unique": list(columns)} for columns in owner.unique),
    ]


def _bound_ir(bound: int | float | None) -> dict[str, int | float] | None:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def _declaration(kind: TypeKind, ir: Mapping[str, Any]) -> Declaration:
    edge = kind == "edge"
    return Declaration(
        kind,
        _a(str, ir["name"]),
        tuple(_property(each) for each in ir["properties"]),
        tuple(_constraint(each) for each in ir.get("constraints", ())),
        tuple(_annotation(each) for each in ir.get("annotations", ())),
        implements=tuple(Reference(_a(str, each)) for each in ir.get("implements", ())),
        endpoints=(Reference(_a(str, ir["from_type"])), Reference(_a(str, ir["to_type"]))) if edge else (),
        cardinality_min=_a(int, ir["cardinality"]["min"]) if edge else 0,
        cardinality_max=_a(int | None, ir["cardinality"]["max"]) if edge else None,
    )


def _property(ir: Mapping[str, Any]) -> PropertyDeclaration:
    type_, scalar = ir["prop_type"], ir["prop_type"]["scalar"]
    dimensions = None
    if isinstance(scalar, dict):
        dimensions, scalar = _a(int, scalar["Vector"]), "Vector"
        if not 1 <= dimensions <= VECTOR_DIMENSIONS_MAX or type_["list"]:
            raise ValueError(f"there is no vector like {type_}")
    elif scalar not in SCALARS or (scalar == "Blob" and type_["list"]):
        raise ValueError(f"there is no type like {type_}")
    values = type_["enum_values"]
    if values is not None and (scalar != "String" or not values):
        raise ValueError(f"there is no enum like {type_}")
    enum_values = None if values is None else tuple(sorted({_a(str, each) for each in values}))
    nullable, is_list = _a(bool, type_["nullable"]), _a(bool, type_["list"])
    return PropertyDeclaration(
        _a(str, ir["name"]),
        PropertyType(scalar, nullable, is_list, enum_values, dimensions),
        tuple(_annotation(each) for each in ir["annotations"]),
    )


def _annotation(ir: Mapping[str, Any]) -> Annotation:
    return Annotation(_a(str, ir["name"]), _a(str | None, ir["value"]))


def _constraint(ir: Mapping[str, Any]) -> ConstraintDeclaration:
    kind: Any
    [(kind, body)] = ir.items()
    if kind in ("Index", "Key", "Unique"):
        if not body:
            raise ValueError(f"{kind} names no column")
        return ConstraintDeclaration(kind, tuple(_a(str, each) for each in body))
    column = (_a(str, body["property"]),)
    if kind == "Check":
        return ConstraintDeclaration("Check", column, pattern=_a(str, body["pattern"]))
    if kind != "Range":
        raise ValueError(f"there is no constraint {kind}")
    return ConstraintDeclaration("Range", column, _bound(body["min"]), _bound(body["max"]))


def _bound(ir: Mapping[str, Any] | None) -> int | float | None:
    if ir is None:
        return None
    [(kind, value)] = ir.items()
    return _a(int, value) if kind == "Integer" else float(_a(int | float, ir["Float"]))


def _a(expected: Any, value: Any) -> Any:
    """The value, if it has the expected type; a bool is not an int here."""
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise TypeError(f"{value!r} is not what is expected here")
    return value
