"""A schema as text, compiled: the canonical IR that every engine must make of it, or a refusal.

`compile_schema` reads the declarations, gives each node type the properties of its interfaces, refuses what describes
no possible graph [VAL-13, VAL-15], and writes everything out in one order, so that the order of the text leaves no
trace [SCH-14]. `ir_text` is the compact JSON of an IR, and `ir_hash` its name in `__schema_state.json` [LAY-11].
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from conformance.model.errors import Refusal, bad_request
from conformance.model.patterns import compile_pattern
from conformance.model.schema import Property
from conformance.model.schema_syntax import (
    Annotation,
    Bound,
    Declaration,
    DeclaredProperty,
    Rule,
    read_declarations,
)
from conformance.model.values import json_text

_SYSTEM_COLUMNS: Final = frozenset(
    {"id", "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
_ENDS: Final = ("src", "dst")
_FLAGS: Final = ("key", "unique", "index")  # Annotations that stand for a rule on one property.
_WITH_VALUE: Final = ("rename_from", "description", "embed")
_NUMBERS: Final = frozenset({"I32", "I64", "U32", "U64", "F32", "F64"})
_INTEGER: Final = (-(2**63), 2**63 - 1)
_CARDINALITY_MAX: Final = 2**32 - 1
_DIMENSIONS_MAX: Final = 2**31 - 1


def compile_schema(text: str) -> dict[str, Any]:
    """The IR of a schema; a text that is none is refused as a bad request."""
    declared = read_declarations(text)
    by_kind = {kind: [each for each in declared if each.kind == kind] for kind in ("interface", "node", "edge")}
    for group in by_kind.values():
        _refuse_doubles("the name of a type", [each.name for each in group])
    _refuse_doubles("the name of an edge type in any case", [each.name.lower() for each in by_kind["edge"]])
    for each in declared:
        _check_declaration(each)
    interfaces = {each.name: each for each in by_kind["interface"]}
    node_names = {each.name for each in by_kind["node"]}
    types = {"node": [_with_interfaces(each, interfaces) for each in by_kind["node"]], "edge": by_kind["edge"]}
    for edge in by_kind["edge"]:
        if not node_names.issuperset(edge.ends):
            raise _refusal(f"edge {edge.name} joins a node type that there is not")
    return {
        "ir_version": 1,
        "interfaces": [_interface_ir(each) for each in _by_name(interfaces.values())],
        "nodes": [_type_ir(each, _rules(each)) for each in _by_name(types["node"])],
        "edges": [_type_ir(each, _rules(each)) for each in _by_name(types["edge"])],
    }


def ir_text(ir: dict[str, Any]) -> str:
    """The compact JSON of an IR, byte by byte as every engine writes it."""
    return json_text(ir)


def ir_hash(ir: dict[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(ir_text(ir).encode()).hexdigest()


def _by_name(declarations: Iterable[Declaration]) -> list[Declaration]:
    return sorted(declarations, key=lambda each: each.name)


def _refusal(message: str) -> Refusal:
    return bad_request("invalid_schema", message)


def _refuse_doubles(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise _refusal(f"{what} is given twice: {max(names, key=names.count)!r}")


# -- what can be said of a declaration alone ---------------------------------------------------------------------


def _check_declaration(declaration: Declaration) -> None:
    owner = declaration.name
    _check_annotations(owner, declaration.annotations)
    for annotation in declaration.annotations:
        if annotation.name in (*_FLAGS, "embed"):
            raise _refusal(f"@{annotation.name} of {owner} is about a property, and not about a type")
    _refuse_doubles(f"a property of {owner}", [each.property.name for each in declaration.properties])
    system = _SYSTEM_COLUMNS | (set(_ENDS) if declaration.kind == "edge" else set())
    for each in declaration.properties:
        if each.property.name in system:
            raise _refusal(f"{owner}.{each.property.name} is a column of the system")
        if each.property.dimensions is not None and not 1 <= each.property.dimensions <= _DIMENSIONS_MAX:
            raise _refusal(f"{owner}.{each.property.name} cannot have {each.property.dimensions} dimensions")
        _check_annotations(f"{owner}.{each.property.name}", each.annotations)
    most = _CARDINALITY_MAX if declaration.edges_max is None else declaration.edges_max
    if not 0 <= declaration.edges_min <= most <= _CARDINALITY_MAX:
        raise _refusal(f"edge {owner} cannot have {declaration.edges_min} to {declaration.edges_max} edges per source")


def _check_annotations(owner: str, annotations: Sequence[Annotation]) -> None:
    for annotation in annotations:
        if annotation.name in _WITH_VALUE and not (annotation.value or "").strip():
            raise _refusal(f"@{annotation.name} of {owner} needs a value")
    names = [each.name for each in annotations if each.name in (*_FLAGS, *_WITH_VALUE)]
    _refuse_doubles(f"an annotation of {owner}", names)


# -- interfaces --------------------------------------------------------------------------------------------------


def _with_interfaces(node: Declaration, interfaces: dict[str, Declaration]) -> Declaration:
    """A node type with the properties of its interfaces. What it declares itself must be of the promised type."""
    properties = {each.property.name: each for each in node.properties}
    for name in node.implements:
        if name not in interfaces:
            raise _refusal(f"{node.name} implements {name}, which is no interface")
        for promised in interfaces[name].properties:
            found = properties.setdefault(promised.property.name, promised)
            if found.property != promised.property:
                raise _refusal(f"{node.name}.{promised.property.name} is not of the type that {name} promises")
    return replace(node, properties=tuple(properties.values()))


# -- rules -------------------------------------------------------------------------------------------------------


def _rules(owner: Declaration) -> list[Rule]:
    """The rules of a type: those of its body, and those that an annotation stands for."""
    found = [
        Rule(annotation.name, (each.property.name,))
        for each in owner.properties
        for annotation in each.annotations
        if annotation.name in _FLAGS
    ]
    found += owner.rules
    for rule in found:
        _check_rule(owner, rule)
    if sum(rule.name == "key" for rule in found) > 1:
        raise _refusal(f"{owner.name} has several keys")
    return found


def _check_rule(owner: Declaration, rule: Rule) -> None:
    here = f"@{rule.name} of {owner.name}"
    if owner.kind == "edge" and rule.name not in ("unique", "index"):
        raise _refusal(f"{here}: an edge type cannot have it")
    _refuse_doubles(f"a property in {here}", rule.columns)
    columns = {each.property.name: each.property for each in owner.properties}
    if owner.kind == "edge":
        columns |= {end: Property(end, "String") for end in _ENDS}
    for column in rule.columns:
        if column not in columns:
            raise _refusal(f"{here} is about {column!r}, which is not declared")
        if not _fits(rule.name, columns[column]):
            raise _refusal(f"{here} cannot be about {column!r}, for its type")
    if rule.name == "check":
        compile_pattern(rule.pattern)
    _check_bounds(here, rule)


def _fits(rule: str, prop: Property) -> bool:
    if rule == "index":
        return True
    if prop.is_list or prop.scalar in ("Blob", "Vector"):
        return False
    if rule == "key":
        return not prop.nullable
    return {"range": prop.scalar in _NUMBERS, "check": prop.scalar == "String"}.get(rule, True)


def _check_bounds(here: str, rule: Rule) -> None:
    for bound in (rule.low, rule.high):
        if isinstance(bound, int) and not _INTEGER[0] <= bound <= _INTEGER[1]:
            raise _refusal(f"{here}: {bound} does not fit in 64 bits")
        if isinstance(bound, float) and not math.isfinite(bound):
            raise _refusal(f"{here}: a bound is a finite number")
    if rule.low is not None and rule.high is not None and rule.low > rule.high:
        raise _refusal(f"{here}: no value is from {rule.low} to {rule.high}")


# -- the IR ------------------------------------------------------------------------------------------------------


def _interface_ir(interface: Declaration) -> dict[str, Any]:
    return {
        "name": interface.name,
        "type_id": _fnv(f"interface:{interface.name}"),
        "properties": _properties_ir(interface),
    }


def _type_ir(owner: Declaration, rules: Sequence[Rule]) -> dict[str, Any]:
    identity = {"name": owner.name, "type_id": _fnv(f"{owner.kind}:{owner.name}")}
    annotations = _annotations_ir(owner.annotations)
    rest = {"properties": _properties_ir(owner), "constraints": [_rule_ir(each) for each in sorted(rules, key=_order)]}
    if owner.kind == "node":
        return {**identity, "annotations": annotations, "implements": sorted(set(owner.implements)), **rest}
    cardinality = {"min": owner.edges_min, "max": owner.edges_max}
    ends = {"from_type": owner.ends[0], "to_type": owner.ends[1], "cardinality": cardinality}
    return {**identity, **ends, "annotations": annotations, **rest}


def _properties_ir(owner: Declaration) -> list[dict[str, Any]]:
    declared = sorted(owner.properties, key=lambda each: each.property.name)
    return [_property_ir(owner, each) for each in declared]


def _property_ir(owner: Declaration, declared: DeclaredProperty) -> dict[str, Any]:
    prop = declared.property
    return {
        "name": prop.name,
        "prop_id": _fnv(f"{owner.kind}:{owner.name}:{prop.name}"),
        "prop_type": {
            "scalar": prop.scalar if prop.dimensions is None else {"Vector": prop.dimensions},
            "nullable": prop.nullable,
            "list": prop.is_list,
            "enum_values": None if prop.enum_values is None else list(prop.enum_values),
        },
        "annotations": _annotations_ir(declared.annotations),
    }


def _annotations_ir(annotations: Sequence[Annotation]) -> list[dict[str, Any]]:
    """By name, and those of one name by value; none comes first."""
    ordered = sorted(annotations, key=lambda each: (each.name, each.value is not None, each.value or ""))
    return [{"name": each.name, "value": each.value} for each in ordered]


def _rule_ir(rule: Rule) -> dict[str, Any]:
    body: Any = sorted(rule.columns)
    if rule.name == "range":
        body = {"property": rule.columns[0], "min": _bound_ir(rule.low), "max": _bound_ir(rule.high)}
    if rule.name == "check":
        body = {"property": rule.columns[0], "pattern": rule.pattern}
    return {rule.name.capitalize(): body}


def _order(rule: Rule) -> tuple[str, list[str], str, str, str]:
    """By kind and columns; of ranges on one property by the text of the bounds, where open is first."""
    return rule.name, sorted(rule.columns), rule.pattern, _bound_text(rule.low), _bound_text(rule.high)


def _bound_ir(bound: Bound) -> dict[str, int | float] | None:
    return None if bound is None else {"Float" if isinstance(bound, float) else "Integer": bound}


def _bound_text(bound: Bound) -> str:
    return "" if bound is None else f"{'Float' if isinstance(bound, float) else 'Integer'} {json_text(bound)}"


def _fnv(text: str) -> int:
    """FNV-1a of 32 bits; no id is 0."""
    found = 2166136261
    for byte in text.encode():
        found = (found ^ byte) * 16777619 % 2**32
    return found or 1
