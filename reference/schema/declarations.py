"""A schema as it was declared: what the parser reads, what the IR holds, and what `compile` checks and builds.

Declarations carry their place in the source, so that a check can point at what it refuses. Those that come from an
IR have none. They still are unchecked: only a `Catalog` is known to make sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reference.schema.errors import Position
from reference.schema.types import Annotation, PropertyType

TypeKind = Literal["interface", "node", "edge"]
ConstraintKind = Literal["Check", "Index", "Key", "Range", "Unique"]


@dataclass(frozen=True)
class PropertyDeclaration:
    """`name: Type @annotations`."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    at: Position | None = None


@dataclass(frozen=True)
class ConstraintDeclaration:
    """A constraint of a body, or one that an annotation of a property stands for."""

    kind: ConstraintKind
    columns: tuple[str, ...]
    minimum: int | float | None = None
    maximum: int | float | None = None
    pattern: str = ""
    at: Position | None = None


@dataclass(frozen=True)
class Reference:
    """The name of another type, where it is mentioned."""

    name: str
    at: Position | None = None


@dataclass(frozen=True)
class Declaration:
    """One `interface`, `node` or `edge`."""

    kind: TypeKind
    name: str
    properties: tuple[PropertyDeclaration, ...] = ()
    constraints: tuple[ConstraintDeclaration, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[Reference, ...] = ()
    endpoints: tuple[Reference, ...] = ()
    cardinality_min: int = 0
    cardinality_max: int | None = None
    cardinality_at: Position | None = None
    at: Position | None = None
