"""From declarations to a catalog: every check that a schema must pass, in one place.

A schema that no graph could satisfy, or that could not be evaluated, is refused here, so that no later step needs to
ask [VAL-13, VAL-15]. Source and IR take the same road: `compile_schema` first spells out what the source leaves
implicit (properties of interfaces, `@key` next to a property), which an IR already has, and then both are checked and
built by `build_catalog`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from reference.schema.declarations import ConstraintDeclaration, ConstraintKind, Declaration, PropertyDeclaration
from reference.schema.errors import INVALID, Position, SchemaError
from reference.schema.jsontext import float_text
from reference.schema.parser import parse
from reference.schema.patterns import PatternError, compile_pattern
from reference.schema.types import (
    NUMERIC_SCALARS,
    Annotation,
    Catalog,
    Check,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Range,
)

_SYSTEM_COLUMNS = {"interface": ("id",), "node": ("id",), "edge": ("id", "src", "dst")}
# Lance answers these names itself, in every dataset.
_LANCE_COLUMNS = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")
_CONSTRAINT_ANNOTATIONS = ("key", "unique", "index")
_IMPLIED: tuple[tuple[str, ConstraintKind], ...] = (("key", "Key"), ("unique", "Unique"), ("index", "Index"))
_ONCE = (*_CONSTRAINT_ANNOTATIONS, "rename_from", "description", "embed")

Named = TypeVar("Named", InterfaceType, NodeType, EdgeType)


@lru_cache(maxsize=64)
def compile_schema(source: str) -> Catalog:
    """The catalog that a `.pg` text means. Cached, because every read asks again whether the text still agrees."""
    declarations = parse(source)
    interfaces = {each.name: each for each in declarations if each.kind == "interface"}
    return build_catalog([_spelled_out(each, interfaces, source) for each in declarations], source)


def build_catalog(declarations: Iterable[Declaration], source: str = "") -> Catalog:
    """Check declarations that leave nothing implicit, and build their catalog."""
    check = _Checker(source)
    declared = sorted(declarations, key=lambda each: each.name)
    check.names(declared)
    for each in declared:
        check.members(each)
    check.endpoints(declared)
    return Catalog(
        _by_name(InterfaceType(each.name, _properties(each)) for each in declared if each.kind == "interface"),
        _by_name(_node(each) for each in declared if each.kind == "node"),
        _by_name(_edge(each) for each in declared if each.kind == "edge"),
    )


def _by_name(types: Iterable[Named]) -> Mapping[str, Named]:
    return MappingProxyType({each.name: each for each in types})


def _spelled_out(declaration: Declaration, interfaces: Mapping[str, Declaration], source: str) -> Declaration:
    if declaration.kind == "interface":
        return declaration
    check = _Checker(source)
    properties = {each.name: each for each in reversed(declaration.properties)}
    inherited: dict[str, PropertyDeclaration] = {}
    for reference in declaration.implements:
        interface = interfaces.get(reference.name)
        if interface is None:
            raise check.refusal(
                reference.at, f"there is no interface '{reference.name}'", "declare the interface, or do not name it"
            )
        for promised in interface.properties:
            own = properties.get(promised.name) or inherited.get(promised.name)
            if own is None:
                inherited[promised.name] = replace(promised, at=reference.at)
            elif own.type != promised.type:
                raise check.refusal(
                    own.at,
                    f"'{declaration.name}.{own.name}' is {own.type}, but interface '{interface.name}' promises"
                    f" {promised.type}",
                    "give both the same type, down to the '?'",
                )
    everything = (*declaration.properties, *inherited.values())
    implied = tuple(
        ConstraintDeclaration(kind, (each.name,), at=each.at)
        for each in everything
        for name, kind in _IMPLIED
        if Annotation(name) in each.annotations
    )
    return replace(declaration, properties=everything, constraints=declaration.constraints + implied)


class _Checker:
    """The checks; it holds the source only to point into it."""

    def __init__(self, source: str) -> None:
        self._source = source

    def refusal(self, at: Position | None, what: str, hint: str) -> SchemaError:
        return SchemaError(what, code=INVALID, source=self._source, at=at, hint=hint)

    def names(self, declared: list[Declaration]) -> None:
        seen: dict[tuple[str, str], Declaration] = {}
        # In the order of the source, so that the second of two is the one that is pointed at.
        for each in sorted(declared, key=lambda item: item.at or Position(0, 0)):
            # Queries name edge types in any case, so two that differ in case only could not be told apart.
            folded = each.name.lower() if each.kind == "edge" else each.name
            before = seen.setdefault((each.kind, folded), each)
            if before is not each:
                same = before.name == each.name
                what = f"{each.kind} '{each.name}' is declared twice"
                if not same:
                    what = f"edges '{before.name}' and '{each.name}' differ in case only"
                raise self.refusal(each.at, what, "rename one of the two")

    def endpoints(self, declared: list[Declaration]) -> None:
        nodes = {each.name for each in declared if each.kind == "node"}
        for edge in declared:
            for role, endpoint in zip(("source", "target"), edge.endpoints, strict=False):
                if endpoint.name not in nodes:
                    raise self.refusal(
                        endpoint.at,
                        f"the {role} of edge '{edge.name}', '{endpoint.name}', is not a node type",
                        f"declare node {endpoint.name}, or name another type",
                    )

    def members(self, owner: Declaration) -> None:
        self._annotations(owner.annotations, owner.at, f"{owner.kind} '{owner.name}'")
        for annotation in owner.annotations:
            if annotation.name in (*_CONSTRAINT_ANNOTATIONS, "embed"):
                raise self.refusal(owner.at, f"@{annotation.name} is not about a whole type", "write it in the body")
        maximum = owner.cardinality_max
        if maximum is not None and owner.cardinality_min > maximum:
            raise self.refusal(
                owner.cardinality_at,
                f"edge '{owner.name}' needs at least {owner.cardinality_min} and at most {maximum}",
                "write the smaller number first",
            )
        columns: dict[str, PropertyType] = {}
        for each in owner.properties:
            if each.name in columns:
                raise self.refusal(each.at, f"'{owner.name}.{each.name}' is declared twice", "keep one of the two")
            if each.name in (*_SYSTEM_COLUMNS[owner.kind], *_LANCE_COLUMNS):
                raise self.refusal(each.at, f"'{each.name}' is a column of the system", "choose another name")
            self._annotations(each.annotations, each.at, f"'{owner.name}.{each.name}'")
            columns[each.name] = each.type
        if owner.kind == "edge":
            columns |= {"src": PropertyType("String"), "dst": PropertyType("String")}
        for constraint in owner.constraints:
            self._constraint(owner, constraint, columns)
        keys = [each for each in owner.constraints if each.kind == "Key"]
        if len(keys) > 1:
            raise self.refusal(
                keys[-1].at,
                f"node '{owner.name}' has several keys",
                "declare one; @key(a, b) in the body makes one key of two properties",
            )

    def _annotations(self, annotations: tuple[Annotation, ...], at: Position | None, where: str) -> None:
        names = [each.name for each in annotations]
        for name, value in ((each.name, each.value) for each in annotations if each.name in _ONCE):
            if names.count(name) > 1:
                raise self.refusal(at, f"{where} has @{name} more than once", "keep one of them")
            if name in _CONSTRAINT_ANNOTATIONS and value is not None:
                raise self.refusal(at, f"@{name} of {where} takes no value", f"write @{name} alone")
            if name not in _CONSTRAINT_ANNOTATIONS and not (value or "").strip():
                raise self.refusal(at, f"@{name} of {where} has no value", f'write @{name}("…")')

    def _constraint(
        self, owner: Declaration, constraint: ConstraintDeclaration, columns: Mapping[str, PropertyType]
    ) -> None:
        name = f"@{constraint.kind.lower()}"
        if owner.kind == "edge" and constraint.kind not in ("Unique", "Index"):
            raise self.refusal(constraint.at, f"an edge cannot have {name}", "edges have @unique and @index only")
        if len(set(constraint.columns)) != len(constraint.columns):
            raise self.refusal(constraint.at, f"{name} names a property twice", "name each property once")
        for column in constraint.columns:
            if column not in columns:
                raise self.refusal(
                    constraint.at, f"{name} names '{column}', which '{owner.name}' does not declare", "declare it first"
                )
            problem = _unsuitable(constraint.kind, columns[column])
            if problem is not None:
                what = f"{name} cannot use '{owner.name}.{column}' of type {columns[column]}"
                raise self.refusal(constraint.at, what, problem)
        if constraint.kind == "Range":
            self._range(constraint)
        if constraint.kind == "Check":
            try:
                compile_pattern(constraint.pattern)
            except PatternError as error:
                what = f"@check has a pattern that cannot be evaluated: {error}"
                raise self.refusal(constraint.at, what, "correct the pattern") from None

    def _range(self, constraint: ConstraintDeclaration) -> None:
        bounds = [each for each in (constraint.minimum, constraint.maximum) if each is not None]
        if not all(math.isfinite(each) for each in bounds):
            raise self.refusal(constraint.at, "a bound of @range is not a finite number", "leave that side open")
        if not bounds:
            raise self.refusal(constraint.at, "@range has no bound", "give one side a number")
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            what = f"no value is at least {bounds[0]} and at most {bounds[1]}"
            raise self.refusal(constraint.at, what, "write the smaller bound first")


def _unsuitable(kind: str, type_: PropertyType) -> str | None:
    """What to do instead, when a constraint cannot be evaluated on a column of that type."""
    structured = type_.is_list or type_.scalar in ("Blob", "Vector")
    if kind in ("Key", "Unique") and structured:
        return "uniqueness key: unsupported column type; use a scalar property"
    if kind == "Key" and type_.nullable:
        return "every row needs a key: remove the '?'"
    if kind == "Range" and (structured or type_.scalar not in NUMERIC_SCALARS):
        return "@range is for numbers"
    if kind == "Check" and (structured or type_.scalar != "String"):
        return "@check is for String properties"
    return None


def _properties(declaration: Declaration) -> tuple[Property, ...]:
    ordered = sorted(declaration.properties, key=lambda each: each.name)
    return tuple(Property(each.name, each.type, each.annotations) for each in ordered)


def _columns(declaration: Declaration, kind: str) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted(tuple(sorted(each.columns)) for each in declaration.constraints if each.kind == kind))


def _node(declaration: Declaration) -> NodeType:
    keys = _columns(declaration, "Key")
    bounded = [each for each in declaration.constraints if each.kind == "Range"]
    checked = [each for each in declaration.constraints if each.kind == "Check"]
    return NodeType(
        declaration.name,
        _properties(declaration),
        keys[0] if keys else (),
        _columns(declaration, "Unique"),
        _columns(declaration, "Index"),
        tuple(Range(each.columns[0], each.minimum, each.maximum) for each in sorted(bounded, key=_range_order)),
        tuple(Check(each.columns[0], each.pattern) for each in sorted(checked, key=_check_order)),
        tuple(sorted({each.name for each in declaration.implements})),
        declaration.annotations,
    )


def _check_order(constraint: ConstraintDeclaration) -> str:
    return f"{constraint.columns[0]}:{constraint.pattern}"


def _range_order(constraint: ConstraintDeclaration) -> str:
    """Several ranges of a type, in the order in which the release writes them: that of their debug texts."""

    def shown(bound: int | float | None) -> str:
        if bound is None:
            return "None"
        if isinstance(bound, int):
            return f"Some(Integer({bound}))"
        return f"Some(Float({float_text(bound).replace('e+', 'e')}))"

    return f"{constraint.columns[0]}:{shown(constraint.minimum)}:{shown(constraint.maximum)}"


def _edge(declaration: Declaration) -> EdgeType:
    source, target = declaration.endpoints
    return EdgeType(
        declaration.name,
        source.name,
        target.name,
        _properties(declaration),
        declaration.cardinality_min,
        declaration.cardinality_max,
        _columns(declaration, "Unique"),
        _columns(declaration, "Index"),
        annotations=declaration.annotations,
    )
