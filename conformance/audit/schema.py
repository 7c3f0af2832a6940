"""The schema that a graph has accepted, read from `_schema.ir.json`, and what it asks of tables [LAY-10…13, SCH-14].

The IR is canonical JSON, so no schema language is needed here. Its hash is taken over the compact text; the file is
the same text with spaces and line breaks between the tokens, so dropping those gives it, whatever the numbers in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from conformance.audit.findings import Findings
from conformance.audit.names import SCHEMA_FILES, fnv1a_32
from conformance.audit.places import Objects

SOURCE_FILE, IR_FILE, STATE_FILE = SCHEMA_FILES
_BETWEEN_TOKENS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "String": pa.string(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.date64(),
}
BLOB: Final = "Blob"


@dataclass(frozen=True)
class Property:
    """A declared column. An enum is a String with values; a vector has dimensions."""

    name: str
    scalar: str
    nullable: bool
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimensions: int | None = None

    def arrow_type(self) -> pa.DataType:
        if self.dimensions is not None:
            return pa.list_(pa.field("item", pa.float32()), self.dimensions)
        item = _SCALARS[self.scalar]
        return pa.list_(pa.field("item", item)) if self.is_list else item

    def fits(self, column: pa.Field) -> bool:
        """Whether a column of a table is this property."""
        if column.nullable != self.nullable:
            return False
        if self.scalar == BLOB and not self.is_list:
            return is_blob(column)
        return bool(column.type.equals(self.arrow_type()))


@dataclass(frozen=True)
class Range:
    property: str
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True)
class TableType:
    """A node or edge type: its columns and its rules."""

    kind: str
    name: str
    properties: tuple[Property, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    source: str = ""
    target: str = ""
    minimum: int = 0
    maximum: int | None = None

    @property
    def table_key(self) -> str:
        return f"{self.kind}:{self.name}"

    def columns(self) -> tuple[Property, ...]:
        """All columns in table order: ids first, then the properties by name [LAY-13]."""
        ids = ("id",) if self.kind == "node" else ("id", "src", "dst")
        return (*(Property(name, "String", nullable=False) for name in ids), *self.properties)


@dataclass(frozen=True)
class Catalog:
    """The types of a graph, by table key."""

    types: Mapping[str, TableType] = field(default_factory=dict)


def is_blob(column: pa.Field) -> bool:
    extension = getattr(column.type, "extension_name", "")
    return "blob" in extension or (column.metadata or {}).get(b"lance-encoding:blob") == b"true"


def compact(text: str) -> str:
    """JSON text without the space between its tokens."""
    return _BETWEEN_TOKENS.sub(lambda match: match[1] or "", text)


def read_schema(found: Findings, objects: Objects) -> Catalog | None:
    """Read and check the three schema files; None if there is no catalog to hold tables against [SCH-13]."""
    texts: dict[str, str] = {}
    for name in SCHEMA_FILES:
        content = objects.read(name)
        try:
            if content is None:
                found.add("schema-file-missing", name, f"the schema file {name} is missing")
            else:
                texts[name] = content.decode()
        except UnicodeDecodeError:
            found.add("schema-file-missing", name, f"the schema file {name} is not UTF-8 text")
    if not texts.get(SOURCE_FILE, "x").strip():
        found.add("schema-file-missing", SOURCE_FILE, f"the schema file {SOURCE_FILE} is empty")
    if IR_FILE not in texts:
        return None
    _check_state(found, texts.get(STATE_FILE), texts[IR_FILE])
    try:
        ir = json.loads(texts[IR_FILE])
        catalog = _catalog(ir)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found.add("schema-ir", IR_FILE, f"the compiled schema cannot be understood: {type(error).__name__}: {error}")
        return None
    _check_ids(found, ir)
    found.checked["types"] += len(catalog.types)
    return catalog


def _check_state(found: Findings, text: str | None, ir_text: str) -> None:
    if text is None:
        return
    try:
        state = json.loads(text)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        found.add("schema-state", STATE_FILE, "the schema state is not a JSON object")
        return
    for name in ("format_version", "schema_identity_version"):
        if state.get(name) != 1:
            found.add("schema-state", STATE_FILE, f"{name} is {state.get(name)!r}, not 1")
    actual = "sha256:" + hashlib.sha256(compact(ir_text).encode()).hexdigest()
    if state.get("schema_ir_hash") != actual:
        message = f"the state accepts {state.get('schema_ir_hash')}, and {IR_FILE} has {actual}"
        found.add("schema-hash", STATE_FILE, message, accepted=state.get("schema_ir_hash"), actual=actual)


def _check_ids(found: Findings, ir: Mapping[str, Any]) -> None:
    """Names are sorted, and ids are hashes of names [SCH-14]."""
    wrong: list[str] = []
    for section, kind in (("interfaces", "interface"), ("nodes", "node"), ("edges", "edge")):
        names = [each["name"] for each in ir[section]]
        if names != sorted(names):
            found.add("schema-ir", IR_FILE, f"the {section} are not sorted by name", names=names)
        for each in ir[section]:
            owner = f"{kind}:{each['name']}"
            wrong += [owner] if each.get("type_id") != fnv1a_32(owner) else []
            wrong += [
                f"{owner}:{prop['name']}"
                for prop in each["properties"]
                if prop.get("prop_id") != fnv1a_32(f"{owner}:{prop['name']}")
            ]
    if wrong:
        found.add("schema-ir", IR_FILE, f"{len(wrong)} ids are not the hash of their name", names=wrong[:5])


def _catalog(ir: Mapping[str, Any]) -> Catalog:
    if ir["ir_version"] != 1:
        raise ValueError(f"ir_version is {ir['ir_version']!r}, not 1")
    types = [_type("node", each) for each in ir["nodes"]] + [_type("edge", each) for each in ir["edges"]]
    return Catalog({each.table_key: each for each in types})


def _type(kind: str, body: Mapping[str, Any]) -> TableType:
    rules: dict[str, list[Any]] = {"Key": [], "Unique": [], "Index": [], "Range": [], "Check": []}
    for constraint in body.get("constraints", []):
        for name, value in constraint.items():
            rules.setdefault(name, []).append(value)
    cardinality = body.get("cardinality") or {}
    return TableType(
        kind=kind,
        name=body["name"],
        properties=tuple(sorted((_property(each) for each in body["properties"]), key=lambda prop: prop.name)),
        key=tuple(sorted(rules["Key"][0])) if rules["Key"] else (),
        unique=tuple(tuple(group) for group in rules["Unique"]),
        ranges=tuple(Range(each["property"], _bound(each["min"]), _bound(each["max"])) for each in rules["Range"]),
        checks=tuple((each["property"], each["pattern"]) for each in rules["Check"]),
        source=body.get("from_type", ""),
        target=body.get("to_type", ""),
        minimum=cardinality.get("min") or 0,
        maximum=cardinality.get("max"),
    )


def _property(body: Mapping[str, Any]) -> Property:
    kind = body["prop_type"]
    scalar: Any = kind["scalar"]
    dimensions: int | None = None
    if isinstance(scalar, dict):
        scalar, dimensions = "Vector", int(scalar["Vector"])
    elif scalar not in _SCALARS and scalar != BLOB:
        raise ValueError(f"unknown scalar {scalar!r}")
    enum_values = kind.get("enum_values")
    return Property(
        body["name"],
        scalar,
        nullable=bool(kind["nullable"]),
        is_list=bool(kind["list"]),
        enum_values=None if enum_values is None else tuple(enum_values),
        dimensions=dimensions,
    )


_BOUNDS: Final[Mapping[str, Callable[[Any], int | float]]] = {"Integer": int, "Float": float}


def _bound(body: Mapping[str, Any] | None) -> int | float | None:
    if body is None:
        return None
    ((kind, value),) = body.items()
    return _BOUNDS[kind](value)


def check_columns(found: Findings, owner: TableType, schema: pa.Schema, where: str, *, pending: bool) -> bool:
    """Hold the columns of a table against its type; whether its rows can be held against the rules too."""
    expected = {prop.name: prop for prop in owner.columns()}
    missing = [name for name in expected if name not in schema.names]
    extra = [name for name in schema.names if name not in expected]
    unlike = [name for name in schema.names if name in expected and not expected[name].fits(schema.field(name))]
    details = {"missing": missing, "extra": extra, "unlike": unlike}
    if not any(details.values()):
        if list(expected) == list(schema.names):
            return True
        details["order"] = list(schema.names)
    said = "; ".join(f"{what}: {', '.join(names)}" for what, names in details.items() if names)
    found.add(
        "columns",
        where,
        f"the columns are not those of the accepted schema ({said})",
        severity="warning" if pending else None,
        **details,
    )
    return not missing and not unlike
